"""What readers are given: tables written in many ways, and files that were spoiled on
the way.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import shutil
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import assume
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from gpflow_pep.estimators import load_estimator
from gpflow_pep.scoring.stored import digest
from gpflow_pep.tables.reading import read_table

TEXT = "a,b,y\n" + "".join(f"{i},{i % 3}.5,w{i}\n" for i in range(12))
FRAME = pd.DataFrame(
    {
        "a": range(12),
        "b": [i % 3 + 0.5 for i in range(12)],
        "y": [f"w{i}" for i in range(12)],
    }
)


def zipped(content: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names or ("t.csv",):
            archive.writestr(zipfile.ZipInfo(name), content)  # of no time
    return buffer.getvalue()


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
    names = [
        f"n{i}{draw(st.text(LETTERS, max_size=4)).strip()}" for i in range(len(kinds))
    ]
    columns = {name: draw(COLUMNS[kind](num_rows)) for name, kind in zip(names, kinds)}
    return pd.DataFrame({"row": range(num_rows), **columns})


def check_that_it_reads_back(
    path: Path, frame: pd.DataFrame, way: tuple[Any, ...]
) -> None:
    sep, decimal, encoding, quoting, ends = way
    options = {"sep": sep, "decimal": decimal, "encoding": encoding, "quoting": quoting}
    frame.to_csv(path, **options, lineterminator=ends, index=False)
    reals = [repr(v) for v in frame.select_dtypes("float").to_numpy().ravel()]
    if decimal == ",":  # 1,234 alone can be either
        is_clear = [
            len(real.partition(".")[2]) != 3 or real[0] == "0" for real in reals
        ]
        assume(any(is_clear) or not reals)
    found = read_table(path)
    assert list(found.columns) == list(frame.columns)
    for name, column in frame.items():
        if column.dtype == np.float64:
            np.testing.assert_array_equal(found[name], column)
        else:
            as_text = (
                column.astype(object).where(column.notna(), "").astype(str).str.strip()
            )
            others = (
                found[name].astype(object).where(found[name].notna(), "").astype(str)
            )
            assert list(others.str.strip()) == list(as_text)


def good_tables() -> list[bytes]:
    text = 'a;b;c\n1,5;x y;2020-01-01\n2,5;"q;""";31.12.2020\n;z;\n'
    parquet = io.BytesIO()
    excel = io.BytesIO()
    to_excel = partial(FRAME.to_excel, index=False)
    for write, file, start in (
        (FRAME.to_parquet, parquet, b"PAR1"),
        (to_excel, excel, b"PK"),
    ):
        try:
            write(file)
        except ImportError:
            file.write(start)
    packed = text.encode()
    return [
        *(
            text.encode(encoding)
            for encoding in ("utf-8", "utf-16", "cp1252", "utf-8-sig")
        ),
        *(
            pack(packed)
            for pack in (gzip.compress, bz2.compress, lzma.compress, zipped)
        ),
        parquet.getvalue(),
        excel.getvalue(),
    ]


def spoiled_tables(number: int, seed: int = 0) -> Iterator[bytes]:
    """Good ones of which a few bytes were changed, added or lost."""
    rng = np.random.default_rng(seed)
    good = good_tables()
    for i in range(number):
        content = bytearray(good[i % len(good)])
        for _ in range(rng.integers(1, 6)):
            place = int(rng.integers(0, max(1, len(content))))
            what = rng.integers(3)
            if what == 0 and content:
                content[min(place, len(content) - 1)] = int(rng.integers(256))
            elif what == 1:
                content[place:place] = bytes(
                    rng.choice([0, 10, 34, 44, 59, 255], 3).tolist()
                )
            else:
                del content[place : place + int(rng.integers(1, 20))]
        yield bytes(content)


def check_table(path: Path, content: bytes) -> None:
    """Whatever the bytes are, a table is read or a ValueError says what is wrong."""
    path.write_bytes(content)
    try:
        assert isinstance(read_table(path), pd.DataFrame)
    except ValueError as error:
        assert str(path) in str(error), error


def rewrite(folder: Path, change: Any) -> None:
    """Change description and arrays as somebody would who knows of the digest."""
    description = json.loads((folder / "model.json").read_text())
    with np.load(folder / "arrays.npz") as archive:
        arrays = dict(archive)
    change(description, arrays)
    np.savez(folder / "arrays.npz", **arrays)
    header = ("format", "versions", "files", "digest")
    content = {name: part for name, part in description.items() if name not in header}
    description["digest"] = digest(content, folder, "model.json")
    (folder / "model.json").write_text(json.dumps(description))


def mutate(value: Any, rng: np.random.Generator) -> Any:
    odd = [
        None,
        -1,
        0,
        1e308,
        "",
        "gpflow.kernels.RBF",
        [],
        {},
        True,
        {"array": "0"},
        {"ref": 0},
    ]
    while isinstance(value, (dict, list)) and value:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[rng.integers(len(keys))]
        if not isinstance(value[key], (dict, list)) or rng.uniform() < 0.1:
            if rng.uniform() < 0.3:
                del value[key]
            else:
                value[key] = odd[rng.integers(len(odd))]
            return
        value = value[key]


def spoiled_folders(
    folder: Path, saved: Path, number: int, seed: int = 0
) -> Iterator[bool]:
    """Change one byte, or one entry of the description; yields whether that has to be
    noticed.
    """
    rng = np.random.default_rng(seed)
    shutil.copytree(saved, folder, dirs_exist_ok=True)
    for i in range(number):
        names = ("model.json", "arrays.npz", "pipeline.skops")
        for name in names:
            shutil.copy(saved / name, folder / name)
        if i % 2:
            rewrite(
                folder, lambda description, _: mutate(description["estimators"], rng)
            )
        else:
            name = names[i // 2 % 3]
            content = bytearray((folder / name).read_bytes())
            content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
            (folder / name).write_bytes(bytes(content))
        # An entry may become another one. A byte of the description may be white space,
        # or of the versions; else it has another digest.
        yield i % 2 == 0 and name != "model.json"


def check_folder(folder: Path, must_be_noticed: bool) -> None:
    """Whatever is changed, it is noticed, or another estimator is loaded; nothing else
    happens.
    """
    try:
        assert isinstance(load_estimator(folder), BaseEstimator)
    except ValueError as error:
        assert str(folder) in str(error) or "gpflow.config" in str(error)
    else:
        assert not must_be_noticed
