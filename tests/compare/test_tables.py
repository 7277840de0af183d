"""Tables read from disk: as they were written, or refused with a reason."""

import bz2
import csv
import gzip
import io
import lzma
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpflow_pep.compare.tables import read_table

TEXT = "a,b,y\n" + "".join(f"{i},{i % 3}.5,w{i}\n" for i in range(12))
FRAME = pd.DataFrame(
    {"a": range(12), "b": [i % 3 + 0.5 for i in range(12)], "y": [f"w{i}" for i in range(12)]}
)


def read(path: Path, content: str | bytes, **options: Any) -> pd.DataFrame:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, **options)


def zipped(content: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names or ("t.csv",):
            archive.writestr(zipfile.ZipInfo(name), content)  # of no time
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content, options",
    [
        (TEXT, {}),
        (TEXT.replace(",", ";"), {}),
        (TEXT.replace(",", "\t"), {}),
        (TEXT.replace(",", "|").replace("\n", "\r\n"), {}),
        (TEXT.replace(",", "  "), {}),
        (TEXT.replace(",", ", "), {}),
        (TEXT.replace(",", ";").replace(".", ","), {}),
        ("\n\n" + TEXT + "\n \n", {}),
        ("sep=;\n" + TEXT.replace(",", ";"), {}),
        (TEXT.replace("\n", "\r"), {}),
        (TEXT.encode("utf-8-sig"), {}),
        (TEXT.encode("utf-16"), {}),
        (TEXT.encode("utf-16-le"), {}),
        (TEXT.encode("utf-16-be"), {}),
        (TEXT.encode("utf-32"), {}),
        (gzip.compress(TEXT.encode(), mtime=0), {}),
        (bz2.compress(TEXT.encode()), {}),
        (lzma.compress(TEXT.encode()), {}),
        (zipped(TEXT.encode()), {}),
        (TEXT.replace(",", "~"), {"sep": "~"}),
    ],
)
def test_one_table_written_in_many_ways(
    tmp_path: Path, content: str | bytes, options: dict[str, Any]
) -> None:
    found = read(tmp_path / "t.csv", content, **options)
    pd.testing.assert_frame_equal(found, FRAME, check_dtype=False, check_exact=True)
    assert set(found.attrs) == {"sep", "decimal", "encoding"}


@pytest.mark.parametrize(
    "cells, sep, decimal",
    [
        (["1,5", "2,25"], ";", ","),
        (["1,234", "2,345"], ";", ","),
        (["1,234", "2,345"], "\t", "."),
        (["1,234", "0,345"], "\t", ","),
        (["1.234,5", "2,5"], "\t", ","),
        (["1.5", "2,5"], "\t", "."),
        (["31.01.2020", "1,5"], "\t", ","),
        (['"1,5"', '"2,5"'], ",", ","),
        (['"1,234"', "7"], ",", "."),
        (["-1,5e-3", "7"], "|", ","),
    ],
)
def test_decimal_points(tmp_path: Path, cells: list[str], sep: str, decimal: str) -> None:
    text = "".join(f"{a}{sep}{b}\n" for a, b in [("x", "y"), *((c, "w") for c in cells)])
    assert read(tmp_path / "t.csv", text).attrs["decimal"] == decimal


def test_latin_letters_and_missing_words(tmp_path: Path) -> None:
    text = "größe;farbe\n1,5;weiß\n?;-\nNA;\n"
    found = read(tmp_path / "t.csv", text.encode("cp1252"))
    assert found.attrs == {"sep": ";", "decimal": ",", "encoding": "cp1252"}
    assert list(found.columns) == ["größe", "farbe"] and found["farbe"][0] == "weiß"
    assert list(found.isna().sum()) == [2, 2]


@pytest.mark.parametrize(
    "text, names, first",
    [
        ("a,b,\n1,2,\n3,4,\n", ["a", "b", "Unnamed: 2"], [1, 2]),
        ("a;b\n1;2;\n3;4;\n", ["a", "b", "Unnamed: 2"], [1, 2]),
        ('"a" "b"\n"1" 7 3\n"2" 4 5\n', ["Unnamed: 0", "a", "b"], [1, 7, 3]),
        ("a,b\nx1,7,3\nx2,4,5\n", ["Unnamed: 0", "a", "b"], ["x1", 7, 3]),
        ("# by me\n# 2020\na,b\n1,2\n", ["a", "b"], [1, 2]),
        ("# by me\n# a,b\n1,2\n3,4\n", ["a", "b"], [1, 2]),
    ],
)
def test_what_some_programs_write(
    tmp_path: Path, text: str, names: list[str], first: list[Any]
) -> None:
    found = read(tmp_path / "t.csv", text)
    assert list(found) == names
    assert found.iloc[0].dropna().tolist() == first


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), FRAME)
    FRAME.set_index("y").to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet")) == ["y", "a", "b"]


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs pyarrow.*pip install 'gpflow-pep\[parquet\]'"):
        read(tmp_path / "t.parquet", b"PAR1 and so on")


@pytest.mark.parametrize(
    "content, options, message",
    [
        ("", {}, r"is empty, expected a line of column names and rows"),
        ("\n \n", {}, r"is empty"),
        ("a,b\n", {}, r"only a line of column names \(a, b\), expected rows under it"),
        ("a,b\n1,2\n1,2,3\n", {}, r"line 3: got 3 value\(s\), expected 2, .* separated by ','"),
        ("a,b\n1,2\n\n1\n", {}, r"line 4: got 1 value"),
        ("sep=;\na;b\n1\n", {}, r"line 3: got 1 value"),
        ("a,b\n1.5,2,3\n2.5,3,4\n", {}, r"line 2: got 3 value\(s\), expected 2"),
        ("a, a,b\n1,2,3\n", {}, r"more than one column named a, .* Rename"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, {}, r"is no text .* control characters"),
        (gzip.compress(TEXT.encode(), mtime=0)[:40], {}, r"cannot be read .* how it was written"),
        (zipped(b"x", "a.csv", "b.csv"), {}, r"has 2 files in it, expected one"),
        (zipped(b"x", "[Content_Types].xml", "xl"), {}, r"is a spreadsheet .* Save the sheet"),
        (b"PAR1 but nothing else", {}, r"cannot be read .* expected a table: CSV"),
        (TEXT, {"encoding": "klingon"}, r"encoding: got 'klingon', .* such as 'utf-8'"),
        (b"a,b\n\xff,1\n", {"encoding": "utf-8"}, r"is not in the encoding utf-8 .* Name another"),
        (TEXT, {"sep": ""}, r"sep: got '', expected one character"),
        (TEXT, {"sep": '"'}, r"sep: got '\"', expected one character"),
        (TEXT, {"decimal": ";"}, r"decimal: got ';', expected '\.' or ','"),
        ('a,b\n1,"2\n', {}, r"cannot be read .* how it was written"),
    ],
)
def test_what_is_no_table(
    tmp_path: Path, content: str | bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "t.csv", content, **options)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist, expected a table\. Check the name"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="is a folder, expected a file"):
        read_table(tmp_path)


def test_without_tensorflow() -> None:
    code = (
        "import sys, gpflow_pep.compare.tables, gpflow_pep.compare.preparation;"
        " assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


LETTERS = "abcxyz019 äéß\"'.:-"
WAYS = st.tuples(
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([".", ","]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["\n", "\r\n"]),
).filter(lambda way: way[:2] != (",", ","))
COLUMNS: dict[str, Callable[[int], Any]] = {
    "whole": lambda n: st.lists(st.integers(-(10**15), 10**15), min_size=n, max_size=n),
    "real": lambda n: st.lists(
        st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n
    ),
    "text": lambda n: st.lists(
        st.none() | st.text(LETTERS + ",;|\t\n", max_size=6).map("x{}".format),
        min_size=n,
        max_size=n,
    ),
}


@st.composite
def frames(draw: Any) -> pd.DataFrame:
    num_rows = draw(st.integers(1, 8))
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    columns = {
        f"n{i}{draw(st.text(LETTERS, max_size=4)).strip()}": draw(COLUMNS[kind](num_rows))
        for i, kind in enumerate(kinds)
    }
    return pd.DataFrame({"row": range(num_rows), **columns})


def check_that_it_reads_back(path: Path, frame: pd.DataFrame, way: tuple[Any, ...]) -> None:
    sep, decimal, encoding, quoting, ends = way
    frame.to_csv(
        path, sep=sep, decimal=decimal, encoding=encoding, quoting=quoting, lineterminator=ends,
        index=False,
    )  # fmt: skip
    reals = [repr(v) for v in frame.select_dtypes("float").to_numpy().ravel()]
    if decimal == ",":  # 1,234 alone can be either
        assume(
            any(len(real.partition(".")[2]) != 3 or real[0] == "0" for real in reals) or not reals
        )
    found = read_table(path)
    assert list(found.columns) == list(frame.columns)
    for name, column in frame.items():
        if column.dtype == np.float64:
            np.testing.assert_array_equal(found[name], column)
        else:
            as_text = column.astype(object).where(column.notna(), "").astype(str).str.strip()
            others = found[name].astype(object).where(found[name].notna(), "").astype(str)
            assert list(others.str.strip()) == list(as_text)


@settings(max_examples=15, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(frame=frames(), way=WAYS)
def test_tables_read_back(tmp_path: Path, frame: pd.DataFrame, way: tuple[Any, ...]) -> None:
    check_that_it_reads_back(tmp_path / "t.csv", frame, way)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(frame=frames(), way=WAYS)
def test_many_tables_read_back(tmp_path: Path, frame: pd.DataFrame, way: tuple[Any, ...]) -> None:
    check_that_it_reads_back(tmp_path / "t.csv", frame, way)


def seeds() -> list[bytes]:
    text = 'a;b;c\n1,5;x y;2020-01-01\n2,5;"q;""";31.12.2020\n;z;\n'
    parquet = io.BytesIO()
    try:
        FRAME.to_parquet(parquet)
    except ImportError:
        parquet.write(b"PAR1")
    packed = text.encode()
    return [
        *(text.encode(encoding) for encoding in ("utf-8", "utf-16", "cp1252", "utf-8-sig")),
        *(pack(packed) for pack in (gzip.compress, bz2.compress, lzma.compress, zipped)),
        parquet.getvalue(),
    ]


def check_mutated(path: Path, number: int) -> None:
    """Whatever the bytes are, a table is read or a ValueError says what is wrong."""
    rng = np.random.default_rng(0)
    for i in range(number):
        content = bytearray(seeds()[i % len(seeds())])
        for _ in range(rng.integers(1, 6)):
            place = int(rng.integers(0, max(1, len(content))))
            what = rng.integers(3)
            if what == 0 and content:
                content[min(place, len(content) - 1)] = int(rng.integers(256))
            elif what == 1:
                content[place:place] = bytes(rng.choice([0, 10, 34, 44, 59, 255], 3).tolist())
            else:
                del content[place : place + int(rng.integers(1, 20))]
        path.write_bytes(bytes(content))
        try:
            assert isinstance(read_table(path), pd.DataFrame)
        except ValueError as error:
            assert str(path) in str(error), error


def test_mutated_files(tmp_path: Path) -> None:
    check_mutated(tmp_path / "t.csv", 90)


@pytest.mark.slow
def test_many_mutated_files(tmp_path: Path) -> None:
    check_mutated(tmp_path / "t.csv", 9000)
