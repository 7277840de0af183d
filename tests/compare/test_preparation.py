"""From a table on disk to predictions, in one pipeline."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import run
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline

from gpflow_pep.compare import clean, make_preparation, predict_table, read_table
from gpflow_pep.estimators import PEPRegressor, export_numpy, save_estimator
from gpflow_pep.scoring import load_scorer
from gpflow_pep.tables import Format, encodings, read_cells


def test_new_tables_are_read_as_the_table_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_training: None
) -> None:
    """Numbers, dates, units, marks and the encoding; also of two rows; and each cell once."""
    rng = np.random.default_rng(0)
    size, town = rng.integers(700, 4000, 40), rng.choice(["Łódź", "Köln"], 40)
    born = pd.Timestamp("1940-01-01") + pd.to_timedelta(rng.integers(0, 20000, 40), "D")
    columns = {
        "size": [f"{value:,}" for value in size],
        "rate": [f"{i % 7}.5 %" if i % 9 else "k.A." for i in range(40)],
        "born": born.strftime("%m/%d/%y"),
        "town": np.where(np.arange(40) % 8, town, "-"),
        "pair": [f"{100 + i}/{60 + i % 7}" for i in range(40)],
    }
    table = pd.DataFrame(columns).assign(y=size / 100.0 + 3.0 * (town == "Köln"))
    table.to_csv(tmp_path / "t.csv", sep=";", index=False, encoding="cp1250")
    frame = read_table(tmp_path / "t.csv", encoding="cp1250")
    X, y, _, _, formats, *_ = clean(frame, "y", missing=["k.A.", "-"])
    assert {form.pattern[:3] for form in formats.values()} == {"", "mdy"}
    estimator = PEPRegressor(num_inducing=5, alpha=0.5, random_state=0)
    model = make_pipeline(make_preparation(X, formats), estimator).fit(X, y)
    assert model[0].conventions.encoding == "cp1250"
    save_estimator(tmp_path / "model", model)
    export_numpy(tmp_path / "scorer", model)
    new = "size;rate;born;town;pair\n1,555;k.A.;01/02/45;Łódź;115/65\n"
    new += "1,999;2.5 %;03/04/70;-;120/62\n"
    (tmp_path / "new.csv").write_text(new, encoding="cp1250")
    known = {
        "size": [1555.0, 1999.0], "rate": [np.nan, 2.5], "town": ["Łódź", None],
        "born": pd.to_datetime(["1945-01-02", "1970-03-04"]),
        "pair (1 of 2)": [115.0, 120.0], "pair (2 of 2)": [65.0, 62.0],
    }  # fmt: skip
    expected = model.predict(pd.DataFrame(known)[list(X)])
    for folder in ("model", "scorer"):
        out = tmp_path / f"{folder}.csv"
        result = run("predict", tmp_path / folder, tmp_path / "new.csv", "--out", out)
        assert result.exit_code == 0, result.output
        written = pd.read_csv(out)
        assert_allclose(written["mean"], expected, rtol=1e-9)
        assert "new" not in "".join(written["unusual"].fillna(""))
    read: list[str] = []

    def counted(column: "pd.Series[float]", form: Format) -> "pd.Series[float]":
        read.append(str(column.name))
        return read_cells(column, form)

    monkeypatch.setattr(encodings, "read_cells", counted)
    for fitted in (model, load_scorer(tmp_path / "scorer")):
        predict_table(fitted, frame[list(columns)])
        assert sorted(read) == sorted(X)
        read.clear()


def test_formats_are_found_out() -> None:
    X = pd.DataFrame({"a": ["1,5", "2"], "b": ["u", "v"], "c": pd.to_datetime(["2020", "2021"])})
    kinds = {name: form.kind for name, form in make_preparation(X).formats.items()}
    assert kinds == {"a": "number", "b": "text", "c": "date"}
    with pytest.raises(ValueError, match=r"column 'd': got neither numbers, dates nor text"):
        make_preparation(X.assign(d=[[1], [2]]))


def test_later_tables_are_read_by_their_own_marks(tmp_path: Path) -> None:
    """Of numbers with units and thousands too, which are read by the formats of the model."""

    def rows(*cells: str) -> Path:
        lines = ["mass;pay;y", *(f"{cell} kg;{cell};{i % 5}" for i, cell in enumerate(cells))]
        (tmp_path / "t.csv").write_text("\n".join(lines))
        return tmp_path / "t.csv"

    data = clean(read_table(rows(*(f"{1000.5 + 37 * i:,.2f}" for i in range(12)))), "y")
    encoder = make_preparation(data.X, data.formats).fit(data.X)

    def read(cell: str, **options: str) -> list[float]:
        table = read_table(rows(cell, cell), **options)[["mass", "pay"]]  # type: ignore[arg-type]
        assert encoder.unusual(table)[0].count("is below all") == 2 * (table["pay"] == 1.5).all()
        return [float(number) for number in encoder.transform(table)[0]]

    assert read("1,200") == [1200.0, 1200.0]  # as in the first table
    assert read("1,500", decimal=",") == read("1,500", thousands=".") == [1.5, 1.5]
    assert read("1.200,25") == [1200.25, 1200.25]  # which can be read in one way alone
    assert read("1'200", thousands="'") == [1200.0, 1200.0]
    with pytest.raises(ValueError, match=r"'1,200 kg' .* with '\.' as decimal point"):
        read("1,200", thousands="'")
