"""The command itself, nothing replaced: each example, and a small table of each kind of
target.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from compare.small_comparison import KINDS, real, run
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.compare.cli import EXAMPLES
from gpflow_pep.estimators import load_estimator

#: Whose densities need quantiles that NumPy has not; and that have tests of their
#: scores elsewhere.
WITHOUT_SCORER = ("counts", "two targets", "limits")
TRAINED = ("default", "alpha", "SVGP", "exact GP")
Z95 = 1.6448536269514722


def test_examples_have_their_target() -> None:
    for make in EXAMPLES.values():
        table, target = make()
        assert target in table and table.shape[0] > 100 and table.notna().all(axis=None)


#: The kinds of the fast tests: a table to clean, three classes, and several targets.
FAST = ("numbers", "messy", "three classes", "two targets")


@pytest.fixture(
    params=[pytest.param(k, marks=[pytest.mark.slow] * (k not in FAST)) for k in KINDS]
)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_model_is_fitted_in_every_part(kind: str) -> None:
    comparison = real(kind).comparison
    models = real(kind).models
    names = list(comparison.candidates)
    parts = 1 + ("--folds 2" in KINDS[kind].options)
    steps = comparison.settings.max_iterations * len(real(kind).targets)
    assert names == models or (kind in EXAMPLES and {*models} < {*names})
    assert [(fit.part, fit.model) for fit in comparison.fits] == [
        (part, model) for part in range(1, parts + 1) for model in names
    ]
    for fit in comparison.fits:
        assert np.all(np.isfinite([*fit.scores.values()])) and not fit.failed
        assert fit.seconds > 0.0
        assert (1 <= fit.iterations <= steps) == fit.model.startswith(TRAINED)
        assert np.isfinite(fit.log_z) == fit.model.startswith("alpha")
    assert comparison.left_out == ()
    for held_out in comparison.held_out.values():
        if parts == 2 and kind != "two targets":  # each row once
            assert sorted(held_out.index) == list(range(len(real(kind).table)))
            assert_array_equal(
                held_out["part"].value_counts(), [len(held_out) // 2] * 2
            )
    final = comparison.final
    assert final is not None and final.part == 0 and final.model == comparison.best


def test_scores_are_those_of_the_predictions(kind: str) -> None:
    """Of classes by their probabilities; of numbers all but the default are one
    Gaussian.
    """
    table, targets, _, _, _, _, comparison, _ = real(kind)
    if kind in WITHOUT_SCORER:
        return
    y = table[targets[0]]
    for fit in comparison.fits:
        held_out = comparison.held_out[fit.model].query("part == @fit.part")
        true = held_out["true"]
        density = held_out["log_density"]
        assert_array_equal(true, y.loc[held_out.index])
        assert_allclose(fit.scores["nlpd"], -np.mean(density), rtol=1e-8)
        if "predicted" in held_out:
            labels = [name[2:-1] for name in held_out if name.startswith("p(")]
            p = held_out[[f"p({label})" for label in labels]].to_numpy()
            assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
            assert_allclose(
                density, np.log(p[range(len(p)), [*map(labels.index, true)]])
            )
            assert list(held_out["predicted"]) == [
                labels[c] for c in np.argmax(p, axis=1)
            ]
            assert_allclose(fit.scores["error"], np.mean(held_out["predicted"] != true))
            continue
        mean, sd, low, high = (
            held_out[n] for n in ("mean", "sd", "lower_90", "upper_90")
        )
        assert_allclose(fit.scores["rmse"], np.sqrt(np.mean((true - mean) ** 2)))
        assert_allclose(fit.scores["coverage"], np.mean((low <= true) & (true <= high)))
        if not fit.model.startswith("default"):
            assert_allclose(density, scipy.stats.norm(mean, sd).logpdf(true), rtol=1e-8)
            assert_allclose([high - mean, mean - low], [Z95 * sd] * 2)


def test_what_is_written_predicts(kind: str, tmp_path: Path) -> None:
    table, targets, _, _, out, result, comparison, _ = real(kind)
    scores = pd.read_csv(out / "folds.csv").set_index("model")
    assert {*scores.index} == {*comparison.candidates}
    assert np.isfinite(scores[["nlpd", "seconds"]]).all(axis=None)
    assert pd.read_csv(out / "metrics.csv")["nlpd"].notna().all()
    page = (out / "report.html").read_text()
    assert len(page) > 10_000
    for words in (result.output, page):
        rows = comparison.model[-1].rows_held_.training
        assert f"{rows} of {rows} training rows are in the folder model: " in words
        no_scorer = (
            "There is no folder scorer for predictions without TensorFlow: " in words
        )
        assert no_scorer == (kind in WITHOUT_SCORER) != (out / "scorer").exists()
    model = load_estimator(out / "model")
    rows = table.drop(columns=targets).iloc[1::-1, ::-1]  # in another order
    rows.to_csv(tmp_path / "new.csv", index=False)
    known = rows[list(model.feature_names_in_)]
    expected = model.predict(known)
    for folder in ("model", "scorer")[: 1 + (out / "scorer").exists()]:
        result = run(
            "predict", out / folder, tmp_path / "new.csv", "--out", tmp_path / "p.csv"
        )
        assert result.exit_code == 0, result.output
        found = pd.read_csv(tmp_path / "p.csv")
        if "predicted" in found:
            assert list(found["predicted"]) == list(expected)
            assert_allclose(
                found.filter(regex=r"^p\("), model.predict_proba(known), rtol=1e-8
            )
            assert [*found][:2] == ["row", "predicted"] and [*found][-1] == "unusual"
        else:
            means = found.filter(regex="^mean").to_numpy().reshape(expected.shape)
            assert_allclose(means, expected, rtol=1e-8)
            sd = found.filter(regex="^sd").to_numpy().reshape(expected.shape)
            assert_allclose(sd, model.predict(known, return_std=True)[1], rtol=1e-7)


def monthly() -> pd.DataFrame:
    """Sales of 40 months that grow, with a season."""
    rng = np.random.default_rng(0)
    months = pd.date_range("2021-01-01", periods=40, freq="MS")
    season = np.sin(2.0 * np.pi * np.arange(40) / 12.0)
    sales = 100.0 + np.arange(40) + 10.0 * season + rng.standard_normal(40)
    price = np.round(rng.uniform(1.0, 2.0, 40), 2)
    return pd.DataFrame(
        {"month": months.strftime("%b %Y"), "price": price, "sales": np.round(sales, 2)}
    )


def patients() -> pd.DataFrame:
    """Twelve people with four visits each."""
    rng = np.random.default_rng(1)
    person = np.repeat(np.arange(12), 4)
    dose = np.round(rng.uniform(0.0, 3.0, 48), 2)
    answer = np.sin(dose) + 0.5 * rng.standard_normal(12)[person]
    return pd.DataFrame(
        {
            "person": np.char.add("P", person.astype(str)),
            "dose": dose,
            "answer": np.round(answer + 0.1 * rng.standard_normal(48), 3),
        }
    )


@pytest.mark.parametrize(
    ("table", "target", "options", "new"),
    [
        pytest.param(
            monthly(),
            "sales",
            "--time-column month --horizon 3 --splits 1",
            pd.DataFrame({"month": ["May 2024", "Jun 2024"], "price": [1.2, 1.4]}),
            id="a forecast of months",
        ),
        pytest.param(
            patients(),
            "answer",
            "--group-column person --folds 2",
            pd.DataFrame({"dose": [0.5, 1.5]}),
            id="groups",
        ),
    ],
)
def test_time_and_groups_from_a_table_to_predictions(
    table: pd.DataFrame, target: str, options: str, new: pd.DataFrame, tmp_path: Path
) -> None:
    """Several targets are one of the kinds above."""
    table.to_csv(tmp_path / "data.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    options += " --alphas 0.5 --inducing 5 --max-iterations 5 --no-details --jobs 1"
    paths = tmp_path / "data.csv", "--out", tmp_path / "out"
    result = run("compare", *paths, "--target", target, *options.split())
    assert result.exit_code == 0, result.output
    folder = tmp_path / "out" / "model"
    result = run(
        "predict", folder, tmp_path / "new.csv", "--out", tmp_path / "predictions.csv"
    )
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "predictions.csv")
    mean = found.filter(regex="^mean").to_numpy()[:, 0]
    sd = found.filter(regex="^sd").to_numpy()[:, 0]
    assert len(found) == 2 and np.isfinite(mean).all() and (sd > 0.0).all()
    # Better than the mean of all rows would be.
    if target == "sales":
        assert abs(mean - (140.0 + 10.0 * np.sin(2.0 * np.pi * 4.5 / 12.0))).max() < 15
    else:
        assert abs(mean - np.sin([0.5, 1.5])).max() < 0.6
