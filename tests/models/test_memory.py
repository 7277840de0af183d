"""Rows that are forgotten: log Z, q(u) and gradients of models that have a memory of
them.
"""

import copy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import probit_log_density
from gpflow.likelihoods import Bernoulli
from helpers import Array, assert_all_close, assert_close, assert_gradients, gradients
from reference.memory import Past, Process, Rows, streamed, streamed_by_sites
from reference.regression import squared_exponential
from reference.sites import largest_latent_factor, scalar_factor

import gpflow_pep as pep

NOISE = 0.09
rng = np.random.default_rng(2)
X = rng.uniform(-2.0, 2.0, [36, 2])
Y = (
    np.sin(2.0 * X[:, :1])
    + 0.5 * np.cos(3.0 * X[:, 1:])
    + 0.3 * rng.standard_normal([36, 1])
)
LABELS = np.where(Y > 0.2, 1.0, 0.0)
CLASSES = np.digitize(Y, [-0.3, 0.5]).astype(float)
BATCHES = tuple(slice(12 * k, 12 * (k + 1)) for k in range(3))
Z = rng.uniform(-2.0, 2.0, [4, 2])
# Two stay, at other places.
MOVED = np.vstack([Z[2], rng.uniform(-2.0, 2.0, [3, 2]), Z[0]])
MORE = np.vstack([MOVED[1:3], rng.uniform(-2.0, 2.0, [4, 2])])


class Prior(NamedTuple):
    """A kernel and a mean function, here and in the reference."""

    variance: float
    lengthscale: float
    mean: float

    def parts(self) -> dict[str, Any]:
        kernel = gpflow.kernels.SquaredExponential(self.variance, self.lengthscale)
        return {"kernel": kernel, "mean_function": gpflow.functions.Constant(self.mean)}

    def process(self, Z: Array) -> Process:
        parts = {"variance": self.variance, "lengthscales": [self.lengthscale] * 2}

        def mean(X):
            return np.full(len(X), self.mean)

        return Process(
            partial(squared_exponential, **parts), mean, Z, gpflow.default_jitter()
        )


FIRST = Prior(1.3, 0.9, 0.4)
SECOND = Prior(0.8, 1.2, -0.2)
THIRD = Prior(1.7, 0.7, 0.1)


def _regression(
    batch: slice, prior: Prior, Z: Array, memory: Any = None, **options: Any
) -> Any:
    targets = options.pop("targets", Y)
    options = {"noise_variance": NOISE, "memory": memory, **prior.parts(), **options}
    return pep.PEPRegression(
        (X[batch], targets[batch]), inducing_variable=Z.copy(), **options
    )


def _pep(
    batch: slice, prior: Prior, Z: Array, memory: Any = None, **options: Any
) -> Any:
    data = X[batch], options.pop("targets", LABELS)[batch]
    options = {
        "likelihood": Bernoulli(),
        "tolerance": 1e-11,
        **prior.parts(),
        **options,
    }
    return pep.PEP(data, inducing_variable=Z.copy(), memory=memory, **options)


_gaussian = partial(_pep, likelihood=gpflow.likelihoods.Gaussian(NOISE), targets=Y)
REGRESSION = [(_regression, alpha) for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0)]
REGRESSION += [(_gaussian, alpha) for alpha in (0.0, 0.3, 1.0)]
each_model = pytest.mark.parametrize(
    "create", [_regression, _pep], ids=["PEPRegression", "PEP"]
)


def _second(create: Any = _regression, **options: Any) -> Any:
    """The second batch under another prior and at other points, with a memory of the
    first.
    """
    memory = options.pop("memory", None) or create(BATCHES[0], FIRST, Z).remember()
    return create(BATCHES[1], SECOND, MOVED, memory, **options)


def _log_z(model: Any) -> Any:
    return model.pep_log_marginal_likelihood()


def _past(model: Any, k: int = 0) -> Past:
    """The numbers of one of a model's latent functions, for the reference."""
    points = getattr(
        model.inducing_variable, "inducing_variable_list", [model.inducing_variable]
    )
    kernels = getattr(model.kernel, "kernels", [model.kernel])
    Z = points[min(k, len(points) - 1)]
    kernel = kernels[min(k, len(kernels) - 1)]
    prior = gpflow.covariances.Kuu(Z, kernel, jitter=gpflow.default_jitter())
    (mean, covariance), means = (
        model.compute_qu(),
        model.mean_function(tf.identity(Z.Z))[:, k],
    )
    S = np.reshape(covariance, [-1, len(mean), len(mean)])[k]
    parts = map(np.asarray, (Z.Z, means, prior, mean[:, k] + means, S))
    return Past(*parts, float(_log_z(model)))


def test_nothing_is_lost_where_little_is_known() -> None:
    """Ill-conditioned: dense inducing points, and batches each in a corner of the
    inputs.
    """
    t, dense = (np.linspace(0.0, 9.0, size)[:, None] for size in (90, 40))

    def model(rows: slice, memory: Any = None) -> Any:
        kernel = gpflow.kernels.SquaredExponential(1.0, 0.7)
        data = (t[rows], np.sin(2.0 * t[rows]))
        return pep.PEPRegression(
            data, kernel, dense, noise_variance=0.01, memory=memory
        )

    memory = None
    for k in range(3):
        part = model(slice(30 * k, 30 * (k + 1)), memory)
        memory = part.remember()
    whole = model(slice(None))
    assert_close(_log_z(part), _log_z(whole), scale=90.0)
    assert_close(part.compute_qu()[0], whole.compute_qu()[0], rtol=1e-6)


@pytest.mark.parametrize("create, alpha", REGRESSION)
@pytest.mark.near_copies("_regression-0.5")
def test_batch_after_batch(create: Any, alpha: float) -> None:
    """Nothing is lost where neither prior nor points change; otherwise beside the
    reference.
    """
    expected = memory = same = None
    for batch, prior, points in zip(
        BATCHES, (FIRST, SECOND, THIRD), (Z, MOVED, MORE), strict=True
    ):
        model = create(batch, prior, points, memory, alpha=alpha)
        rows = Rows(X[batch], Y[batch, 0], np.full(12, NOISE))
        expected = streamed(prior.process(points), rows, expected, alpha)
        actual = _past(model)
        memory = model.remember()
        assert_close(actual.log_z, expected.log_z)
        assert_all_close(actual[3:5], expected[3:5])
        last = create(batch, FIRST, Z, same, alpha=alpha)
        same = last.remember()
    whole = create(slice(None), FIRST, Z, alpha=alpha)
    assert_close(_log_z(last), _log_z(whole))
    assert_all_close(last.compute_qu(), whole.compute_qu())
    assert_all_close(last.predict_f(X), whole.predict_f(X))


BOTH = np.hstack([Y, np.cos(X[:, :1]) + Y])


def test_outputs_share_the_memory() -> None:
    """Each output alone, one after another, and both at once; with blocks of rows."""
    blocks = np.arange(12) // 3

    def log_z(targets: Array) -> Array:
        options = {"blocks": blocks, "targets": targets}
        memory = _regression(BATCHES[0], FIRST, Z, **options).remember()
        return _log_z(_second(memory=memory, **options)).numpy()

    assert_close(log_z(BOTH), log_z(BOTH[:, :1]) + log_z(BOTH[:, 1:]))


def test_the_memory_has_a_power_of_its_own() -> None:
    powers = np.linspace(0.0, 1.0, 12)
    before = _regression(BATCHES[0], FIRST, Z, alpha=powers)
    with pytest.raises(ValueError, match=r"memory: got no power of its own.*Make it"):
        _second(memory=before.remember(), alpha=powers)
    values = []
    for of_memory in (0.0, 0.3):
        memory = before.remember(alpha=of_memory)
        of_rows, same = (
            _second(memory=memory, alpha=a) for a in (np.full(12, 0.3), 0.3)
        )
        values.append(float(_log_z(same)))
        assert_close(_log_z(of_rows), values[-1])
    assert abs(values[0] - values[1]) > 1e-3
    # Assigned, the power of the model is that of the memory.
    model = _second(memory=before.remember(), alpha=1.0)
    model.alpha.assign(0.3)
    assert_close(_log_z(model), values[-1])


@pytest.mark.parametrize("points", [Z, MOVED], ids=["same", "moved"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.near_copies("0.5-same")
def test_probit(alpha: float, points: Array) -> None:
    """The new rows see what the old ones left as a prior."""
    before = _pep(BATCHES[0], FIRST, Z, alpha=alpha)
    batch = BATCHES[1]
    model = _pep(batch, SECOND, points, before.remember(), alpha=alpha)
    factors = [
        scalar_factor(lambda f, y=float(y): probit_log_density(f, y))
        for y in LABELS[batch, 0]
    ]
    past = _past(before)
    parts = [SECOND.process(points)], X[batch], factors, [past], past.log_z, alpha
    log_z, (q,) = streamed_by_sites(*parts)
    assert_close(_log_z(model), log_z)
    # What the reference's sites reach.
    assert_all_close(_past(model)[3:5], q, rtol=1e-7)


@pytest.mark.parametrize("separate", [True, False], ids=["separate", "shared"])
@pytest.mark.slow
def test_several_latent_functions(separate: bool) -> None:
    alpha = 0.5
    epsilon = 0.01
    later = slice(12, 18)
    priors = [FIRST, SECOND, THIRD] if separate else [FIRST] * 3
    steps = [0.1 * k * separate for k in range(3)]
    old = [Z + step for step in steps]
    new = [MOVED - step for step in steps]
    variables = gpflow.inducing_variables

    def model(batch: slice, points: list[Array], memory: Any = None) -> Any:
        each = [variables.InducingPoints(part.copy()) for part in points]
        kernels = [prior.parts()["kernel"] for prior in priors]
        parts = kernels[0], each[0]
        if separate:
            shared = variables.SeparateIndependentInducingVariables(each)
            parts = gpflow.kernels.SeparateIndependent(kernels), shared
        robust = gpflow.likelihoods.RobustMax(3, epsilon=epsilon)
        likelihood = gpflow.likelihoods.MultiClass(3, robust)
        data = (X[batch], CLASSES[batch])
        mean = gpflow.functions.Constant([prior.mean for prior in priors])
        options = {
            "mean_function": mean,
            "alpha": alpha,
            "tolerance": 1e-11,
            "memory": memory,
        }
        return pep.PEP(data, parts[0], likelihood, parts[1], **options)

    before = model(BATCHES[0], old)
    actual = model(later, new, before.remember())
    pasts = [_past(before, k)._replace(log_z=0.0) for k in range(3)]
    factors = [
        largest_latent_factor(int(y), 1.0 - epsilon, epsilon / 2)
        for y in CLASSES[later, 0]
    ]
    processes = [prior.process(points) for prior, points in zip(priors, new)]
    log_z, q = streamed_by_sites(
        processes, X[later], factors, pasts, float(_log_z(before)), alpha
    )
    assert_close(_log_z(actual), log_z, rtol=1e-6)  # GPflow's quadrature
    for k, expected in enumerate(q):
        assert_all_close(_past(actual, k)[3:5], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "create, moved", [(_regression, True), (_pep, True), (_regression, False)]
)
@pytest.mark.near_copies("_regression-True")
def test_gradients(create: Any, moved: bool) -> None:
    """Where nothing has moved the residual covariances of the memory are zero."""
    parts = (SECOND, MOVED) if moved else (FIRST, Z)
    model = create(BATCHES[1], *parts, create(BATCHES[0], FIRST, Z).remember())
    variables = model.trainable_variables
    assert len(variables) == (5 if create is _regression else 4)
    loss = tf.function(model.training_loss, autograph=False)
    for alpha in (0.0, 0.5, 1.0) if moved else (0.0, 0.5):
        model.alpha.assign(alpha)
        assert_gradients(loss, variables, rtol=1e-6, scale=1.0)


@pytest.mark.slow
def test_ways_to_the_same_fixed_point() -> None:
    """Chunks of rows, compiled, minibatches of all rows."""
    model = _second(_pep)
    expected = model.training_loss()
    assert_close(_second(_pep, chunk_size=5).training_loss(), expected)
    assert_close(tf.function(model.training_loss)(), expected)
    loss = model.minibatch_training_loss_closure(12, seed=0, compile=False)
    assert_close(loss(), expected)
    both = [
        gradients(of, model.trainable_variables) for of in (loss, model.training_loss)
    ]
    assert_all_close(*both, rtol=1e-6, scale=1.0)
    loss = model.minibatch_training_loss_closure(4, seed=0, compile=False)
    # At the fixed point no batch changes anything.
    assert_close(np.mean([float(loss()) for _ in range(3)]), expected)


@each_model
@pytest.mark.near_copies("PEPRegression")
def test_a_memory_is_saved_copied_and_not_trained(create: Any, tmp_path: Path) -> None:
    memory = create(BATCHES[0], FIRST, Z).remember(alpha=0.7)
    model = _second(create, memory=memory)
    before = {id(variable) for variable in model.trainable_variables}
    gpflow.set_trainable(model, True)
    assert {id(variable) for variable in model.trainable_variables} == before
    path = tf.train.Checkpoint(model).write(str(tmp_path / "model"))
    nothing = memory._replace(weights=0.0 * memory.weights, first=0.0 * memory.first)
    other = create(BATCHES[1], THIRD, MORE[:5], nothing)
    tf.train.Checkpoint(other).read(path).assert_consumed()
    np.savez(tmp_path / "memory.npz", **memory._asdict())
    with np.load(tmp_path / "memory.npz") as arrays:
        again = _second(create, memory=pep.models.Memory(**arrays))
    for same in (copy.deepcopy(model), other, again):
        assert_close(_log_z(same), _log_z(model))
    # What else is made of q(u) knows the memory, too.
    assert_all_close(model.posterior().predict_f(X), model.predict_f(X))
    surrogate = model.surrogate()
    Kuu = _past(model).prior_covariance
    W = surrogate.weights[0].numpy()
    y = surrogate.targets[0].numpy()
    gain = np.linalg.solve(W @ Kuu @ W.T + np.eye(len(y)), W @ Kuu).T
    assert_close(gain @ y, model.compute_qu()[0][:, 0], rtol=1e-7)


def test_other_inducing_variables_take_a_memory_of_points() -> None:
    """A blur of no width is a point; what it blurs then is not what the
    memory is of.
    """
    memory = _regression(BATCHES[0], FIRST, Z).remember()
    model = _regression(BATCHES[1], SECOND, MORE, memory)
    blurred = pep.inducing_variables.BlurredInducingPoints(
        MORE, np.full(len(MORE), 1e-12)
    )
    options = {"noise_variance": NOISE, "memory": memory, **SECOND.parts()}
    other = pep.PEPRegression(model.data, inducing_variable=blurred, **options)
    assert_close(_log_z(other), _log_z(model), rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"BlurredInducingPoints, expected inducing points"
    ):
        other.remember()


@each_model
@pytest.mark.near_copies("PEPRegression")
def test_single_precision(create: Any) -> None:
    kind, targets = (pep.PEP, LABELS) if create is _pep else (pep.PEPRegression, Y)

    def log_z(dtype: type) -> Array:
        memory = None
        parts = [gpflow.kernels.SquaredExponential(np.float64(1.3), np.float64(0.9))]
        parts += [Bernoulli()] if create is _pep else []
        for batch, points in ((BATCHES[0], Z), (BATCHES[1], MOVED)):
            data = X[batch].astype(dtype), targets[batch].astype(dtype)
            model = kind(data, *parts, points, memory=memory)
            memory = model.remember()
        assert _log_z(model).dtype == dtype
        slopes = gradients(model.training_loss, model.trainable_variables)
        assert all(np.isfinite(part).all() for part in slopes)
        return _log_z(model)

    expected = log_z(np.float64)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        assert_close(log_z(np.float32), expected, rtol=1e-4)


@pytest.mark.slow
def test_what_is_refused() -> None:
    # An outlier far from all else, for which Student's likelihood is convex.
    rows = np.array([[0.0], [5.0]]), np.array([[0.0], [4.0]])
    student = gpflow.likelihoods.StudentT(scale=0.5, df=3.0)
    outlier = pep.PEP(rows, gpflow.kernels.SquaredExponential(), student, rows[0])
    with pytest.raises(
        ValueError, match=r"remember: got sites of negative.*Use a log-concave"
    ):
        outlier.remember()
    before = _regression(BATCHES[0], FIRST, Z)
    memory = before.remember()
    refused: dict[str, dict[str, Any]] = {
        r"got 2 latent.*, expected 1.*Pass it": {
            "first": tf.tile(memory.first, [2, 1])
        },
        r"got Z of float32, expected float64.*Cast": {
            "Z": tf.cast(memory.Z, tf.float32)
        },
        r"got NaN or infinity in first.*Make": {"first": memory.first * np.nan},
        r"got inducing points of 1 col.*, expected 2.*Pass": {"Z": memory.Z[..., :1]},
        r"got mean of shape \(4,\), expected 2 axes.*Pass": {"mean": memory.mean[0]},
        r"got Z, weights, first and.*Pass": {"weights": memory.weights[..., 1:]},
        r"got 1.5, expected a number in \[0, 1\].*None selects the": {"alpha": 1.5},
    }
    wrong = {
        message: memory._replace(**changes) for message, changes in refused.items()
    }
    wrong["got SurrogateRegression, expected.*Pass"] = before.surrogate()
    for message, other in wrong.items():
        for create in (_regression, _pep):
            with pytest.raises(ValueError, match=message):
                _second(create, memory=other)
    for alpha in (-0.1, np.nan, "half", [0.5, 0.5]):
        with pytest.raises(
            ValueError, match=r"alpha: got.*expected a number in \[0, 1\]"
        ):
            before.remember(alpha=alpha)
    # Under another kernel, or with a memory of another power, log Z may be above the
    # evidence.
    model = _second(memory=memory)
    point = _second(_gaussian, alpha=0.0)
    at_0 = _second(memory=before.remember(alpha=0.0), alpha=0.0)
    bounds = at_0.elbo, at_0.upper_bound, tf.function(at_0.elbo), point.elbo
    for refusing in (*bounds, model.elbo, model.upper_bound):
        with pytest.raises(
            ValueError, match=r"got a model with a memory, expected a model that has.*U"
        ):
            refusing()
    model.inducing_variable = gpflow.inducing_variables.InducingPoints(MORE)
    with pytest.raises(
        ValueError, match=r"inducing_variable: got 6 for.*5.*Make a new model"
    ):
        _log_z(model)


@pytest.mark.near_copies("missing0-0.5", "missing1-0.0")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("missing", [[(0, 0), (0, 1)], [(0, 0), (3, 1), (4, 0)]])
def test_targets_that_are_missing_are_not_remembered(
    alpha: float, missing: Any
) -> None:
    """As if all rows were in one model, although the outputs differ in what is known of
    them.
    """
    targets = BOTH.copy()
    targets[tuple(zip(*missing))] = np.nan
    model = partial(_regression, prior=FIRST, Z=Z, targets=targets, alpha=alpha)
    memory = model(BATCHES[1], memory=model(BATCHES[0]).remember()).remember()
    last = model(BATCHES[2], memory=memory)
    whole = model(slice(None))
    assert_close(_log_z(last), _log_z(whole))
    assert_all_close(last.predict_f(MORE), whole.predict_f(MORE))
    assert_all_close(last.compute_qu(), whole.compute_qu())
    assert_close(last.loo_log_density(), whole.loo_log_density()[BATCHES[2]])
    with pytest.raises(ValueError, match="near: got"):
        last.predict_f(MORE, near=2)
