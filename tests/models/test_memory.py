"""Rows that are forgotten: log Z, q(u) and gradients of models that have a memory of them."""

import copy
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import probit_log_density
from helpers import Array, assert_all_close, assert_close, finite_difference_gradient, gradients
from reference.memory import Past, Process, Rows, streamed, streamed_by_sites, variational_bound
from reference.regression import squared_exponential
from reference.sites import Factor, largest_latent_factor, scalar_factor

import gpflow_pep as pep

POWERS = (0.0, 1e-6, 0.3, 0.5, 1.0)
NOISE = 0.09
rng = np.random.default_rng(2)
X = rng.uniform(-2.0, 2.0, [36, 2])
Y = np.sin(2.0 * X[:, :1]) + 0.5 * np.cos(3.0 * X[:, 1:]) + 0.3 * rng.standard_normal([36, 1])
LABELS = np.where(Y > 0.2, 1.0, 0.0)
CLASSES = np.digitize(Y, [-0.3, 0.5]).astype(float)
BATCHES = tuple(slice(12 * k, 12 * (k + 1)) for k in range(3))
Z = rng.uniform(-2.0, 2.0, [4, 2])
MOVED = np.vstack([Z[2], rng.uniform(-2.0, 2.0, [3, 2]), Z[0]])  # two stay, at other places
MORE = np.vstack([MOVED[1:3], rng.uniform(-2.0, 2.0, [4, 2])])


class Prior:
    """A kernel and a mean function, here and in the reference."""

    def __init__(self, variance: float, lengthscale: float, mean: float) -> None:
        self.variance, self.lengthscale, self.mean = variance, lengthscale, mean

    def kernel(self) -> gpflow.kernels.Kernel:
        return gpflow.kernels.SquaredExponential(self.variance, self.lengthscale)

    def parts(self) -> dict[str, Any]:
        return {"kernel": self.kernel(), "mean_function": gpflow.functions.Constant(self.mean)}

    def process(self, Z: Array) -> Process:
        return Process(
            lambda A, B: squared_exponential(A, B, self.variance, [self.lengthscale] * 2),
            lambda X: np.full(len(X), self.mean),
            Z,
            gpflow.default_jitter(),
        )


FIRST, SECOND, THIRD = Prior(1.3, 0.9, 0.4), Prior(0.8, 1.2, -0.2), Prior(1.7, 0.7, 0.1)


def _regression(
    batch: slice, prior: Prior, Z: Array, memory: Any = None, **options: Any
) -> "pep.models.PEPRegression":
    return pep.models.PEPRegression(
        (X[batch], Y[batch]),
        inducing_variable=Z.copy(),
        memory=memory,
        **{"noise_variance": NOISE, **prior.parts(), **options},
    )


def _pep(
    batch: slice, prior: Prior, Z: Array, memory: Any = None, **options: Any
) -> "pep.models.PEP":
    targets = options.pop("targets", LABELS)
    return pep.models.PEP(
        (X[batch], targets[batch]),
        inducing_variable=Z.copy(),
        memory=memory,
        **{
            "likelihood": gpflow.likelihoods.Bernoulli(),
            "tolerance": 1e-11,
            **prior.parts(),
            **options,
        },
    )


def _gaussian(batch: slice, prior: Prior, Z: Array, memory: Any = None, **options: Any) -> Any:
    likelihood = gpflow.likelihoods.Gaussian(NOISE)
    return _pep(batch, prior, Z, memory, likelihood=likelihood, targets=Y, **options)


REGRESSION = [(_regression, alpha) for alpha in POWERS]
REGRESSION += [(_gaussian, alpha) for alpha in (0.0, 0.3, 1.0)]


def _rows(batch: slice) -> Rows:
    return Rows(X[batch], Y[batch, 0], np.full(len(Y[batch]), NOISE))


def _q_of_f(model: Any) -> tuple[Array, Array]:
    """q of f at the inducing points, of the first latent function."""
    mean, covariance = model.compute_qu()
    at_points = model.mean_function(tf.convert_to_tensor(model.inducing_variable.Z))
    return (mean + at_points).numpy()[:, 0], tf.reshape(
        covariance, [-1, len(mean), len(mean)]
    ).numpy()[0]


def _check(model: Any, expected: Past) -> None:
    assert_close(model.pep_log_marginal_likelihood(), expected.log_z)
    mean, covariance = _q_of_f(model)
    assert_close(mean, expected.mean)
    assert_close(covariance, expected.covariance)


@pytest.mark.parametrize("create, alpha", REGRESSION)
@pytest.mark.near_copies
def test_batch_after_batch_is_one_batch(create: Any, alpha: float) -> None:
    """Where neither prior nor inducing points change, nothing is lost."""
    memory = None
    for batch in BATCHES:
        model = create(batch, FIRST, Z, memory, alpha=alpha)
        memory = model.remember()
    whole = create(slice(None), FIRST, Z, alpha=alpha)
    assert_close(model.pep_log_marginal_likelihood(), whole.pep_log_marginal_likelihood())
    assert_all_close(model.compute_qu(), whole.compute_qu())
    assert_all_close(model.predict_f(X), whole.predict_f(X))


def test_nothing_is_lost_where_little_is_known() -> None:
    """Ill-conditioned: dense inducing points, and batches each in a corner of the inputs."""
    t = np.linspace(0.0, 9.0, 90)[:, None]
    dense = np.linspace(0.0, 9.0, 40)[:, None]

    def model(rows: slice, memory: Any = None) -> "pep.models.PEPRegression":
        kernel = gpflow.kernels.SquaredExponential(lengthscales=0.7)
        data = t[rows], np.sin(2.0 * t[rows])
        return pep.models.PEPRegression(data, kernel, dense, noise_variance=0.01, memory=memory)

    memory = None
    for k in range(3):
        part = model(slice(30 * k, 30 * (k + 1)), memory)
        memory = part.remember()
    whole = model(slice(None))
    assert_close(
        part.pep_log_marginal_likelihood(), whole.pep_log_marginal_likelihood(), scale=90.0
    )
    assert_close(part.compute_qu()[0], whole.compute_qu()[0], rtol=1e-6)


@pytest.mark.parametrize("create, alpha", REGRESSION)
@pytest.mark.near_copies
def test_prior_and_inducing_points_change_twice(create: Any, alpha: float) -> None:
    expected = None
    memory = None
    for batch, prior, points in zip(BATCHES, (FIRST, SECOND, THIRD), (Z, MOVED, MORE), strict=True):
        model = create(batch, prior, points, memory, alpha=alpha)
        expected = streamed(prior.process(points), _rows(batch), expected, alpha)
        _check(model, expected)
        memory = model.remember()


def test_bound_of_bui_nguyen_and_turner() -> None:
    first, second = Prior(1.3, 0.9, 0.0), Prior(0.8, 1.2, 0.0)
    before = _regression(BATCHES[0], first, Z, alpha=0.0)
    points = MORE[2:]
    model = _regression(BATCHES[1], second, points, before.remember(), alpha=0.0)
    past = streamed(first.process(Z), _rows(BATCHES[0]), None, 0.0)
    gain = model.pep_log_marginal_likelihood() - before.pep_log_marginal_likelihood()
    assert_close(gain, variational_bound(second.process(points), _rows(BATCHES[1]), past))


def test_outputs_share_the_memory() -> None:
    """Each output alone, one after another, and both at once; with blocks of rows."""
    both = np.hstack([Y, np.cos(X[:, :1]) + Y])
    blocks = np.arange(12) // 3

    def log_z(targets: Array) -> Array:
        memory = None
        for batch, prior, points in ((BATCHES[0], FIRST, Z), (BATCHES[1], SECOND, MOVED)):
            model = pep.models.PEPRegression(
                (X[batch], targets[batch]),
                inducing_variable=points,
                blocks=blocks,
                noise_variance=NOISE,
                memory=memory,
                **prior.parts(),
            )
            memory = model.remember()
        return model.pep_log_marginal_likelihood().numpy()

    assert_close(log_z(both), log_z(both[:, :1]) + log_z(both[:, 1:]))


def test_the_memory_has_a_power_of_its_own() -> None:
    powers = np.linspace(0.0, 1.0, 12)
    before = _regression(BATCHES[0], FIRST, Z, alpha=powers)
    with pytest.raises(ValueError, match=r"memory: got none of its own power.*Make it"):
        _regression(BATCHES[1], SECOND, MOVED, before.remember(), alpha=powers)
    values = []
    for of_memory in (0.0, 0.3):
        memory = before.remember(alpha=of_memory)
        of_rows = _regression(BATCHES[1], SECOND, MOVED, memory, alpha=np.full(12, 0.3))
        same = _regression(BATCHES[1], SECOND, MOVED, memory, alpha=0.3)
        values.append(float(same.pep_log_marginal_likelihood()))
        assert_close(of_rows.pep_log_marginal_likelihood(), values[-1])
    assert abs(values[0] - values[1]) > 1e-3
    # Assigned, the power of the model is that of the memory.
    model = _regression(BATCHES[1], SECOND, MOVED, before.remember(), alpha=1.0)
    model.alpha.assign(0.3)
    assert_close(model.pep_log_marginal_likelihood(), values[-1])


def _probit_factors(batch: slice) -> list[Factor]:
    return [scalar_factor(lambda f, y=float(y): probit_log_density(f, y)) for y in LABELS[batch, 0]]


@pytest.mark.parametrize("points", [Z, MOVED], ids=["same", "moved"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.near_copies("0.5-same")
def test_probit(alpha: float, points: Array) -> None:
    """The new rows see what the old ones left as a prior."""
    before = _pep(BATCHES[0], FIRST, Z, alpha=alpha)
    model = _pep(BATCHES[1], SECOND, points, before.remember(), alpha=alpha)
    prior = FIRST.process(Z)
    past = Past(
        Z,
        prior.mean(Z),
        prior.of_points(),
        *_q_of_f(before),
        float(before.pep_log_marginal_likelihood()),
    )
    log_z, ((mean, covariance),) = streamed_by_sites(
        [SECOND.process(points)],
        X[BATCHES[1]],
        _probit_factors(BATCHES[1]),
        [past],
        past.log_z,
        alpha,
    )
    assert_close(model.pep_log_marginal_likelihood(), log_z)
    assert_all_close(
        _q_of_f(model), (mean, covariance), rtol=1e-7
    )  # what the reference's sites reach


@pytest.mark.parametrize("separate", [True, False], ids=["separate", "shared"])
@pytest.mark.slow
def test_several_latent_functions(separate: bool) -> None:
    alpha, epsilon = 0.5, 0.01
    priors = [FIRST, SECOND, THIRD] if separate else [FIRST] * 3
    old = [Z + 0.1 * k for k in range(3)] if separate else [Z] * 3
    new = [MOVED - 0.1 * k for k in range(3)] if separate else [MOVED] * 3
    variables = gpflow.inducing_variables

    later = slice(12, 18)

    def model(batch: slice, points: list[Array], memory: Any = None) -> "pep.models.PEP":
        each = [variables.InducingPoints(part.copy()) for part in points]
        kernels = [prior.kernel() for prior in priors]
        options = {
            "kernel": gpflow.kernels.SeparateIndependent(kernels) if separate else kernels[0],
            "inducing_variable": variables.SeparateIndependentInducingVariables(each)
            if separate
            else each[0],
        }
        return pep.models.PEP(
            (X[batch], CLASSES[batch]),
            likelihood=gpflow.likelihoods.MultiClass(
                3, gpflow.likelihoods.RobustMax(3, epsilon=epsilon)
            ),
            mean_function=gpflow.functions.Constant([prior.mean for prior in priors]),
            alpha=alpha,
            tolerance=1e-11,
            memory=memory,
            **options,
        )

    before = model(BATCHES[0], old)
    actual = model(later, new, before.remember())
    mean, covariance = before.compute_qu()
    processes = [prior.process(points) for prior, points in zip(priors, old)]
    pasts = [
        Past(
            now.Z,
            now.mean(now.Z),
            now.of_points(),
            mean.numpy()[:, k] + now.mean(now.Z),
            covariance.numpy()[k],
            0.0,
        )
        for k, now in enumerate(processes)
    ]
    factors = [largest_latent_factor(int(y), 1.0 - epsilon, epsilon / 2) for y in CLASSES[later, 0]]
    log_z, q = streamed_by_sites(
        [prior.process(points) for prior, points in zip(priors, new)],
        X[later],
        factors,
        pasts,
        float(before.pep_log_marginal_likelihood()),
        alpha,
    )
    assert_close(actual.pep_log_marginal_likelihood(), log_z, rtol=1e-6)  # GPflow's quadrature
    for k, (mean, S) in enumerate(q):
        means = actual.compute_qu()[0].numpy()[:, k] + priors[k].mean
        assert_close(means, mean, rtol=1e-5)
        assert_close(actual.compute_qu()[1].numpy()[k], S, rtol=1e-5)


def _check_gradients(model: Any, powers: tuple[float, ...]) -> None:
    variables = model.trainable_variables
    loss = tf.function(model.training_loss, autograph=False)
    for alpha in powers:
        model.alpha.assign(alpha)
        for variable, actual in zip(variables, gradients(loss, variables), strict=True):
            expected = finite_difference_gradient(loss, variable)
            assert_close(actual, expected, rtol=1e-6, scale=1.0)


@pytest.mark.parametrize("create", [_regression, _pep], ids=["PEPRegression", "PEP"])
@pytest.mark.near_copies("PEPRegression")
def test_gradients(create: Any) -> None:
    before = create(BATCHES[0], FIRST, Z)
    model = create(BATCHES[1], SECOND, MOVED, before.remember())
    assert len(model.trainable_variables) == (5 if create is _regression else 4)
    _check_gradients(model, (0.0, 0.5, 1.0))


@pytest.mark.slow
def test_gradients_where_nothing_has_moved() -> None:
    """There the residual covariances of the memory are zero."""
    before = _regression(BATCHES[0], FIRST, Z)
    _check_gradients(_regression(BATCHES[1], FIRST, Z, before.remember()), (0.0, 0.5))


def _with_memory(**options: Any) -> "pep.models.PEP":
    return _pep(BATCHES[1], SECOND, MOVED, _pep(BATCHES[0], FIRST, Z).remember(), **options)


@pytest.mark.slow
def test_ways_to_the_same_fixed_point() -> None:
    """Chunks of rows, compiled, one row after another, minibatches of all rows."""
    model = _with_memory()
    expected = model.training_loss()
    assert_close(_with_memory(chunk_size=5).training_loss(), expected)
    assert_close(tf.function(model.training_loss)(), expected)
    sequential = _with_memory()
    assert sequential.update_sites(sequential=True, fresh=True).converged
    assert_close(sequential.sites.tau, model.sites.tau, rtol=1e-6)
    loss = model.minibatch_training_loss_closure(12, seed=0, compile=False)
    assert_close(loss(), expected)
    actual = gradients(loss, model.trainable_variables)
    assert_all_close(
        actual, gradients(model.training_loss, model.trainable_variables), rtol=1e-6, scale=1.0
    )
    loss = model.minibatch_training_loss_closure(4, seed=0, compile=False)
    mean = np.mean([float(loss()) for _ in range(3)])
    assert_close(mean, expected)  # at the fixed point no batch changes anything


@pytest.mark.parametrize("create", [_regression, _pep], ids=["PEPRegression", "PEP"])
@pytest.mark.near_copies("PEPRegression")
def test_a_memory_is_saved_copied_and_not_trained(create: Any, tmp_path: Path) -> None:
    memory = create(BATCHES[0], FIRST, Z).remember(alpha=0.7)
    model = create(BATCHES[1], SECOND, MOVED, memory)
    before = {id(variable) for variable in model.trainable_variables}
    gpflow.set_trainable(model, True)
    assert {id(variable) for variable in model.trainable_variables} == before
    expected = model.pep_log_marginal_likelihood()
    assert_close(copy.deepcopy(model).pep_log_marginal_likelihood(), expected)
    path = tf.train.Checkpoint(model).write(str(tmp_path / "model"))
    nothing = memory._replace(weights=0.0 * memory.weights, first=0.0 * memory.first)
    other = create(BATCHES[1], THIRD, MORE[:5], nothing)
    tf.train.Checkpoint(other).read(path).assert_consumed()
    assert_close(other.pep_log_marginal_likelihood(), expected)
    np.savez(tmp_path / "memory.npz", **memory._asdict())
    with np.load(tmp_path / "memory.npz") as arrays:
        again = create(BATCHES[1], SECOND, MOVED, pep.models.Memory(**arrays))
    assert_close(again.pep_log_marginal_likelihood(), expected)
    # What else is made of q(u) knows the memory, too.
    assert_all_close(model.posterior().predict_f(X), model.predict_f(X))
    surrogate = model.surrogate()
    Kuu = gpflow.covariances.Kuu(model.inducing_variable, model.kernel, jitter=1e-6).numpy()
    W, y = surrogate.weights[0].numpy(), surrogate.targets[0].numpy()
    gain = np.linalg.solve(W @ Kuu @ W.T + np.eye(len(y)), W @ Kuu).T
    assert_close(gain @ y, model.compute_qu()[0][:, 0], rtol=1e-7)


def test_training_on_top_of_a_memory() -> None:
    model = _regression(BATCHES[1], SECOND, MOVED, _regression(BATCHES[0], FIRST, Z).remember())
    start = float(model.pep_log_marginal_likelihood())
    history = pep.training.maximise(model)
    assert float(model.pep_log_marginal_likelihood()) > start + 1.0
    assert history is not None
    later = _regression(BATCHES[2], THIRD, MORE, model.remember())
    assert np.isfinite(later.training_loss())


def test_other_inducing_variables_take_a_memory_of_points() -> None:
    """A blur of no width is a point; what it blurs then is not what the memory is of."""
    blurred = pep.inducing_variables.BlurredInducingPoints
    memory = _regression(BATCHES[0], FIRST, Z).remember()
    model = _regression(BATCHES[1], SECOND, MORE, memory)
    other = pep.models.PEPRegression(
        model.data,
        SECOND.kernel(),
        blurred(MORE, np.full(len(MORE), 1e-12)),
        mean_function=gpflow.functions.Constant(SECOND.mean),
        noise_variance=NOISE,
        memory=memory,
    )
    expected = model.pep_log_marginal_likelihood()
    assert_close(other.pep_log_marginal_likelihood(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"BlurredInducingPoints, expected inducing points"):
        other.remember()


@pytest.mark.parametrize("create", [_regression, _pep], ids=["PEPRegression", "PEP"])
@pytest.mark.near_copies("PEPRegression")
def test_single_precision(create: Any) -> None:
    def log_z(dtype: type) -> Array:
        memory = None
        kernel_options = (np.float64(1.3), np.float64(0.9))
        for batch, points in ((BATCHES[0], Z), (BATCHES[1], MOVED)):
            targets = Y if create is _regression else LABELS
            data = X[batch].astype(dtype), targets[batch].astype(dtype)
            parts: dict[str, Any] = {"kernel": gpflow.kernels.SquaredExponential(*kernel_options)}
            if create is _regression:
                model = pep.models.PEPRegression(data, parts["kernel"], points, memory=memory)
            else:
                likelihood = gpflow.likelihoods.Bernoulli()
                model = pep.models.PEP(data, parts["kernel"], likelihood, points, memory=memory)
            memory = model.remember()
        value = model.pep_log_marginal_likelihood().numpy()
        assert value.dtype == dtype
        assert all(
            np.isfinite(part).all()
            for part in gradients(model.training_loss, model.trainable_variables)
        )
        return value

    expected = log_z(np.float64)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        assert_close(log_z(np.float32), expected, rtol=1e-4)


def _outlier() -> "pep.models.PEP":
    """An outlier far from all else, for which Student's likelihood is convex."""
    rows = np.array([[0.0], [5.0]]), np.array([[0.0], [4.0]])
    likelihood = gpflow.likelihoods.StudentT(scale=0.5, df=3.0)
    return pep.models.PEP(rows, gpflow.kernels.SquaredExponential(), likelihood, rows[0])


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"remember: got sites of negative.*Use a log-concave"):
        _outlier().remember()
    before = _regression(BATCHES[0], FIRST, Z)
    memory = before.remember()
    refused = {
        r"got SurrogateRegression, expected.*Pass": before.surrogate(),
        r"got 2 latent function\(s\), expected 1.*Give": memory._replace(
            first=tf.tile(memory.first, [2, 1])
        ),
        r"got Z of float32, expected float64.*Cast": memory._replace(
            Z=tf.cast(memory.Z, tf.float32)
        ),
        r"got NaN or infinity in first.*Make": memory._replace(first=memory.first * np.nan),
        r"got inducing points of 1 column\(s\), expected 2.*Give": memory._replace(
            Z=memory.Z[..., :1]
        ),
        r"got mean of shape \(4,\), expected 2 axes.*Pass": memory._replace(mean=memory.mean[0]),
        r"got Z, weights, first and mean of.*Pass": memory._replace(
            weights=memory.weights[..., 1:]
        ),
        r"got 1.5, expected a number in \[0, 1\].*None stands for": memory._replace(alpha=1.5),
    }
    for message, wrong in refused.items():
        for create in (_regression, _pep):
            with pytest.raises(ValueError, match=message):
                create(BATCHES[1], SECOND, MOVED, wrong)
    for alpha in (-0.1, np.nan, "half", [0.5, 0.5]):
        with pytest.raises(ValueError, match=r"alpha: got.*expected a number in \[0, 1\]"):
            before.remember(alpha=alpha)
    model = _regression(BATCHES[1], SECOND, MOVED, memory)
    with pytest.raises(ValueError, match=r"upper_bound: got a model with a memory.*Use pep_log"):
        model.upper_bound()
    with pytest.raises(ValueError, match=r"elbo: got a model with a memory.*Use pep_log"):
        model.elbo()
    model.inducing_variable = gpflow.inducing_variables.InducingPoints(MORE)
    with pytest.raises(ValueError, match=r"inducing_variable: got 6 where.*5.*Make a new model"):
        model.pep_log_marginal_likelihood()


def test_refused_beside_other_conditionals() -> None:
    memory = _regression(BATCHES[0], FIRST, Z).remember(alpha=0.0)
    with pytest.raises(ValueError, match=r"memory: got one with bound='tight'.*Leave it out"):
        _regression(BATCHES[1], FIRST, Z, memory, alpha=0.0, bound="tight")


@pytest.mark.near_copies("missing0-0.5", "missing1-0.0", "missing1-1.0")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("missing", [[(0, 0), (0, 1)], [(0, 0), (3, 1), (4, 0)]])
def test_targets_that_are_missing_are_not_remembered(alpha: float, missing: Any) -> None:
    """As if all rows were in one model, although the outputs differ in what is known of them."""
    both = np.hstack([Y, np.cos(X[:, :1]) + Y])
    both[tuple(zip(*missing))] = np.nan

    def model(rows: slice, memory: Any = None) -> pep.models.PEPRegression:
        options = {"noise_variance": NOISE, "alpha": alpha, "memory": memory, **FIRST.parts()}
        return pep.models.PEPRegression((X[rows], both[rows]), inducing_variable=Z, **options)

    last = model(BATCHES[2], model(BATCHES[1], model(BATCHES[0]).remember()).remember())
    whole = model(slice(None))
    assert_close(last.pep_log_marginal_likelihood(), whole.pep_log_marginal_likelihood())
    for found, expected in zip(last.predict_f(MORE), whole.predict_f(MORE)):
        assert_close(found, expected)
    for found, expected in zip(last.compute_qu(), whole.compute_qu()):
        assert_close(found, expected)
    assert_close(last.loo_log_density(), whole.loo_log_density()[BATCHES[2]])
    with pytest.raises(ValueError, match="near: got"):
        last.predict_f(MORE, near=2)


@pytest.mark.parametrize("alpha", [None, 0.0, 1.0])
def test_no_bound_with_a_memory(alpha: float | None) -> None:
    """Under another kernel, or with a memory of another power, log Z is above the evidence."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 9.0, [60, 1]), axis=0)
    Y = np.sin(X) + 0.2 * rng.standard_normal(X.shape)
    smooth = gpflow.kernels.SquaredExponential(lengthscales=1.5)
    rough = smooth + gpflow.kernels.Matern12(0.3, 0.05)
    Z = np.linspace(0.0, 9.0, 9)[:, None]
    options: dict[str, Any] = {"alpha": 0.0 if alpha is None else alpha, "noise_variance": 0.04}
    memory = pep.PEPRegression((X[:58], Y[:58]), smooth, Z, **options).remember(alpha=alpha)
    rows, points = (X[58:], Y[58:]), np.vstack([Z, X[58:]])
    options = {"alpha": 0.0, "memory": memory}
    model = pep.PEPRegression(rows, rough, points, noise_variance=0.04, **options)
    exact = gpflow.models.GPR((X, Y), rough, noise_variance=0.04).log_marginal_likelihood()
    assert model.pep_log_marginal_likelihood() > exact + 10.0
    point = pep.PEP(rows, rough, gpflow.likelihoods.Gaussian(0.04), points, **options)
    for refusing in (
        model.elbo,
        model.bound_gap,
        model.upper_bound,
        tf.function(model.elbo),
        point.elbo,
    ):
        with pytest.raises(ValueError, match=r"got a model with a memory, expected one that has"):
            refusing()
