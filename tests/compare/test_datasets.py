"""Reading, splitting and standardising data."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from gpflow_pep.compare.datasets import (
    Dataset,
    load_example,
    looks_like_classes,
    read_csv,
    split_rows,
)

HEADER = "a,b,y\n"
ROWS = [f"{i},{i % 3},{i * i}\n" for i in range(12)]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def with_row(i: int, row: str) -> str:
    return HEADER + "".join([*ROWS[:i], row + "\n", *ROWS[i + 1 :]])


def test_read_csv(tmp_path: Path) -> None:
    dataset = read_csv(write(tmp_path / "data.csv", HEADER + "".join(ROWS)), "y")
    i = np.arange(12.0)
    assert_array_equal(dataset.X, np.stack([i, i % 3], axis=1))
    assert_array_equal(dataset.Y, i[:, None] ** 2)
    assert dataset.X.dtype == dataset.Y.dtype == np.float64
    assert dataset.feature_names == ("a", "b")
    assert dataset.target_name == "y"


def test_the_target_may_be_any_column(tmp_path: Path) -> None:
    dataset = read_csv(write(tmp_path / "data.csv", HEADER + "".join(ROWS)), "a")
    assert dataset.feature_names == ("b", "y")
    assert_array_equal(dataset.Y[:, 0], np.arange(12))


@pytest.mark.parametrize("prefix", ["\ufeff", "\n"], ids=["byte order mark", "blank line"])
def test_harmless_oddities(tmp_path: Path, prefix: str) -> None:
    text = prefix + "a, b ,y\n" + "".join(ROWS) + "\n\n"
    dataset = read_csv(write(tmp_path / "data.csv", text), "y")
    assert dataset.feature_names == ("a", "b")
    assert dataset.X.shape == (12, 2)


def test_compressed_csv(tmp_path: Path) -> None:
    plain = write(tmp_path / "data.csv", HEADER + "".join(ROWS))
    packed = tmp_path / "data.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert_array_equal(read_csv(packed, "y").X, read_csv(plain, "y").X)


def test_constant_column_is_dropped_with_a_warning(tmp_path: Path) -> None:
    rows = "".join(row.strip() + ",7\n" for row in ROWS)
    with pytest.warns(UserWarning, match=r"dropped the constant column\(s\) c"):
        dataset = read_csv(write(tmp_path / "data.csv", "a,b,y,c\n" + rows), "y")
    assert dataset.feature_names == ("a", "b")
    assert dataset.X.shape == (12, 2)


@pytest.mark.parametrize(
    "text, got, expected, remedy",
    [
        ("", "is empty", "a line of column names", "check how it was written"),
        (HEADER, "have 0 rows", "at least 10", "add rows"),
        (HEADER + "".join(ROWS[:9]), "have 9 rows", "at least 10", "add rows"),
        ("a,b,z\n" + "".join(ROWS), "columns are a, b, z", "'y'", "name one of these"),
        (
            (HEADER + "".join(ROWS)).replace(",", ";"),
            "columns are a;b;y",
            "'y'",
            "separated by commas",
        ),
        ("a,a,y\n" + "".join(ROWS), "more than one column named a", "different", "rename"),
        ("y\n" + "1\n2\n" * 9, "only the target", "at least one input", "add the inputs"),
        (with_row(4, "4,red,16"), "'b': 1 of 12 rows have text, the first is row 4 ('red')",
         "finite number in every row", "encode the column"),
        (with_row(4, "4,,16"), "'b': 1 of 12 rows have no value, the first is row 4 (",
         "finite number in every row", "fill the values in"),
        (with_row(7, "7"), "'b': 1 of 12 rows have no value, the first is row 7 (",
         "finite number in every row", "remove the rows"),
        (with_row(2, "2,1,inf"), "'y': 1 of 12 rows have an infinite value, the first is row 2 (",
         "finite number in every row", "remove the rows"),
        (with_row(3, "3,0,9,8"), "cannot be read", "as many values in each row", "check how"),
        ("a,b,y\n" + "".join("1," + row for row in ROWS), "cannot be read",
         "as many values in each row", "check how"),
        ("a,b,y\n" + "".join(f"{i},1,5\n" for i in range(12)), "'y' is 5.0 in every row",
         "differ", "choose another"),
        ("a,b,y\n" + "".join(f"1,2,{i}\n" for i in range(12)), "constant (a, b)",
         "at least one that varies", "add an informative"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*dropped the constant column:UserWarning")
def test_bad_files(tmp_path: Path, text: str, got: str, expected: str, remedy: str) -> None:
    with pytest.raises(ValueError) as error:
        read_csv(write(tmp_path / "data.csv", text), "y")
    for part in (got, expected, remedy):
        assert part in str(error.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist, expected a CSV file: check the name"):
        read_csv(tmp_path / "data.csv", "y")


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz"])
def test_file_that_is_no_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x81\xff,\xfe\n" * 20)
    with pytest.raises(ValueError, match=r"cannot be read .* expected a CSV file"):
        read_csv(tmp_path / name, "y")


def test_truncated_gzip(tmp_path: Path) -> None:
    packed = gzip.compress((HEADER + "".join(ROWS)).encode())
    (tmp_path / "data.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ValueError, match="cannot be read"):
        read_csv(tmp_path / "data.csv.gz", "y")


RAMP = np.arange(12.0)[:, None]


@pytest.mark.parametrize(
    "X, Y, got, expected, remedy",
    [
        (RAMP, RAMP[:, 0], "Y (12,)", "[N, 1]", "reshape"),
        (RAMP[:-1], RAMP, "X has shape (11, 1)", "[N, 1]", "reshape"),
        (np.hstack([RAMP, RAMP]), RAMP, "X has shape (12, 2)", "[N, 1]", "reshape"),
        (np.where(RAMP > 5, np.nan, RAMP), RAMP, "NaN", "finite numbers", "remove those rows"),
        (RAMP, np.where(RAMP > 5, np.inf, RAMP), "infinite", "finite numbers", "remove those"),
        (RAMP[:4], RAMP[:4], "4 rows", "at least 10", "add rows"),
        (RAMP, 0 * RAMP, "is 0.0 in every row", "differ", "choose another"),
    ],
)
def test_bad_dataset(X: np.ndarray, Y: np.ndarray, got: str, expected: str, remedy: str) -> None:
    with pytest.raises(ValueError) as error:
        Dataset(X, Y, ("x",), "y")
    for part in (got, expected, remedy):
        assert part in str(error.value)


def test_diabetes() -> None:
    dataset = load_example("diabetes")
    assert dataset.X.shape == (442, 10)
    assert dataset.Y.shape == (442, 1)
    assert dataset.feature_names[:3] == ("age", "sex", "bmi")
    assert_array_equal(dataset.X[0, :3], [59.0, 2.0, 32.1])  # years, code, kg/m²
    assert dataset.Y[0, 0] == 151.0


@pytest.mark.parametrize(
    "values, expected",
    [
        ([0, 1, 1], True),
        ([1.0, 2.0, np.nan], True),
        (["a", "b", None], True),
        ([True, False, True], True),
        (list(range(11)), False),
        ([0.5, 1.0, 1.0], False),
        (["1.5", "red", "2"], False),  # a slip among numbers
        ([0.0, np.inf, 1.5], False),
        ([5.0, 5.0], False),
    ],
)
def test_what_looks_like_classes(values: list[object], expected: bool) -> None:
    assert looks_like_classes(pd.Series(values)) is expected


@pytest.mark.parametrize(
    "labels, classes",
    [
        (["spam", "ham ", "eggs"], ("eggs", "ham", "spam")),
        ([7, -1, 3], ("-1", "3", "7")),
        ([2.5, 1, 0.5], ("0.5", "1", "2.5")),
        (["True", "False"], ("False", "True")),
    ],
)
def test_classes_are_numbered_in_order(
    tmp_path: Path, labels: list[object], classes: tuple[str, ...]
) -> None:
    column = [labels[i % len(labels)] for i in range(12)]
    text = "a,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(column))
    dataset = read_csv(write(tmp_path / "data.csv", text), "y", "classification")
    assert dataset.classes == classes
    assert [classes[int(y)] for y in dataset.Y[:, 0]] == [str(label).strip() for label in column]


@pytest.mark.parametrize(
    "labels, got, expected, remedy",
    [
        (["a"] * 6 + ["b"] * 5 + ["c"], "class 'c' of 'y' has 1 row(s)", "at least 2", "join"),
        (["a"] * 11 + [""], "'y': 1 of 12 rows have no value", "in every row", "fill the"),
        (["a"] * 12, "is a in every row", "differ", "choose another"),
    ],
)
def test_bad_classes(
    tmp_path: Path, labels: list[str], got: str, expected: str, remedy: str
) -> None:
    text = "a,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels))
    with pytest.raises(ValueError) as error:
        read_csv(write(tmp_path / "data.csv", text), "y")
    for part in (got, expected, remedy):
        assert part in str(error.value)


def test_classes_of_numbers_beyond_the_names() -> None:
    Y = np.arange(12.0)[:, None] % 3
    with pytest.raises(ValueError, match=r"Y has the class 2, expected 0 to 1 for 2 names"):
        Dataset(Y, Y, ("x",), "y", ("a", "b"))


def test_classes_of_scikit_learn() -> None:
    for dataset, rows, inputs, classes in (
        (load_example("breast-cancer"), 569, 30, ("malignant", "benign")),
        (load_example("wine"), 178, 13, ("class_0", "class_1", "class_2")),
    ):
        assert dataset.X.shape == (rows, inputs)
        assert dataset.classes == classes


def rows(num_rows: int, labels: np.ndarray | None = None) -> Dataset:
    X = np.arange(float(num_rows))[:, None]
    if labels is None:
        return Dataset(X, X, ("x",), "y")
    names = tuple(f"class {label:g}" for label in np.unique(labels))
    return Dataset(X, labels[:, None], ("x",), "y", names)


def test_split_keeps_the_proportions_of_classes() -> None:
    labels = np.repeat([0.0, 1.0, 2.0], [40, 8, 12])
    split = split_rows(rows(60, labels), 0.25, 0)
    assert_array_equal(np.bincount(labels[split.test].astype(int)), [10, 2, 3])
    with pytest.raises(ValueError, match=r"holds out 2 of 60 rows, expected at least 3"):
        split_rows(rows(60, labels), 0.03, 0)


def test_split_is_a_seeded_partition() -> None:
    split = split_rows(rows(25), 0.2, seed=3)
    assert len(split.test) == 5
    assert_array_equal(np.sort(np.concatenate(split)), np.arange(25))
    for part in split:
        assert np.all(np.diff(part) > 0)
    assert_array_equal(split.test, split_rows(rows(25), 0.2, seed=3).test)
    assert not np.array_equal(split.test, split_rows(rows(25), 0.2, seed=4).test)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.2, 20.0, float("nan"), 0.01, 0.99])
def test_bad_test_fraction(fraction: float) -> None:
    with pytest.raises(ValueError) as error:
        split_rows(rows(20), fraction, seed=0)
    for part in (f"fraction of {fraction}", "expected at least 2 rows", "choose a fraction"):
        assert part in str(error.value)
