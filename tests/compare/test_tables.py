"""Tables read from disk: as they were written, or refused with a reason."""

import bz2
import gzip
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cases.readers import (
    FRAME,
    TEXT,
    WAYS,
    check_table,
    check_that_it_reads_back,
    frames,
    spoiled_tables,
    zipped,
)
from hypothesis import HealthCheck, given, settings

from gpflow_pep.compare.tables import read_table


def read(path: Path, content: str | bytes, **options: Any) -> pd.DataFrame:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, **options)


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
        "import sys, gpflow_pep.compare.tables, gpflow_pep.compare.cleaning;"
        " assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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


def check_spoiled(path: Path, number: int) -> None:
    for content in spoiled_tables(number):
        check_table(path, content)


def test_mutated_files(tmp_path: Path) -> None:
    check_spoiled(tmp_path / "t.csv", 90)


@pytest.mark.slow
def test_many_mutated_files(tmp_path: Path) -> None:
    check_spoiled(tmp_path / "t.csv", 9000)
