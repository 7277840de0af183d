"""Tables read from disk: as they were written, or refused with a reason."""

import bz2
import datetime
import gzip
import io
import lzma
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import readers
from cases.readers import FRAME, TEXT, WAYS, check_that_it_reads_back, frames, zipped
from hypothesis import HealthCheck, given, settings

from gpflow_pep.compare.predicting import read_as_in_training
from gpflow_pep.tables import conventions
from gpflow_pep.tables.conventions import Conventions
from gpflow_pep.tables.reading import read_table


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Write a file and read it."""

    def written(
        content: str | bytes, name: str = "t.csv", **options: Any
    ) -> pd.DataFrame:
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(content)
        return read_table(tmp_path / name, **options)

    return written


PACKED = [
    pack(TEXT.encode()) for pack in (gzip.compress, bz2.compress, lzma.compress, zipped)
]


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        "\n\n" + TEXT + "\n \n",
        "sep=;\n" + TEXT.replace(",", ";"),
        TEXT.replace("\n", "\r"),
        *(TEXT.replace(",", sep) for sep in (";", "\t", "  ", ", ", "~")),
        TEXT.replace(",", "|").replace("\n", "\r\n"),
        TEXT.replace(",", ";").replace(".", ","),
        *map(TEXT.encode, ("utf-8-sig", "utf-16", "utf-32")),
        *PACKED,
    ],
    ids=lambda content: str(content)[:9],
)
def test_one_table_written_in_many_ways(read: Any, content: str | bytes) -> None:
    found = read(content, **({"sep": "~"} if "~" in str(content) else {}))
    pd.testing.assert_frame_equal(found, FRAME, check_dtype=False, check_exact=True)
    assert set(found.attrs) == {"sep", "decimal", "encoding"}


@pytest.mark.parametrize(
    "cells, sep, decimal",
    [
        (["1,5", "2,25"], ";", ","),
        (["1,234", "2,345"], ";", ""),
        (["1,234", "2,345"], "\t", ""),
        (["1,234", "0,345"], "\t", ","),
        (["1.234,5", "2,5"], "\t", ","),
        (["1.5", "2,5"], "\t", ""),
        (["31.01.2020", "1,5"], "\t", ","),
        (['"1,5"', '"2,5"'], ",", ","),
        (['"1,234"', "7"], ",", "."),
        (["-1,5e-3", "7"], "|", ","),
    ],
)
def test_decimal_points(read: Any, cells: list[str], sep: str, decimal: str) -> None:
    text = "".join(
        f"{a}{sep}{b}\n" for a, b in [("x", "y"), *((c, "w") for c in cells)]
    )
    assert read(text).attrs.get("decimal", "") == decimal


def test_latin_letters_and_missing_words(read: Any) -> None:
    text = "größe;farbe\n1,5;weiß\n?;-\nNA;\n"
    found = read(text.encode("cp1252"))
    assert found.attrs == {"sep": ";", "decimal": ",", "encoding": "cp1252"}
    assert list(found.columns) == ["größe", "farbe"] and found["farbe"][0] == "weiß"
    assert list(found.isna().sum()) == [2, 1]  # among words - may be one


def test_standard_input_is_read_again_in_the_encoding_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = "town;x\nKöln;1\nBonn;2\n".encode("cp437")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    frame = read_table("-")
    assert frame.attrs["encoding"] == "cp1252" and frame["town"][0] != "Köln"
    model = SimpleNamespace(conventions=Conventions(encoding="cp437"))
    options = {"sheet": None, "encoding": None}
    again = read_as_in_training(model, Path("-"), frame, options)
    assert again["town"][0] == "Köln"
    options["encoding"] = "cp1252"
    assert read_as_in_training(model, Path("-"), frame, options) is frame


@pytest.mark.parametrize(
    "text, names, first",
    [
        # What some programs write:
        ("a,b,\n1,2,\n3,4,\n", ["a", "b", "Unnamed: 2"], [1, 2]),
        ("a;b\n1;2;\n3;4;\n", ["a", "b", "Unnamed: 2"], [1, 2]),
        ('"a" "b"\n"1" 7 3\n"2" 4 5\n', ["Unnamed: 0", "a", "b"], [1, 7, 3]),
        ("a,b\nx1,7,3\nx2,4,5\n", ["Unnamed: 0", "a", "b"], ["x1", 7, 3]),
        ("# by me\n# 2020\na,b\n1,2\n", ["a", "b"], [1, 2]),
        ("# by me\n# a,b\n1,2\n3,4\n", ["a", "b"], [1, 2]),
        # Names that are no titles:
        ("Names\nDoe, John\nRoe, Jane\n", ["Names"], ["Doe, John"]),
        ("Names\n\nDoe, John, Dr\nRoe, Jane, Dr\n", ["Names"], ["Doe, John, Dr"]),
        ("a\nx1,7\nx2,4\n", ["a"], ["x1,7"]),
        ("a,b\n\nx1,7,3\nx2,4,5\n", ["Unnamed: 0", "a", "b"], ["x1", 7, 3]),
        ("a,,\nx,y,z\nu,v,w\n", ["a", "Unnamed: 1", "Unnamed: 2"], ["x", "y", "z"]),
        ("a,b,c\n,,\n1,2,3\n", ["a", "b", "c"], []),
        ("a\n1\n2\n", ["a"], [1]),
    ],
)
def test_names_of_columns(
    read: Any, text: str, names: list[str], first: list[Any]
) -> None:
    found = read(text)
    assert list(found) == names and "notes" not in found.attrs
    assert found.iloc[0].dropna().tolist() == first


ROWS = "".join(f"{i},{i % 3 + 0.5},w{i % 4}\n" for i in range(12))


@pytest.mark.parametrize(
    "above, sep, note",
    [
        (
            "Sales report\n\n",
            ",",
            "Left out 2 lines above the column names: 'Sales report'",
        ),
        (
            "Sales report\n",
            ";",
            "Left out a line above the column names: 'Sales report'",
        ),
        (
            "Sales, prices\nand more\n\n\n",
            ",",
            "Left out 4 lines above .*: 'Sales' and so on",
        ),
        ("Report,,\n,,\n", ",", "Left out 2 lines above the column names: 'Report'"),
        ("\n\nReport;;\n", ";", "Left out 3 lines above the column names: 'Report'"),
        ('"A title\nof two lines"\n\n', "\t", "above the column names: 'A title"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_titles(read: Any, above: str, sep: str, note: str, ends: str) -> None:
    text = above + TEXT.replace(",", sep)
    found = read(text.replace("\n", ends))
    pd.testing.assert_frame_equal(found, FRAME, check_dtype=False, check_exact=True)
    (found_note,) = found.attrs["notes"]
    assert re.search(note, found_note) and "--header" in found_note


def test_short_lines_are_filled(read: Any) -> None:
    found = read("Title\n\na,b,c\n1,2,3\n4\n5,6\n7,8,9,,\n1,2,3\n")
    expected = {
        "a": [1, 4, 5, 7, 1],
        "b": [2, None, 6, 8, 2],
        "c": [3, None, None, 9, 3],
    }
    pd.testing.assert_frame_equal(found, pd.DataFrame(expected), check_dtype=False)
    (warning,) = found.attrs["warnings"]
    assert warning.startswith("2 of 5 lines have fewer cells than there are columns")
    assert "line 5" in warning


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS.replace(",", ";").replace(".", ","),
        ROWS.replace(",", " "),
        ROWS.replace("\n", "\r\n"),
        "7,7,w1\n" + ROWS,  # no names, as two of them were the same
        "".join(f"{i % 4}.5,0{i % 5 + 1}.01.2020,{i}\n" for i in range(19, -1, -1)),
    ],
)
def test_files_without_names(read: Any, text: str) -> None:
    found = read(text)
    assert list(found) == ["x0", "x1", "x2"] and len(found) == text.count("\n")
    (note,) = found.attrs["notes"]
    assert (
        "so it is read as a row. The columns are called x0 to x2" in note
        and "--header" in note
    )
    named = read(text, header=False)
    pd.testing.assert_frame_equal(named, found)
    (note,) = named.attrs["notes"]
    assert note == "The columns are called x0 to x2; use these names for --target."


@pytest.mark.parametrize(
    "names",
    [
        "a,b,c",
        "1,2,w",
        "0,1,2",
        "2019,2020,2021",
        "3,2,1",
        "0.2,0.4,0.6",
        "1,,c",
        "1,70,w1",
        "1,b,w1",
    ],
)
def test_first_lines_that_are_names(read: Any, names: str) -> None:
    found = read(f"{names}\n{ROWS.replace('w', '')}")
    assert len(found) == 12 and "notes" not in found.attrs


def test_few_rows_do_not_show_that_names_are_absent(read: Any) -> None:
    assert list(read("3,2.5\n1,4\n7,1\n")) == ["3", "2.5"]
    assert list(read(ROWS, header=True)) == ["0", "0.5", "w0"]
    assert list(read("Title\n\n" + TEXT, header=True)) == ["Title"]


@pytest.fixture
def book(tmp_path: Path) -> Any:
    """Write sheets, and read the file."""
    pytest.importorskip("openpyxl")

    def written(options: Any = None, **sheets: list[list[Any]]) -> pd.DataFrame:
        with pd.ExcelWriter(tmp_path / "t.xlsx") as writer:
            for name, cells in sheets.items():
                pd.DataFrame(cells).to_excel(
                    writer, sheet_name=name, header=False, index=False
                )
        return read_table(tmp_path / "t.xlsx", **(options or {}))

    return written


CELLS: list[list[Any]] = [["day", "at", "size", "word"]] + [
    [
        pd.Timestamp("2023-01-01") + pd.Timedelta(i, "D"),
        datetime.time(i, 30),
        i / 2,
        f"w{i % 3}",
    ]
    for i in range(9)
]


def test_excel(book: Any, tmp_path: Path) -> None:
    CELLS[3][2] = "n.a."
    found = book(Cover=[], Data=CELLS)
    assert (
        list(found) == CELLS[0] and len(found) == 9 and found.attrs == {"sheet": "Data"}
    )
    assert found["day"].dtype.kind == "M" and found["day"][8] == pd.Timestamp(
        "2023-01-09"
    )
    assert found["size"].dtype == float and found["size"].isna().sum() == 1
    assert found["at"][1] == "01:30:00" and found["word"][2] == "w2"
    blank: list[Any] = [None] * 5
    rows = [[None, *row] for row in CELLS]
    titled = [blank, [None, "Sales report", None, None, None], blank, *rows, blank]
    found = book(One=titled, Other=[["x"], [1]])
    assert list(found) == CELLS[0] and len(found) == 9 and found.attrs["sheet"] == "One"
    assert found.attrs["notes"] == [
        "Read the sheet 'One', the first of 'One', 'Other' (--sheet selects another).",
        (
            "Left out 2 lines above the column names: 'Sales report' and so on"
            " (--header reads the first line as names)."
        ),
    ]
    assert list(read_table(tmp_path / "t.xlsx", sheet="Other")["x"]) == [1]
    with pytest.raises(
        ValueError, match=r"sheet: got 'Two', expected a sheet among 'One', 'Other'"
    ):
        read_table(tmp_path / "t.xlsx", sheet="Two")


def test_marks_of_excel_that_may_be_classes(book: Any) -> None:
    days = [pd.Timestamp("2023-01-01"), "-"] * 12
    cells = [
        ["x", "y", "day"],
        *([i + 0.5, (1, 2, "-")[i % 3], days[i]] for i in range(24)),
    ]
    found = book(One=cells)
    assert found["y"].tolist() == [1, 2, "-"] * 8
    assert found["day"].dtype.kind == "M" and found["day"].isna().sum() == 12


def test_ways_of_writing_are_looked_at_once(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many numbers differ: reading many rows took three times as long."""
    seen: list[str] = []
    proof = conventions._proof
    monkeypatch.setattr(
        conventions, "_proof", lambda way: seen.append(way) or proof(way)
    )
    numbers = [f"{number:.2f}" for number in np.random.default_rng(0).normal(size=2000)]
    found = read("x,y\n" + "".join(f"{x},1\n" for x in numbers))
    assert found["x"].tolist() == list(map(float, numbers)) and 10 < len(seen) < 100


def test_excel_without_names(book: Any) -> None:
    rows = [[i, i % 3 + 9, f"w{i % 2}"] for i in range(20)]
    found = book(A=rows)
    assert list(found) == ["x0", "x1", "x2"] and len(found) == 20
    assert "so it is read as a row" in found.attrs["notes"][0]
    assert list(book({"header": True}, A=rows)) == ["0", "9", "w0"]
    twice = book(A=[["a", "b", "a"], [1, 2, 3]])
    assert list(twice) == ["a (1)", "b", "a (2)"] and len(twice.attrs["notes"]) == 1


@pytest.mark.parametrize(
    "text, names",
    [
        ("a, a,b\n1,2,3\n", ["a (1)", "a (2)", "b"]),
        ("a (1),a,a\n1,2,3\n", ["a (1)", "a (2)", "a (3)"]),
        ("Report;;\n\nT;y;T\n1;2;3\n", ["T (1)", "y", "T (2)"]),
    ],
)
def test_columns_that_share_a_name(read: Any, text: str, names: list[str]) -> None:
    found = read(text)
    assert list(found) == names and found.iloc[0].tolist() == [1, 2, 3]
    assert any("Columns with the same name" in note for note in found.attrs["notes"])


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "has no sheet with rows"),
        ([["a", "b"]], "has no rows in the sheet 'A', expected rows below the names"),
    ],
)
def test_excel_without_a_table(book: Any, rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        book(A=rows)


def test_a_sheet_that_is_named_and_empty(book: Any) -> None:
    with pytest.raises(ValueError, match="has no rows in the sheet 'B', expected rows"):
        book({"sheet": "B"}, A=[["a", "b"], [1, 2]], B=[])


def test_a_word_like_a_mark_of_no_value_is_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1;2.#IND\n2;3\n")  # the mark is 1.#IND
    assert list(read_table(tmp_path / "t.csv")["b"]) == ["2.#IND", "3"]


@pytest.mark.parametrize(
    "module, extra, content",
    [
        ("openpyxl", "excel", zipped(b"x", "[Content_Types].xml", "xl/workbook.xml")),
        ("pyarrow", "parquet", b"PAR1 and so on"),
    ],
)
def test_without_what_reads_a_format(
    read: Any, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, content: bytes
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ValueError, match=rf"needs {module}.*pip install 'gpflow-pep\[{extra}\]'"
    ):
        read(content, f"t.{extra}")


def test_parquet(read: Any) -> None:
    pytest.importorskip("pyarrow")
    pd.testing.assert_frame_equal(read(FRAME.to_parquet()), FRAME)
    assert list(read(FRAME.set_index("y").to_parquet())) == ["y", "a", "b"]


@pytest.mark.parametrize(
    "content, options, message",
    [
        ("", {}, r"is empty, expected a line of column names and rows"),
        ("\n \n", {}, r"is empty"),
        ("a,b\n", {}, r"only a line of column names \(a, b\), expected rows below it"),
        (
            "a,b\n1,2\n1,2,3\n",
            {},
            r"line 3: got 3 value\(s\), expected 2, .* separated by ','",
        ),
        ("sep=;\na;b\n1\n", {}, r"line 3: got 1 value"),
        (
            "Title\n\na,b,c\n1,2,3\n1,2,5,6\n1,2,3\n",
            {},
            r"line 5: got 4 value\(s\), expected 3",
        ),
        (
            "1,2,3\n4,5,6\n7,8,9,1\n",
            {"header": False},
            r"line 3: got 4 value\(s\), expected 3",
        ),
        ("a b c\n1 2 3\n1 2\n1 2 3\n", {}, "line 3: got 2"),  # it may lack any
        ("a,b\n1.5,2,3\n2.5,3,4\n", {}, r"line 2: got 3 value\(s\), expected 2"),
        (
            b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9,
            {},
            r"is not text .* control characters",
        ),
        (TEXT.encode("utf-16-le"), {}, r"is not text .* or pass its encoding"),
        (
            gzip.compress(TEXT.encode(), mtime=0)[:40],
            {},
            r"cannot be read .* how the file was written",
        ),
        (zipped(b"x", "a.csv", "b.csv"), {}, r"contains 2 files, expected one"),
        (
            zipped(b"x", "[Content_Types].xml", "xl"),
            {},
            r"is a spreadsheet .* Save the sheet",
        ),
        (
            zipped(b"x", "[Content_Types].xml", "xl/workbook.xml"),
            {},
            r"cannot be read \(.*Excel",
        ),
        (
            TEXT,
            {"sheet": "A"},
            r"sheet: got 'A' for a file without sheets, expected an Excel",
        ),
        (b"PAR1 but nothing else", {}, r"cannot be read .* expected a table: CSV"),
        (TEXT, {"encoding": "klingon"}, r"encoding: got 'klingon', .* such as 'utf-8'"),
        (
            b"a,b\n\xff,1\n",
            {"encoding": "utf-8"},
            r"is not in the encoding utf-8 .* Pass another",
        ),
        (TEXT, {"sep": ""}, r"sep: got '', expected one character"),
        (TEXT, {"sep": '"'}, r"sep: got '\"', expected one character"),
        (TEXT, {"sep": "\n"}, r"sep: got '\\n', expected one character"),
        (TEXT, {"sep": "ab"}, r"sep: got 'ab', expected one character"),
        (TEXT, {"decimal": ";"}, r"decimal: got ';', expected '\.' or ','"),
        ('a,b\n1,"2\n', {}, r"cannot be read .* how the file was written"),
    ],
)
def test_what_is_no_table(
    read: Any, content: str | bytes, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(content, **options)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"does not exist, expected a table\. Check the name"
    ):
        read_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="is a folder, expected a file"):
        read_table(tmp_path)
    for place in (
        "s3://bucket/t.csv",
        "https://example.org/t.csv",
        "a\0b",
        "n" * 300,
        "",
        None,
    ):
        with pytest.raises(
            ValueError, match=r"(a URL|not a path|no name).*Download the table"
        ):
            read_table(place)  # type: ignore[arg-type]


@pytest.mark.slow
def test_without_tensorflow() -> None:
    without = "assert 'tensorflow' not in sys.modules"
    code = f"import sys; from gpflow_pep.tables import cleaning, reading; {without}"
    subprocess.run([sys.executable, "-c", code], check=True)


def many(number: int) -> Any:
    checks: Any = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}
    return settings(max_examples=number, deadline=None, derandomize=True, **checks)


@many(15)
@given(frame=frames(), way=WAYS)
def test_tables_read_back(
    tmp_path: Path, frame: pd.DataFrame, way: tuple[Any, ...]
) -> None:
    check_that_it_reads_back(tmp_path / "t.csv", frame, way)


@pytest.mark.slow
@many(3000)
@given(frame=frames(), way=WAYS)
def test_many_tables_read_back(
    tmp_path: Path, frame: pd.DataFrame, way: tuple[Any, ...]
) -> None:
    check_that_it_reads_back(tmp_path / "t.csv", frame, way)


@pytest.mark.parametrize("number", [90, pytest.param(9000, marks=pytest.mark.slow)])
def test_mutated_files(tmp_path: Path, number: int) -> None:
    for content in readers.spoiled_tables(number):
        readers.check_table(tmp_path / "t.csv", content)


def test_what_can_be_read_in_two_ways_stays_text(read: Any) -> None:
    """A table that is read by a model's conventions must not be read by its own guess
    before.
    """
    found = read("a;b\n1,555;3\n1,999;4\n")
    assert list(found["a"]) == ["1,555", "1,999"] and list(found["b"]) == [3, 4]
    found = read("a;b\n1,555;3\n1,999;4\n", decimal=",")
    assert list(found["a"]) == [1.555, 1.999]
    found = read("a;b\n1,555;3.5\n1,999;4\n", thousands=",")
    assert found.attrs["decimal"] == "." and list(found["b"]) == [3.5, 4]
    assert list(read("a;b\n1e-05;3\n2;4\n")["a"]) == [1e-5, 2.0]
    # A comma between cells is no decimal mark; points are, where all numbers have one.
    assert list(read("a,b\n1.250,3\n2.500,4\n")["a"]) == [1.25, 2.5]
    assert read("a,b\n1.250,3\n<2.5,4\n2.500,4\n").attrs["decimal"] == "."
    assert list(read("a,b\n1.200,3\n950,4\n")["a"]) == ["1.200", "950"]


def test_what_are_no_plain_numbers_stays_text(read: Any) -> None:
    found = read("zip,id,part,c,t\n01000,1E0,5%,None,True\n20000,2E1,,-,false\n")
    assert list(found["zip"]) == ["01000", "20000"] and list(found["id"]) == [
        "1E0",
        "2E1",
    ]
    assert list(found["c"]) == ["None", "-"] and list(found["t"]) == [True, False]
    assert list(found["part"].isna()) == [False, True]


def test_separators_compete_by_the_numbers_that_they_give(read: Any) -> None:
    found = read("".join(f"{i % 3},5;{i % 4}\n" for i in range(9)))
    assert found.attrs["sep"] == ";" and found.attrs["decimal"] == ","
    assert found.iloc[1].tolist() == [1.5, 1.0]


def test_a_zip_file_made_by_a_mac(read: Any) -> None:
    content = zipped(TEXT.encode(), "t.csv", "__MACOSX/._t.csv", ".DS_Store")
    assert len(read(content, "t.zip")) == 12


def test_excel_with_a_cover_merged_cells_and_durations(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    workbook = openpyxl.Workbook()
    workbook.active["A1"] = "Read me"
    sheet = workbook.create_sheet("Data")
    sheet.append(["site", "took", "rate", "size"])
    for i in range(6):
        took = datetime.timedelta(hours=20 + 2 * i, minutes=30)
        sheet.append(
            [f"s{i // 3}", took, "#DIV/0!" if i == 2 else i / 2, f"0,{100 + 7 * i}"]
        )
    sheet.merge_cells("A2:A4")
    sheet.merge_cells("A5:A7")
    workbook.save(tmp_path / "t.xlsx")
    found = read_table(tmp_path / "t.xlsx")
    assert (
        found.attrs["sheet"] == "Data"
        and "--sheet selects another" in found.attrs["notes"][0]
    )
    assert list(found["site"]) == ["s0"] * 3 + ["s1"] * 3
    assert found["took"][2] == "24:30:00" and found["size"][0] == "0,100"
    assert found["rate"].dtype == float and found["rate"].isna().sum() == 1
    with pytest.raises(ValueError, match=r"Choose another sheet \(--sheet\) of"):
        read_table(tmp_path / "t.xlsx", sheet="Sheet")
