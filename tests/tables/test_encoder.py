"""Tables made into numbers."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from gpflow_pep.tables import Format, TableEncoder

FORMATS = {"size": Format("number"), "colour": Format("text"), "day": Format("date")}


def table(num_rows: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    colour = pd.Series(rng.choice(["red", "blue", "green"], num_rows))
    colour[0] = "mauve"
    size = pd.Series(rng.normal(size=num_rows))
    size[3] = np.nan
    colour[5] = None
    day = pd.Series(pd.date_range("2020-01-01", periods=num_rows, freq="9h"))
    return pd.DataFrame({"size": size, "colour": colour, "day": day})


def test_against_scikit_learn() -> None:
    X = table().drop(columns="day")
    new = X.sample(frac=1.0, random_state=1).reset_index(drop=True)
    new.loc[0, "colour"] = "unheard of"
    encoder = TableEncoder({name: FORMATS[name] for name in X}).fit(X)
    numbers = SimpleImputer(strategy="median", add_indicator=True)
    rare = {"min_frequency": 2, "handle_unknown": "infrequent_if_exist"}
    words = OneHotEncoder(**rare, sparse_output=False)
    theirs = make_column_transformer((numbers, ["size"]), (words, ["colour"]))
    theirs.fit(X.fillna({"colour": "~missing"}))
    # Theirs has a column for the missing value only if it is frequent.
    ours = pd.DataFrame(encoder.transform(new), columns=encoder.get_feature_names_out())
    colours = [f"colour={name}" for name in ("blue", "green", "red", "(other)")]
    assert list(ours) == ["size", "size missing", *colours, "colour missing"]
    expected = theirs.transform(new.fillna({"colour": "~missing"}))
    ours["colour=(other)"] += ours.pop("colour missing")
    assert_array_equal(ours, expected)


def test_dates() -> None:
    X = table()[["day"]]
    encoder = TableEncoder({"day": Format("date")}).fit(X)
    days = (X["day"] - pd.Timestamp(0)).dt.total_seconds().to_numpy() / 86400.0
    angle = 2.0 * np.pi * days
    waves = [wave(each) for each in (angle / 7.0, angle) for wave in (np.sin, np.cos)]
    expected = np.stack([days, *waves], axis=1)
    assert_allclose(encoder.transform(X), expected, rtol=1e-12)
    for periods, freq, cycles in (
        (40, "9h", ["week", "day"]),
        (9, "180D", ["year"]),
        (30, "1D", ["week"]),
        (13, "1D", []),
        (30, "7D", []),
        (60, "3D", ["week"]),
        (40, "5D", []),
        (500, "1h", ["week", "day"]),
        (900, "1D", ["year", "week"]),
    ):
        dates = pd.DataFrame(
            {"day": pd.date_range("2024-01-01", periods=periods, freq=freq)}
        )
        names = [
            f"day: {wave} of {cycle}" for cycle in cycles for wave in ("sine", "cosine")
        ]
        assert list(encoder.fit(dates).get_feature_names_out()) == ["day", *names]
    X.loc[3, "day"] = pd.NaT
    assert encoder.fit(X).encodings_["day"].median == np.median(np.delete(days, 3))
    # Of a row in which all is missing nothing is known.
    assert_array_equal(
        np.isnan(encoder.transform(X)).all(axis=1), np.arange(len(X)) == 3
    )


def test_cells_are_read_as_they_were() -> None:
    formats = {"a": Format("number", ",", "."), "b": Format("date", pattern="dmy")}
    encoder = TableEncoder(formats)
    text = pd.DataFrame({"a": ["1.234,5", "2,5"], "b": ["31.01.1970", "02.01.1970"]})
    assert_array_equal(encoder.fit_transform(text), [[1234.5, 30.0], [2.5, 1.0]])
    read = pd.DataFrame(
        {"a": [1234.5, 2.5], "b": pd.to_datetime(["1970-01-31", "1970-01-02"])}
    )
    assert_array_equal(encoder.transform(read), encoder.transform(text))


def test_columns_are_found_by_name() -> None:
    X = table()
    encoder = clone(TableEncoder(FORMATS)).fit(X[["day", "colour", "size"]])
    assert list(encoder.feature_names_in_) == list(FORMATS)
    assert_array_equal(
        encoder.transform(X), encoder.transform(X[["colour", "day", "size"]])
    )
    assert encoder.set_output(transform="pandas").transform(X).columns[0] == "size"


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda X: X.drop(columns="size"), r"no column 'size' among 'colour', 'day'"),
        (
            lambda X: X.rename(columns={"size": "Size"}),
            r"'size' among 'Size', .* Add or rename",
        ),
        (
            lambda X: X.assign(more=1),
            r"got the columns 'more', expected .* no others. Select the",
        ),
        (
            lambda X: X.set_axis(["size", "size", "day"], axis=1),
            r"one column 'size' among",
        ),
        (lambda X: X.to_numpy(), r"got ndarray, expected a table"),
        (lambda X: X.assign(size=np.inf), r"column 'size': got inf in row 0"),
        (lambda X: X.assign(size=1e200), r"got 1e\+200 in row 0 .* below 1e\+100"),
        (lambda X: X.assign(size="big"), r"column 'size': got 'big' in row 0"),
        (lambda X: X.assign(day="soon"), r"column 'day': got 'soon' in row 0"),
    ],
)
def test_other_tables_are_refused(change: Any, message: str) -> None:
    X = table()
    encoder = TableEncoder(FORMATS).fit(X)
    with pytest.raises(ValueError, match=message):
        encoder.transform(change(X))


def test_rare_values_share_a_column() -> None:
    words = pd.DataFrame({"w": [f"w{i % 30:02}" for i in range(90)] + ["once"]})
    encoder = TableEncoder({"w": Format("text")}, max_categories=5).fit(words)
    assert encoder.encodings_["w"].categories == ("w00", "w01", "w02", "w03", "w04")
    assert_array_equal(encoder.transform(words).sum(axis=1), 1.0)


def test_no_rows_and_no_values_and_polars() -> None:
    X = table().assign(size=np.nan)
    encoder = TableEncoder(FORMATS).fit(X)
    assert np.all(encoder.transform(X)[:, 0] == 0.0)
    assert encoder.transform(X.head(0)).shape == (
        0,
        len(encoder.get_feature_names_out()),
    )
    polars = pytest.importorskip("polars")
    assert_array_equal(encoder.transform(polars.from_pandas(X)), encoder.transform(X))


def test_what_is_unusual_is_listed() -> None:
    X = table()
    encoder = TableEncoder(FORMATS).fit(X)
    assert encoder.unusual(X) == [""] * len(X)
    new = X.iloc[:6].reset_index(drop=True)
    new.loc[0, "colour"] = "mauve"  # rare, but not new
    new.loc[1, "colour"] = "unheard of"
    new.loc[2, "size"] = X["size"].max() + 0.11 * np.ptp(X["size"].dropna())
    new.loc[3, "size"] = X["size"].max() + 0.09 * np.ptp(X["size"].dropna())
    new.loc[4, ["size", "day"]] = [-100.0, pd.NaT]
    middle = "colour 'unheard of' is new", "size is above all", ""
    assert encoder.unusual(new) == [
        "",
        *middle,
        "size is below all; day is missing",
        "",
    ]
    # As an earlier version remembered them.
    for (
        name,
        learnt,
    ) in encoder.encodings_.items():
        encoder.encodings_[name] = learnt._replace(limits=(), rare=())
    assert encoder.unusual(new) == [""] * 4 + ["day is missing", ""]
