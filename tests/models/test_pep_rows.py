"""PEP's rows: they come and go, their labels are chosen a likelihood for; and what
models remember from call to call is never stale, lost or trained.
"""

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import gaussian_model
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, MultiClass, Poisson, Softmax
from helpers import assert_all_close, assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.models import ConvergenceWarning
from gpflow_pep.models.rows import match_rows

RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, [16, 1])
Y = np.where(np.sin(2.0 * X) + 0.3 * RNG.standard_normal(X.shape) > 0.0, 1.0, 0.0)
Z = np.linspace(-2.0, 2.0, 4)[:, None]
POWERS = np.linspace(0.0, 1.0, 16)
OTHERS = X[12:], Y[12:]


def _model(rows: Any = slice(None), **options: Any) -> pep.models.PEP:
    options = {"data": (X[rows], Y[rows]), "alpha": 0.5, "tolerance": 1e-10, **options}
    parts = SquaredExponential(), Bernoulli(), Z
    return pep.models.PEP(options.pop("data"), *parts, **options)


def _first(fixed: bool = False) -> tuple[tf.Variable, ...]:
    """Twelve rows in variables, with room for more or not."""
    shape = None if fixed else [None, 1]
    return tuple(
        tf.Variable(part[:12], shape=shape, trainable=False) for part in (X, Y)
    )


def _compiled(model: Any) -> Any:
    loss = tf.function(model.training_loss, autograph=False)
    loss()
    return loss


def test_rows_are_matched_in_the_order_of_their_copies() -> None:
    old = np.array([[1.0, 0.0], [2.0, 1.0], [1.0, 0.0], [3.0, 0.0]])
    new = np.array([[3.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(match_rows(old, new), [3, 0, -1, 2, -1])


@pytest.mark.near_copies("0")
@pytest.mark.parametrize("seed", range(2))
def test_other_rows(seed: int) -> None:
    """Some stay, elsewhere, some have another target, some are new; each has its own
    power.
    """
    random = np.random.default_rng(seed)
    rows = random.permutation(16)[: random.integers(6, 14)]
    changed = random.uniform(size=len(rows)) < 0.3
    others = X[rows], np.where(changed[:, None], 1.0 - Y[rows], Y[rows])
    model = _model(slice(0, 12), alpha=POWERS[:12])
    model.update_sites()
    nu = model.sites.nu.numpy()
    is_new = changed | (rows >= 12)
    assert 0 < np.sum(is_new) < len(rows)
    with pytest.raises(
        ValueError, match=r"alpha: got none, expected the power of the \d+ new rows"
    ):
        model.update_data(others)
    model.update_data(others, alpha=POWERS[rows][is_new])
    np.testing.assert_array_equal(model.alpha, POWERS[rows])
    expected = np.where(is_new[:, None], 0.0, nu[np.where(is_new, 0, rows)])
    np.testing.assert_array_equal(model.sites.nu, expected)
    fresh = _model(data=others, alpha=POWERS[rows])
    assert_close(
        model.pep_log_marginal_likelihood(), fresh.pep_log_marginal_likelihood()
    )


@pytest.mark.slow
def test_more_rows_are_a_new_model_that_is_nearly_there() -> None:
    """Also of a copy: variables that TensorFlow copies have room for as many rows as
    they hold.
    """
    model = _model(slice(0, 12))
    expected = _model()
    model.update_sites()
    sites = model.sites.nu.numpy()
    twin = gpflow.utilities.deepcopy(model)
    twin.condition_on(OTHERS)
    np.testing.assert_array_equal(twin.sites.nu[:12], sites)
    np.testing.assert_array_equal(twin.sites.nu[12:], 0.0)
    assert twin.num_data == 16 and len(model.sites.nu.numpy()) == 12
    assert_close(
        twin.pep_log_marginal_likelihood(), expected.pep_log_marginal_likelihood()
    )
    assert twin.last_inference.num_sweeps < expected.last_inference.num_sweeps
    assert_all_close(twin.predict_f(X), expected.predict_f(X))


@pytest.mark.slow
def test_a_function_compiled_for_other_rows_or_powers_stops() -> None:
    cases = [
        ({}, None, r"were replaced.*Compile it again"),
        (
            {"data": _first(), "alpha": np.full(12, 0.5)},
            0.5,
            r"powers of rows.*Scipy\(\)\)\.",
        ),
    ]
    for options, alpha, message in cases:
        model = _model(slice(0, 12), **options)
        compiled = _compiled(model)
        model.condition_on(OTHERS, alpha=alpha)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            compiled()
        assert_close(_compiled(model)(), _model().training_loss())


@pytest.mark.slow
def test_data_in_variables_are_assigned() -> None:
    data = _first()
    model = _model(data=data)
    compiled = _compiled(model)
    model.condition_on(OTHERS)
    assert model.data[0] is data[0]
    np.testing.assert_array_equal(data[0], X)
    assert_close(compiled(), _model().training_loss())


OF_POWERS = {"alpha": POWERS[:12]}
REFUSED: list[tuple[dict[str, Any], Any, Any, str]] = [  # options, data, alpha, message
    ({}, (np.hstack([X, X]), Y), None, r"X: got 2 column\(s\), expected 1"),
    ({}, (X, Y + 0.5), None, r"Y: got (0|1)\.5"),
    ({}, (X[:, 0], Y), None, "two axes"),
    ({}, OTHERS, 0.3, "one power for all"),
    ({"data": _first(fixed=True)}, OTHERS, None, r"shape=\[None, D\]"),
    (
        {"data": (_first()[0], _first(fixed=True)[1])},
        OTHERS,
        None,
        "Y: got 16 rows for a tf.V",
    ),
    (OF_POWERS, OTHERS, 1.5, r"alpha: got 1\.5, expected values in \[0, 1\]"),
    (OF_POWERS, OTHERS, [0.5, 0.5], r"got the shape \(2,\), .* of the 4 new rows"),
]


@pytest.mark.parametrize("options, data, alpha, match", REFUSED)
def test_a_refusal_leaves_the_model_as_it_was(
    options: Any, data: Any, alpha: Any, match: str
):
    model = _model(slice(0, 12), **options)
    before = model.alpha.numpy()
    for change in (
        model.condition_on,
        *((model.update_data,) if data is not OTHERS else ()),
    ):
        with pytest.raises(ValueError, match=match):
            change(data, alpha=alpha)
        np.testing.assert_array_equal(np.hstack(model.data), np.hstack([X, Y])[:12])
        np.testing.assert_array_equal(model.alpha, before)
        assert len(model.sites.nu.numpy()) == 12


@pytest.mark.parametrize("name", ["PEPRegression", "PEP"])
def test_a_copy_takes_other_rows_into_its_variables(name: str) -> None:
    """The copies had room for as many rows as the model had when it was copied."""

    def create(data: Any) -> Any:
        kernel = SquaredExponential()
        return (
            _model(data=data) if name == "PEP" else pep.PEPRegression(data, kernel, Z)
        )

    model = create(_first())
    model.training_loss()
    twin = gpflow.utilities.deepcopy(model)
    compiled = _compiled(twin)
    twin.data = (X, Y)
    assert (
        twin.data[0].shape.as_list() == [None, 1] and len(model.data[0].numpy()) == 12
    )
    assert_close(compiled(), create((X, Y)).training_loss())


# PEPClassification: the likelihood that it chooses, and the labels that it takes.

INPUTS = np.random.default_rng(1).standard_normal([12, 2])
BINARY = np.arange(12)[:, None] % 2
CLASSES = np.arange(12)[:, None] % 3


def _of_classes(Y: Any, likelihood: Any = None) -> pep.models.PEPClassification:
    kernel = SquaredExponential()
    return pep.models.PEPClassification((INPUTS, Y), kernel, likelihood, INPUTS[:3])


@pytest.mark.parametrize(
    "kinds, chosen, num_latent",
    [
        ([BINARY.astype(kind) for kind in (int, bool, np.uint8, float)], Bernoulli, 1),
        ([CLASSES, tf.constant(CLASSES)], MultiClass, 3),
    ],
)
def test_likelihood_of_labels(kinds: Any, chosen: type, num_latent: int) -> None:
    """And then it is PEP, whatever their type."""
    for labels in kinds:
        model = _of_classes(labels)
        assert type(model.likelihood) is chosen and model.num_latent_gps == num_latent
        assert model.data[1].dtype == tf.float64
        np.testing.assert_array_equal(model.data[1], labels)
    parts = (
        (INPUTS, tf.cast(labels, tf.float64)),
        model.kernel,
        model.likelihood,
        INPUTS[:3],
    )
    expected = pep.PEP(*parts).pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected)


@pytest.mark.near_copies("counts")
@pytest.mark.parametrize(
    "likelihood", [MultiClass(3), Poisson()], ids=["classes", "counts"]
)
def test_pep_takes_integers_as_svgp_does(likelihood: Any) -> None:
    parts = SquaredExponential(), likelihood, INPUTS[:3]
    whole, real = (
        pep.PEP((INPUTS, CLASSES.astype(dtype)), *parts) for dtype in (int, float)
    )
    assert_close(whole.training_loss(), real.training_loss())
    for model, dtype in ((whole, int), (real, float)):
        model.condition_on((INPUTS[:4] + 0.1, CLASSES[:4].astype(dtype)))
    assert_close(whole.training_loss(), real.training_loss())
    new = INPUTS[:4], CLASSES[:4]
    assert_close(whole.predict_log_density(new), real.predict_log_density(new))


def test_a_likelihood_of_classes_is_kept() -> None:
    """One of the classes may be empty then."""
    of_two = (
        Bernoulli(),
        pep.likelihoods.NoisyLabelBernoulli(0.05),
        MultiClass(2),
        Softmax(2),
    )
    for likelihood in of_two:
        assert _of_classes(BINARY, likelihood).likelihood is likelihood
    assert _of_classes(2 * BINARY, MultiClass(3)).num_latent_gps == 3


@pytest.mark.parametrize("convert", [np.asarray, tf.constant, np.ndarray.tolist])
def test_integer_labels_of_other_rows(convert: Any) -> None:
    """They are converted as the constructor converts them."""
    model = _of_classes(BINARY)
    more = INPUTS[::-1] + 0.1, convert(BINARY)
    model.condition_on(more)
    assert model.num_data == 24
    model.update_data(more)
    assert model.num_data == 12
    model.data = (INPUTS, convert(1 - BINARY))
    np.testing.assert_array_equal(model.data[1], 1.0 - BINARY)
    with pytest.raises(
        ValueError, match=r"Y: got labels of type <U1, expected whole numbers"
    ):
        model.data = (INPUTS, np.array([["a"]] * 12))


# What is remembered.

_RANDOM = np.random.default_rng(1)
ROWS = _RANDOM.uniform(-3.0, 3.0, (40, 1))
LABELS = (np.sin(ROWS) > 0.3 * _RANDOM.standard_normal(ROWS.shape)).astype(float)


def _of_labels(**options: Any) -> "pep.models.PEP":
    options = {"kernel": SquaredExponential(), "likelihood": Bernoulli(), **options}
    return pep.models.PEP((ROWS, LABELS), inducing_variable=ROWS[:6].copy(), **options)


@pytest.mark.parametrize("name", ["PEPRegression", "PEP", "APEP", "ARPEP"])
def test_set_trainable_frees_neither_alpha_nor_sites(name: str) -> None:
    model = gaussian_model(name, regression_problem())
    before = {id(variable) for variable in model.trainable_variables}
    gpflow.set_trainable(model, True)
    assert {id(variable) for variable in model.trainable_variables} == before
    assert model.alpha not in model.trainable_parameters and not model.alpha.trainable
    gpflow.set_trainable(model.kernel, False)
    assert len(model.trainable_variables) == len(before) - 2


@pytest.mark.filterwarnings("ignore:The sites did not converge")
@pytest.mark.slow
def test_updates_one_at_a_time_go_on_from_the_last() -> None:
    model = _of_labels()
    records = [model.update_sites(max_sweeps=1) for _ in range(30)]
    assert all(record.num_sweeps <= 2 and record.fallback == "" for record in records)
    assert records[-1].converged and not records[0].converged
    expected = _of_labels().pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:The sites did not converge")
@pytest.mark.slow
def test_reset_sites_make_log_z_a_function_of_the_parameters() -> None:
    """Labels without a slope to climb: at alpha 0 there are several fixed points."""

    def create(**options: Any) -> "pep.models.PEP":
        likelihood = pep.likelihoods.NoisyLabelBernoulli(0.01, link="step")
        kernel = SquaredExponential(lengthscales=0.6)
        Z = ROWS[:15].copy()
        return pep.models.PEP(
            (ROWS, LABELS), kernel, likelihood, Z, alpha=0.0, **options
        )

    model = create(reset_sites=True)
    other = create()
    first = float(model.pep_log_marginal_likelihood())
    for lengthscale in (0.2, 0.6):
        model.kernel.lengthscales.assign(lengthscale)
        last = float(model.pep_log_marginal_likelihood())
    assert last == first
    # The same from other sites, by one call.
    other.sites.nu.assign(np.where(LABELS > 0.5, -3.0, 3.0))
    other.update_sites(fresh=True)
    assert_close(other.sites.nu, model.sites.nu, rtol=1e-6)


@pytest.mark.parametrize(
    "disturb", ["prediction", "update_data", "loss", "another loss"]
)
@pytest.mark.slow
def test_minibatch_totals_follow_sites_that_something_else_replaced(
    disturb: str,
) -> None:
    model = _of_labels()
    loss = model.minibatch_training_loss_closure(10, seed=0, refresh_every=10**6)
    other = model.minibatch_training_loss_closure(8, seed=1, refresh_every=10**6)
    for _ in range(3):
        loss()
    model.kernel.lengthscales.assign(0.4)
    {
        "prediction": lambda: model.predict_f(ROWS[:2]),
        "loss": tf.function(model.training_loss),
        "update_data": lambda: model.update_data((ROWS[::-1].copy(), LABELS)),
        "another loss": other,
    }[disturb]()
    # As if it were made now: its first call sums over all rows.
    index = tf.range(10, dtype=tf.int64)
    again = gpflow.utilities.deepcopy(model)
    fresh = again.minibatch_training_loss_closure(10, seed=0)
    assert_close(loss.of_batch(index), fresh.of_batch(index), rtol=1e-12)


def test_powers_of_rows_that_became_fewer() -> None:
    parts = (ROWS, np.sin(ROWS))
    powers = np.linspace(0.0, 1.0, 40)
    data = tuple(tf.Variable(part, shape=[None, 1], trainable=False) for part in parts)
    model = pep.models.PEPRegression(data, SquaredExponential(), ROWS[:6], alpha=powers)
    compiled = tf.function(model.training_loss)
    compiled()
    for variable in data:
        variable.assign(variable[:20])
    with pytest.raises(ValueError, match=r"alpha: got shape \(40,\).*\(20,\)"):
        model.training_loss()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"alpha: got shape \(40,\)"
    ):
        compiled()


def test_a_tolerance_that_the_float_can_reach() -> None:
    gpflow.config.set_default_float(np.float32)
    single = ROWS.astype(np.float32), LABELS.astype(np.float32)
    parts = SquaredExponential(), Bernoulli(), ROWS[:6].astype(np.float32)
    model = pep.models.PEP(single, *parts, tolerance=1e-9)
    assert 1e-5 < model.tolerance < 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.update_sites().converged


@pytest.mark.slow
def test_sites_that_do_not_converge_warn_at_the_end() -> None:
    compiled = tf.function(_of_labels(max_sweeps=1).training_loss)
    train = pep.training.maximise
    with pytest.warns(
        ConvergenceWarning, match="The sites did not converge: the residual should"
    ):
        compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        train(_of_labels(), max_iterations=2, progress=False)
    with pytest.warns(ConvergenceWarning, match="The sites did not converge"):
        train(_of_labels(max_sweeps=1), max_iterations=2, progress=False)


def test_latent_functions_with_different_numbers_of_inducing_variables() -> None:
    points = gpflow.inducing_variables.InducingPoints
    each = [points(ROWS[:size].copy()) for size in (5, 4, 5)]
    variables = gpflow.inducing_variables.SeparateIndependentInducingVariables(each)
    kernel = gpflow.kernels.SharedIndependent(SquaredExponential(), 3)
    classes = np.digitize(ROWS, [-1.0, 1.0]).astype(float)
    likelihood = MultiClass(3)
    with pytest.raises(
        ValueError, match=r"got 4, 5 .*expected the same number for each.*Give each"
    ):
        pep.models.PEP((ROWS, classes), kernel, likelihood, variables)


#: What returns log Z, or depends on its sites.
RESULTS: dict[str, Callable[[pep.PEP], Any]] = {
    "log Z": lambda model: model.pep_log_marginal_likelihood(),
    "elbo": lambda model: model.elbo(),
    "compiled loss": lambda model: tf.function(model.training_loss, autograph=False)(),
    "predictions": lambda model: model.predict_f(np.zeros([1, 1])),
    "training": lambda model: pep.training.maximise(
        model, max_iterations=1, progress=False
    ),
}


def assert_unknown(model: pep.PEP, result: str) -> None:
    with pytest.warns(ConvergenceWarning, match="log Z is not known to within a nat"):
        RESULTS[result](model)
    assert np.isinf(model.last_inference.residual)
    assert not model.last_inference.converged


@pytest.mark.near_copies("predictions")
@pytest.mark.parametrize("result", RESULTS)
def test_a_rate_far_from_inducing_inputs_warns_that_log_z_is_unknown(
    result: str,
) -> None:
    data = np.array([[0.0], [5.0]]), np.array([[1.0], [2.0]])
    parts = SquaredExponential(variance=150.0), Poisson(), data[0][:1].copy()
    assert_unknown(pep.PEP(data, *parts, alpha=0.0, max_sweeps=5), result)


def test_a_target_beyond_all_noise_warns_that_log_z_is_unknown() -> None:
    data = np.array([[0.0], [5.0]]), np.array([[1.0], [1e9]])
    parts = SquaredExponential(), gpflow.likelihoods.Gaussian(), data[0][:1].copy()
    assert_unknown(pep.PEP(data, *parts, alpha=0.0), "log Z")
