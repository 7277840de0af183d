"""What is done unless a setting gives one model: several models, mixed and recalibrated
by rows left out.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.forms import check_forms, saved, scorer
from gpflow.base import AnyNDArray
from gpflow.kernels import Matern52, SquaredExponential, Sum
from gpflow.models import GPR
from numpy.testing import assert_allclose
from scipy.stats import kstest, norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_pep.distributions import Recalibration
from gpflow_pep.engine.left_out_rows import (
    may_be_trials,
    numbers_of_copies,
    weights_of_means,
)
from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.estimators.recipe import regression as stack
from gpflow_pep.estimators.recipe.recipe import settings_of_one_model
from gpflow_pep.estimators.single import model as base
from gpflow_pep.estimators.single import regression, trainer
from gpflow_pep.estimators.single.exact import fit_exact
from gpflow_pep.estimators.single.inputs import fit_yeo_johnson
from gpflow_pep.estimators.single.regression import SingleRegressor
from gpflow_pep.estimators.single.settings import ModelSettings
from gpflow_pep.models import PEPRegression
from gpflow_pep.training import ensemble_weights
from gpflow_pep.training.fitting import points
from gpflow_pep.training.fitting.objectives import near_lengthscales

RNG = np.random.default_rng(0)
X = np.exp(RNG.standard_normal((60, 2)))
Y = np.exp(np.sin(X[:, 0]) + 0.2 * X[:, 1] ** 0.5 * RNG.standard_normal(60))
ROWS = np.exp(RNG.standard_normal((9, 2)))


@pytest.fixture(scope="module")
def stacked() -> PEPRegressor:
    return PEPRegressor(random_state=0).fit(X, Y)


def left_out(part: SingleRegressor) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Means and variances of warped targets, each from the others by the
    dense formula.
    """
    model: Any = part.model
    inputs, t = (np.asarray(each) for each in model.data)
    noise = np.asarray(model.likelihood.variance_at(inputs))[:, 0]
    inverse = np.linalg.inv(np.asarray(model.kernel(inputs)) + np.diag(noise))
    variance = 1.0 / np.diag(inverse)
    return t[:, 0] - variance * (inverse @ t[:, 0]), variance, t[:, 0]


def test_components_are_exact_and_weighted_by_rows_left_out(
    stacked: PEPRegressor,
) -> None:
    parts = stacked.components_
    assert [part.settings.kernel for part in parts] == ["additive", "rbf", "matern52"]
    plain = "constant", False, "standard"
    for part, settings in zip(
        parts, (("varying", True, "yeo-johnson"), plain, plain), strict=True
    ):
        model = part.model
        own = part.settings
        assert type(model) is PEPRegression and not model.inducing_variable.Z.trainable
        assert (own.noise, own.warp, own.inputs) == settings
    densities = []
    means = []
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(60)
    for part in parts:
        mean, variance, t = left_out(part)
        inside = np.exp(part.units.tails) * np.arcsinh((Y - Y.mean()) / Y.std())
        slope = np.cosh(inside - part.units.skew) * np.exp(part.units.tails)
        slope /= np.hypot(1.0, (Y - Y.mean()) / Y.std()) * Y.std()
        squares = (t - mean) ** 2 / variance
        densities.append(
            -0.5 * (squares + np.log(2.0 * np.pi * variance)) + np.log(slope)
        )
        at_nodes = mean + np.sqrt(variance) * nodes[:, None]
        values = np.sinh(
            np.exp(-part.units.tails) * (np.arcsinh(at_nodes) + part.units.skew)
        )
        means.append(node_weights @ values / node_weights.sum() * Y.std() + Y.mean())
    weights = ensemble_weights(np.stack(densities), prior_weight=3.0 / 60.0)
    assert_allclose(stacked.weights_, weights, rtol=1e-3)
    assert_allclose(
        stacked.mean_weights_, weights_of_means(np.stack(means), Y, weights), rtol=1e-2
    )
    heaviest = stacked.components_[int(np.argmax(weights))]
    for name in ("model", "kernel", "likelihood", "record"):
        assert getattr(stacked, f"{name}_") is getattr(heaviest, name)
    assert stacked.n_iter_ == heaviest.num_iterations
    # These targets need the full model.
    assert densities[0].mean() > densities[1].mean() + 0.1


def test_predictions_follow_one_distribution(stacked: PEPRegressor) -> None:
    row = ROWS[:1]
    grid = np.linspace(-5.0, 15.0, 20_001)
    density = np.exp(stacked.log_densities(np.repeat(row, len(grid), axis=0), grid))
    below = (
        np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))]) * 1e-3
    )
    assert_allclose(below[-1], 1.0, atol=1e-4)
    q = np.array([0.05, 0.5, 0.9])
    quantiles = stacked.predict_quantiles(row, q)[0]
    assert_allclose(np.interp(quantiles, grid, below), q, atol=1e-4)
    assert_allclose(stacked.predict_interval(row)[0, 0], quantiles[0], rtol=1e-10)
    means = [part.predictive(row).moments()[0][0] for part in stacked.components_]
    assert_allclose(stacked.predict(row)[0], stacked.mean_weights_ @ means, rtol=1e-10)
    draws = stacked.sample_y(row, 4000, random_state=1)[0]
    assert kstest(draws, lambda y: np.interp(y, grid, below)).pvalue > 1e-3
    f, sd = stacked.predict_f(ROWS, return_std=True)
    _, of_y = stacked.predict(ROWS, return_std=True)
    assert f.shape == sd.shape == (9,) and (sd < of_y).all()
    with pytest.raises(
        ValueError, match="return_cov: got True for an estimator that mixes"
    ):
        stacked.predict(ROWS, return_cov=True)


def test_draws_are_recalibrated(
    stacked: PEPRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a recalibration that is far from none: these rows' own is near it."""
    monkeypatch.setattr(stacked.mixture_, "recalibration", Recalibration(4.0, 2.0))
    q = np.array([0.05, 0.2, 0.5, 0.8, 0.95])
    quantiles = stacked.predict_quantiles(ROWS[:1], q)
    draws = stacked.sample_y(ROWS[:1], 4000, random_state=1)
    below = np.mean(draws[0, :, None] < quantiles, axis=0)
    assert_allclose(below, q, atol=0.03)  # four standard errors


def test_all_forms_predict_the_same(stacked: PEPRegressor, tmp_path: Path) -> None:
    rows = np.vstack([ROWS, np.full((1, 2), np.nan)])
    loaded, pickled, _ = check_forms(stacked, tmp_path, rows, np.linspace(0.5, 2.0, 10))
    assert_allclose(loaded.sample_y(ROWS, 3), stacked.sample_y(ROWS, 3), rtol=1e-6)
    for part in pickled.components_:
        part._numpy_components = ()  # so that TensorFlow predicts
    expected = stacked.predict(rows, return_std=True)
    assert_allclose(pickled.predict(rows, return_std=True), expected, rtol=1e-7)


def test_five_lines_describe_it(no_training: None, capsys: Any) -> None:
    fitted = PEPRegressor(verbose=True).fit(X, Y)
    lines = fitted.summary().splitlines()
    assert len(lines) == 5 and capsys.readouterr().err.splitlines() == lines
    for line, w, u in zip(lines[1:4], fitted.weights_, fitted.mean_weights_):
        assert f"; weight {w:.2f} in the density, {u:.2f} in the mean." in line
    assert f"these rows: {fitted.recalibration_.scale:.2f} times as wide" in lines[4]


ONE: dict[str, tuple[dict[str, Any], str]] = {
    "kernel": ({"kernel": "matern32"}, "kernel='matern32'"),
    "own kernel": ({"kernel": Matern52()}, "kernel"),
    "alpha": ({"alpha": 0.5}, "alpha=0.5"),
    "num_inducing": ({"num_inducing": 4}, "num_inducing=4"),
    "inducing": ({"inducing": X[:4]}, "inducing"),
    "likelihood": ({"likelihood": "student_t"}, "likelihood='student_t'"),
    "objective": ({"objective": "loo"}, "objective='loo'"),
    "batch_size": ({"batch_size": None}, "batch_size=None"),
    "several": (
        {"kernel": "matern12", "noise": "varying"},
        "kernel='matern12', num_inducing=4 and alpha=0.5",
    ),
    "additive kernel as it is": (
        {"kernel": "additive", "standardize": False},
        "kernel='additive', num_inducing=4, alpha=0.5 and standardize=False",
    ),
}


@pytest.mark.filterwarnings("ignore:Training ended")
@pytest.mark.parametrize("name", ONE)
def test_settings_that_give_one_model(name: str, no_training: None) -> None:
    settings, words = ONE[name]
    assert settings_of_one_model(ModelSettings(**settings))
    options = {"num_inducing": 4, "alpha": 0.5, "random_state": 0}
    fitted = PEPRegressor(**{**options, **settings}).fit(X, Y)
    assert len(fitted.components_) == 1 and fitted.weights_.tolist() == [1.0]
    line = fitted.summary()
    why = line.split(":")[0]
    assert why.startswith("One model, because ") and why.endswith(" are set")
    assert words in why
    assert line.endswith(" and 4 inducing points, power 0.5.")


ROUGH = "matern52", "constant", False, "standard"
MIXED: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "kernel": (
        {"kernel": "rbf"},
        [("rbf", "varying", True, "yeo-johnson"), ("rbf", *ROUGH[1:])],
    ),
    "additive kernel": (
        {"kernel": "additive"},
        [("additive", "varying", True, "yeo-johnson"), ("additive", *ROUGH[1:])],
    ),
    "noise": (
        {"noise": "varying"},
        [
            ("additive", "varying", True, "yeo-johnson"),
            ("rbf", "varying", *ROUGH[2:]),
            ("matern52", "varying", *ROUGH[2:]),
        ],
    ),
    "warp and inputs": (
        {"warp": False, "inputs": "yeo-johnson"},
        [
            ("additive", "varying", False, "yeo-johnson"),
            ("rbf", "constant", False, "yeo-johnson"),
            ("matern52", "constant", False, "yeo-johnson"),
        ],
    ),
    "units as they are": ({"standardize": False}, [("rbf", *ROUGH[1:]), ROUGH]),
    "one lengthscale": (
        {"ard": False},
        [("additive", "varying", True, "yeo-johnson"), ("rbf", *ROUGH[1:]), ROUGH],
    ),
    "lengthscales alike": (
        {"ard": 0.7, "likelihood": "log_normal"},
        [("additive", "varying", True, "yeo-johnson"), ("rbf", *ROUGH[1:]), ROUGH],
    ),
    "all": (
        {
            "kernel": "matern52",
            "noise": "constant",
            "warp": False,
            "inputs": "standard",
        },
        [ROUGH],
    ),
}


@pytest.mark.filterwarnings("ignore:Training ended")
@pytest.mark.parametrize("name", MIXED)
def test_settings_that_all_models_take(name: str) -> None:
    settings, expected = MIXED[name]
    rows = slice(30)
    fitted = PEPRegressor(**settings, max_iterations=2).fit(X[rows], Y[rows])
    chosen = [part.settings for part in fitted.components_]
    found = [(own.kernel, own.noise, own.warp, own.inputs) for own in chosen]
    assert found == expected
    for part in fitted.components_:
        own = part.settings
        assert own.inducing == "rows" and own.ard == settings.get("ard", True)
        (scales,) = np.atleast_2d(_main(part.kernel).lengthscales.numpy())
        assert len(scales) == (1 if settings.get("ard") is False else 2)
        assert type(part.model) is PEPRegression
    assert ", all models with " in fitted.summary().splitlines()[0]
    assert np.isfinite(fitted.predict_interval(ROWS)).all()


@pytest.mark.parametrize(
    "kernel, steps", [("auto", [50, 15, 15]), ("rbf", [50, 15]), ("additive", [50, 50])]
)
def test_additive_components_have_the_steps_of_the_full_one(
    kernel: str, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_step(
        X: Any, y: Any, *start: Any, max_iterations: int, **options: Any
    ) -> Any:
        theta, record = fit_exact(X, y, *start, max_iterations=1, **options)
        return theta, record._replace(iterations=max_iterations)

    monkeypatch.setattr(regression, "fit_exact", one_step)
    fitted = PEPRegressor(kernel).fit(X[:30], Y[:30])
    assert [part.num_iterations for part in fitted.components_] == steps


def _main(kernel: Any) -> Any:
    return getattr(kernel, "kernels", [kernel])[0]


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_units_as_they_are_change_nothing_but_the_mean(kernel: str) -> None:
    """Targets of mean 0 and standardised inputs, in other units: the same model."""
    inputs = (X - X.mean(axis=0)) / X.std(axis=0)
    y = (Y - Y.mean()) / Y.std()
    settings: dict[str, Any] = {"inducing": "rows", "kernel": kernel}
    standard = PEPRegressor(**settings).fit(inputs, y)
    scale = np.array([1e4, 1e-3])
    level = 2e3
    own = PEPRegressor(**settings, standardize=False).fit(scale * inputs, level * y)
    rows = ROWS - 1.0
    mean, sd = standard.predict(rows, return_std=True)
    expected = level * mean, level * sd
    found = own.predict(scale * rows, return_std=True)
    assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * level)  # but for jitter
    noise = own.likelihood_.variance.numpy()
    exact = GPR(own.model_.data, own.kernel_, noise_variance=noise)
    log_z = float(exact.log_marginal_likelihood())
    assert own.record_ is not None
    assert_allclose(own.record_.objective, log_z, rtol=1e-6)
    far = PEPRegressor(**settings, standardize=False).fit(inputs, 1e3 + y)
    assert np.abs(far.predict(inputs) - 1e3 - y).mean() < 0.5
    assert far.likelihood_.variance.numpy() < 1.0


@pytest.mark.parametrize("ard", [False, 0.3])
@pytest.mark.parametrize("kernel", ["matern52", "additive"])
def test_exact_lengthscales_are_one_or_alike(ard: Any, kernel: str) -> None:
    """No step of any lengthscale gains; with a prior, of log Z less its squares."""
    fitted = PEPRegressor(kernel, inducing="rows", ard=ard).fit(X, Y)
    model = fitted.model_
    main = _main(fitted.kernel_)
    spread = 1e9 if ard is False else ard
    objective = near_lengthscales(spread)
    before = float(objective(model))
    scales = main.lengthscales.numpy()
    assert fitted.record_ is not None
    assert_allclose(fitted.record_.objective, before, rtol=1e-6)
    assert np.shape(scales) == (() if ard is False else (2,))
    for step in np.vstack([np.eye(2), -np.eye(2)])[:, : np.size(scales)]:
        main.lengthscales.assign(scales * np.exp(0.1 * step.reshape(scales.shape)))
        assert float(objective(model)) < before + 1e-3


def test_settings_are_usable_by_themselves() -> None:
    options: dict[str, Any] = {"num_inducing": 10, "alpha": 0.5, "random_state": 0}
    plain = PEPRegressor(**options).fit(X, Y)
    scores = {"plain": plain.log_score(X, Y)}
    for named in ({"noise": "varying"}, {"warp": True}, {"inputs": "yeo-johnson"}):
        fitted = PEPRegressor(**options, **named).fit(X, Y)
        scores[str(*named)] = fitted.log_score(X, Y)
    assert_allclose(
        fitted.predict_f(ROWS), clone(fitted).fit(X, Y).predict_f(ROWS), rtol=1e-6
    )
    assert fitted.input_scaler_.transform(X).std() == pytest.approx(1.0)
    assert min(scores["warp"], scores["noise"]) > scores["plain"]


@pytest.mark.near_copies("auto")
@pytest.mark.parametrize("kernel", ["auto", "rbf", "matern52", "additive"])
def test_rows_as_points_are_exact_regression(kernel: str) -> None:
    fitted = PEPRegressor(kernel, inducing="rows").fit(X, Y)
    model = fitted.model_
    record = fitted.record_
    kinds = {"matern52": Matern52, "additive": Sum}
    assert isinstance(model.kernel, kinds.get(kernel, SquaredExponential))
    noise = model.likelihood.variance.numpy()
    exact = GPR(model.data, model.kernel, noise_variance=noise)
    assert record is not None and record.converged
    assert_allclose(record.objective, float(exact.log_marginal_likelihood()), rtol=1e-6)
    rows = (ROWS - X.mean(axis=0)) / X.std(axis=0)
    mean, variance = (np.asarray(part)[:, 0] for part in exact.predict_y(rows))
    expected = Y.mean() + Y.std() * mean, Y.std() * np.sqrt(variance)
    assert_allclose(fitted.predict(ROWS, return_std=True), expected, rtol=1e-4)
    sparse = PEPRegressor(kernel, num_inducing=5, max_iterations=3).fit(X, Y)
    assert type(sparse.kernel_) is type(model.kernel)


def test_time_ends_training() -> None:
    began = time.process_time()
    with pytest.warns(
        ConvergenceWarning, match=r"The time ran out\. Raise max_iterations or max"
    ):
        fitted = PEPRegressor(max_seconds=1e-3).fit(X, Y)
    assert len(fitted.components_) == 1 and "weight" not in fitted.summary()
    assert np.isfinite(fitted.log_score(X, Y)) and time.process_time() - began < 5.0


@pytest.mark.parametrize(
    "kind, y, fate",
    [
        (PEPRegressor, Y[:, None], "They are left out"),
        (
            PEPRegressor,
            np.column_stack([Y, np.where(Y > 1.0, Y, np.nan)]),
            "They are left out",
        ),
        (PEPClassifier, np.arange(60.0)[:, None], "They are kept, as trials"),
        (PEPRegressor, 1.0 * (Y[:, None] > 1.0), "They are kept, as trials"),
        (PEPRegressor, np.arange(60.0)[:, None], "They are kept, as trials"),
        (PEPRegressor, np.arange(60.0)[:, None] - 1.0, "They are left out"),
        (
            PEPRegressor,
            (np.arange(60.0)[:, None] % 9.0) / 2.0,
            "They are kept, as trials",
        ),
        (PEPRegressor, (np.arange(60.0)[:, None] % 10.0) / 2.0, "They are left out"),
    ],
)
@pytest.mark.parametrize("number", [61, 85, 600])
def test_copies_leave_training(
    kind: Any, y: AnyNDArray, fate: str, number: int
) -> None:
    """Whatever their share, but for trials that came out alike."""
    rows = np.tile(X, (10, 1))[:number], np.tile(y, (10, 1))[:number]
    many = f"{number - 60} of {number} rows are copies of others, in inputs and y. "
    with pytest.warns(match=f"{many}{fate}"):
        left = np.hstack(kind()._known_rows(*rows, False))
    stay = "kept" in fate
    assert_allclose(left, np.hstack(rows if stay else [X, y]))
    advice = (
        fate if stay else "They are kept, because the settings select a single model"
    )
    with pytest.warns(match=f"{many}{advice}"):  # of one model
        assert len(kind()._known_rows(*rows, True)[0]) == number


@pytest.mark.filterwarnings("ignore:.* are copies")
def test_copies_count_once(stacked: PEPRegressor) -> None:
    fitted = PEPRegressor(random_state=0).fit(
        np.tile(X, (2, 1))[:85], np.tile(Y, 2)[:85]
    )
    assert_allclose(
        fitted.predict_interval(ROWS), stacked.predict_interval(ROWS), rtol=1e-9
    )
    with pytest.warns(match="X: all rows are identical"):
        fitted._known_rows(np.ones([5, 2]), Y[:5, None], False)


@pytest.mark.near_copies("*-1")
@pytest.mark.filterwarnings("ignore:Training ended", "ignore:.* are copies")
@pytest.mark.parametrize("mixed, columns", [(True, 1), (False, 1), (False, 2)])
def test_copies_are_judged_together(mixed: bool, columns: int) -> None:
    """By the rows that are no copies: training without them at the same parameters."""
    y = np.column_stack([Y > 1.0, X[:, 0] > 1.0])[:20, :columns] * 1.0
    rows = np.vstack([X[:20], X[:9], X[:4]])
    targets = np.vstack([y, y[:9], y[:4]])
    assert may_be_trials(targets)
    copies = numbers_of_copies(rows, targets)
    assert copies is not None and np.bincount(copies).tolist() == [0, 11, 10, 12]
    one = {"inducing": "rows", "num_inducing": 8, "alpha": 1.0}
    settings = {"max_iterations": 20, "random_state": 0, **({} if mixed else one)}
    fitted = PEPRegressor(**settings).fit(rows, targets.squeeze())
    part = fitted.components_[-1]
    assert (part.exact is not None) == mixed
    _, judged = part.left_out(copies)
    inputs, t = map(np.asarray, part.model.data)
    for row in (0, 7, 15):
        others = (rows != rows[row]).any(axis=1)
        assert others.sum() == 33 - copies[row]
        without = points.with_data(part.model, (inputs[others], t[others]))
        expected = without.predict_y(inputs[row : row + 1])
        found = judged.means[0, row], judged.variances[0, row]
        assert_allclose(np.ravel(found), np.ravel(expected), rtol=1e-6)


def test_training_goes_on_from_before(stacked: PEPRegressor, tmp_path: Path) -> None:
    again = saved(stacked, tmp_path).set_params(warm_start=True).fit(X, Y)
    before, after = (part.components_[0].record for part in (stacked, again))
    assert before.converged and after.converged  # that all steps are done
    assert after.starts[0].losses[0] < before.starts[0].losses[0] - 5.0
    assert_allclose(again.predict(ROWS), stacked.predict(ROWS), rtol=0.02)


def test_training_of_other_columns_begins_anew() -> None:
    settings: dict[str, Any] = {"inducing": "rows", "max_iterations": 30}
    again, first = (PEPRegressor(**settings, warm_start=warm) for warm in (True, False))
    again.fit(X, Y).fit(X[:, :1], Y)
    expected = first.fit(X[:, :1], Y).predict(X[:, :1])
    assert_allclose(again.predict(X[:, :1]), expected, rtol=1e-10)


def test_intervals_of_folds(stacked: PEPRegressor) -> None:
    low, high = stacked.predict_interval(X, calibrate="folds").T
    assert 0.8 <= np.mean((low <= Y) & (high >= Y)) <= 1.0


def test_inputs_are_bent_as_scikit_learn_bends_them() -> None:
    wide = np.column_stack([X, RNG.standard_normal(60), np.ones(60)])
    bent = fit_yeo_johnson(wide)
    standard = StandardScaler().fit_transform(wide)
    expected = np.clip(PowerTransformer().fit_transform(standard), -8.0, 8.0)
    assert_allclose(bent.transform(wide)[:, :3], expected[:, :3], atol=1e-9)
    assert_allclose(bent.transform(wide)[:, 3], 0.0)  # a constant stays
    assert_allclose(bent.inverse_transform(bent.transform(wide)), wide, rtol=1e-9)
    assert np.isnan(bent.transform(np.full((1, 4), np.nan))).all()
    assert np.abs(bent.transform(np.full((1, 4), 1e9))).max() == 8.0


SINGLE: dict[str, Any] = {"num_inducing": 5, "alpha": 0.5, "max_iterations": 20}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [kind(**named) for kind in (PEPRegressor, PEPClassifier) for named in (SINGLE, {})]
)
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.near_copies("exact")
@pytest.mark.filterwarnings("ignore:Training ended")
@pytest.mark.parametrize("most", [100, 10], ids=["exact", "trained points"])
def test_scouts_of_more_rows(
    most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (
        ("EXACT_ROWS", 30),
        ("SCOUT_ROWS", 25),
        ("EXACT_BY_SCOUT", most),
    ):
        monkeypatch.setattr(stack, name, value)
    for room in (base, trainer):
        monkeypatch.setattr(room, "LEAST_ROWS", 40)
    monkeypatch.setattr(base, "MANY_POINTS", 5)
    monkeypatch.setattr(points, "MOST_POINTS", 5)
    fitted = PEPRegressor(random_state=0, max_seconds=1000.0).fit(X, Y)
    (part,), recalibration = fitted.components_, fitted.recalibration_
    assert_allclose([fitted.weights_, fitted.mean_weights_], 1.0, rtol=1e-12)
    tried = "Matern, Yeo-Johnson inputs, warped targets"
    if most == 100:
        tried = "additive kernel, Yeo-Johnson inputs, warped targets, varying noise"
    (line, *_) = fitted.summary().splitlines()
    assert f"in a trial with 25, the model with {tried} is " in line
    if most == 100:
        gains = "better than the one with Matern on 35 other rows by" in line
        assert part.is_exact and part.settings.warp == gains
        assert part.num_iterations <= stack.FEW_STEPS
        assert (
            fitted.inducing_variable_.num_inducing == 60 and recalibration.scale != 1.0
        )
    else:
        rows, left_out = part.left_out()
        assert (
            part.settings.kernel == "rbf"
            and len(rows) == 12
            and len(part.model.data[0]) == 60
        )
        scores = left_out.normal_scores(Y[rows])
        # Honest: without a margin.
        assert recalibration == Recalibration.fit(scores, 0.0)
        alone = part.predictive(ROWS)
        assert_allclose(fitted.predict(ROWS), alone.moments()[0], rtol=1e-12)
        z = np.array([-1.0, 1.0]) * recalibration.original(np.array(norm.ppf(0.95)))
        expected = alone.quantiles(norm.cdf(z))
        assert_allclose(fitted.predict_interval(ROWS), expected, rtol=1e-7)
    expected = fitted.predict_interval(ROWS)
    assert_allclose(saved(fitted, tmp_path).predict_interval(ROWS), expected, rtol=1e-9)
    if most == 100:
        return
    spike = np.zeros(60)
    spike[np.random.default_rng(0).permutation(60)[-1]] = 1e3
    options: dict[str, Any] = {"random_state": 0, "max_iterations": 3}
    monkeypatch.setattr(stack, "EXACT_BY_SCOUT", 100)
    # Of a slow machine.
    record = fit_exact(X, Y, max_iterations=1)[1]._replace(seconds=1e4)
    monkeypatch.setattr(
        regression, "fit_exact", lambda *a, **b: (fit_exact(*a, **b)[0], record)
    )
    (bare,) = (
        unseen := PEPRegressor(**options, max_seconds=1000.0).fit(X, spike)
    ).components_
    # The scout has seen zeros only.
    own = bare.settings
    assert not bare.is_exact and (own.warp, own.inputs) == (False, "standard")
    assert np.isfinite(unseen.predict(ROWS, return_std=True)).all()
    early = PEPRegressor(**options, max_seconds=1.0).fit(X, Y)
    assert (
        early.components_[0].settings.inputs == "standard"
        and "without a trial" in early.summary()
    )


FAR: dict[str, tuple[int, int, Any, list[float]]] = {
    "line": (100, 1, lambda x: x[:, 0], [10_000.0]),
    "plane": (30, 2, lambda x: x[:, 0] - x[:, 1], [10_000.0, 0.0]),
    "second input": (30, 2, lambda x: x[:, 0] - x[:, 1], [0.0, -10_000.0]),
    "square": (30, 2, lambda x: x[:, 0] ** 2, [0.0, 10_000.0]),
    "classes": (30, 2, lambda x: x[:, 0] - x[:, 1], [10_000.0, 0.0]),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Training ended")
@pytest.mark.parametrize("name", FAR)
def test_far_rows_of_bent_inputs(name: str, tmp_path: Path) -> None:
    """Long lengthscales reach as far as an input is cut, 8 standard deviations."""
    number, D, function, far = FAR[name]
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (number, D))
    y = function(x) + 0.1 * rng.standard_normal(number)
    is_classes = name == "classes"
    kind: Any = PEPClassifier if is_classes else PEPRegressor
    fitted = kind(random_state=0, max_iterations=20).fit(
        x, y > 0.0 if is_classes else y
    )
    assert fitted.far_rows([far, x[0]]).tolist() == [True, False]
    assert scorer(fitted, tmp_path).far_rows([far, x[0]]).tolist() == [True, False]
