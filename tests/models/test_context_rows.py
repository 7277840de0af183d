"""Predictions that use training rows: blocks (PIC), and near ones, also of any
likelihood.
"""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from cases import regression as cases
from cases.pep import probit_log_density
from cases.regression import SPARSE_LABELS, UNEVEN_BLOCKS, Case, N
from gpflow.functions import Linear
from helpers import Array, assert_all_close, assert_close, assert_gradients, refusals
from reference import groups
from reference import rows as context_reference
from scipy.stats import multivariate_normal

import gpflow_pep as pep
from gpflow_pep.engine.predictions.context_rows import Context, predict_from_near_rows
from gpflow_pep.engine.prior import Parts

XNEW = np.random.default_rng(8).uniform(-2.5, 2.5, [9, 2])
NEW_BLOCKS = np.array([4, 0, 0, 2, 1, 4, 0, 4, 2])  # none in block 3
ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)
ALL = {"num_outputs": 2, "noise": "scale", "mean": "linear"}
BLOCK_CASES = {
    **{f"alpha {alpha:g}": Case(alpha, UNEVEN_BLOCKS) for alpha in ALPHAS},
    "everything": Case(cases.ALPHA_PER_BLOCK, UNEVEN_BLOCKS, **ALL),
}
ROW_CASES = {
    **{f"alpha {alpha:g}": Case(alpha) for alpha in ALPHAS},
    "everything": Case(np.linspace(0.0, 1.0, N), **ALL),
}
#: How each kind of model is asked for held rows.
KINDS: dict[str, tuple[Case, dict[str, Any]]] = {
    "blocks": (BLOCK_CASES["everything"], {"blocks": "nearest"}),
    "near": (ROW_CASES["everything"], {"near": 4}),
}
kinds = pytest.mark.parametrize("case, options", KINDS.values(), ids=KINDS)


def _expected(case: Case, held: list[Any], same: Array | None) -> tuple[Array, Array]:
    mean, cov = context_reference.predict(
        context_reference.dense(case, XNEW), held, same
    )
    return mean + case.mean_at(XNEW), cov


def _check(predict: Callable[..., Any], mean: Array, cov: Array) -> None:
    """Against mean [S, P] and covariance [S, S], whatever is asked for."""
    S, P = mean.shape
    by_output = np.einsum("ab,pq->apbq", cov, np.eye(P))
    options = {
        (False, False): np.tile(np.diag(cov)[:, None], [1, P]),
        (True, False): np.tile(cov, [P, 1, 1]),
        (False, True): np.stack([by_output[s, :, s] for s in range(S)]),
        (True, True): by_output,
    }
    for (full_cov, full_output_cov), expected in options.items():
        if P > 1 or not full_output_cov:
            actual = predict(full_cov=full_cov, full_output_cov=full_output_cov)
            assert_all_close(actual, (mean, expected))


def _both(predict: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    """Of variances and of covariances."""
    return [
        part for full in (False, True) for part in predict(*arguments, full, **options)
    ]


def _in_variables(data: Any) -> tuple[tf.Variable, ...]:
    return tuple(
        tf.Variable(part, shape=[None, part.shape[1]], trainable=False) for part in data
    )


class TestBlocks:
    @pytest.mark.parametrize("name", BLOCK_CASES)
    def test_equation(self, name: str) -> None:
        case = BLOCK_CASES[name]
        held = [np.flatnonzero(label == UNEVEN_BLOCKS) for label in NEW_BLOCKS]
        expected = _expected(case, held, NEW_BLOCKS[:, None] == NEW_BLOCKS)
        _check(partial(case.model().predict_f, XNEW, blocks=NEW_BLOCKS), *expected)

    @pytest.mark.parametrize("num_outputs, noise", [(1, "constant"), (2, "variance")])
    def test_exact_for_the_model_of_pitc(self, num_outputs: int, noise: str) -> None:
        case = Case(
            alpha=1.0, blocks=UNEVEN_BLOCKS, num_outputs=num_outputs, noise=noise
        )
        dense = context_reference.dense(case, XNEW)
        expected = context_reference.pitc_conditional(dense, UNEVEN_BLOCKS, NEW_BLOCKS)
        _check(partial(case.model().predict_f, XNEW, blocks=NEW_BLOCKS), *expected)

    def test_nearest_centre(self) -> None:
        case = Case(blocks=SPARSE_LABELS)
        problem = case.problem
        names = np.unique(SPARSE_LABELS)
        centres = np.stack(
            [problem.X[name == SPARSE_LABELS].mean(axis=0) for name in names]
        )
        scaled = (part / problem.lengthscales for part in (centres, XNEW))
        labels = names[np.concatenate(context_reference.nearest(*scaled, 1))]
        assert len(set(labels)) > 2
        actual, expected = (
            case.model().predict_f(XNEW, blocks=b) for b in ("nearest", labels)
        )
        assert_all_close(actual, expected, rtol=1e-12)


class TestNeighbours:
    @pytest.mark.parametrize(
        "name, m",
        [*((name, 5) for name in ROW_CASES), *(("everything", m) for m in (1, N))],
    )
    def test_equation(self, name: str, m: int) -> None:
        case = ROW_CASES[name]
        scaled = (part / case.problem.lengthscales for part in (case.problem.X, XNEW))
        expected = _expected(case, context_reference.nearest(*scaled, m), None)
        _check(partial(case.model().predict_f, XNEW, near=m), *expected)

    def test_exact_where_all_are_known(self) -> None:
        """Each training row given all before it, each new one given all: the exact
        process.
        """
        case = Case(alpha=1.0, noise="scale", num_outputs=2)
        dense = context_reference.dense(case, XNEW)
        prior = case.problem.prior()
        L = np.linalg.cholesky(prior.Kuu)
        X = case.problem.X
        model = case.model()
        mean, cov = context_reference.vecchia_qu(dense, prior.Kuu)
        q = (np.linalg.solve(L, part) for part in (mean, np.linalg.cholesky(cov)))
        parts = Parts(model.kernel, model.inducing_variable, model.mean_function, None)
        rows = X, dense.R, dense.noise, np.ones(X.shape[1])
        context = Context(parts.whiten().L, *map(tf.constant, (*q, *rows)))
        index = tf.constant(np.tile(np.arange(N), [len(XNEW), 1]))
        actual = predict_from_near_rows(parts, context, tf.constant(XNEW), index, True)
        K = dense.Q + dense.D
        new = slice(N, None)
        gain = np.linalg.solve(K[:N, :N] + np.diag(dense.noise), K[:N, new]).T
        assert_all_close(actual, (gain @ dense.R, K[new, new] - gain @ K[:N, new]))


@kinds
class TestBoth:
    @pytest.mark.near_copies("near")
    def test_chunks_change_nothing(self, case: Case, options: dict[str, Any]) -> None:
        Xnew = np.vstack([XNEW, XNEW + 0.1, XNEW - 0.1])
        actual, expected = (
            _both(case.model(chunk_size=size).predict_f, Xnew, **options)
            for size in (10, None)
        )
        assert_all_close(actual, expected, rtol=1e-10)

    @pytest.mark.near_copies("tensor-near")
    @pytest.mark.parametrize(
        "cache",
        [
            "tensor",
            *(pytest.param(c, marks=pytest.mark.slow) for c in ("variable", None)),
        ],
    )
    def test_posterior(
        self, case: Case, options: dict[str, Any], cache: str | None
    ) -> None:
        model = case.model()
        posterior = model.posterior(cache, near=options.get("near", 0))
        assert isinstance(posterior, gpflow.posteriors.AbstractPosterior)
        expected = _both(model.predict_f, XNEW, **options)
        copies = [
            copy_of(posterior) for copy_of in (copy.deepcopy, gpflow.utilities.deepcopy)
        ]
        for one in (posterior, *copies):
            assert_all_close(_both(one.fused_predict_f, XNEW, **options), expected)
            if cache:
                assert_all_close(_both(one.predict_f, XNEW, **options), expected)
        twin = gpflow.utilities.deepcopy(model)
        assert_all_close(_both(twin.predict_f, XNEW, **options), expected)

    def test_posterior_is_brought_up_to_date(
        self, case: Case, options: dict[str, Any]
    ) -> None:
        model = case.model()
        model.data = X, _ = _in_variables(case.problem.data)
        posterior = model.posterior("variable", near=options.get("near", 0))
        before, _ = posterior.predict_f(XNEW, **options)
        X.assign(X.numpy()[::-1])
        model.kernel.lengthscales.assign([0.3, 1.9])
        assert (
            np.max(np.abs(posterior.fused_predict_f(XNEW, **options)[0] - before))
            > 1e-2
        )
        posterior.update_cache()
        after = model.predict_f(XNEW, **options)
        assert_all_close(posterior.predict_f(XNEW, **options), after)

    def test_covariance_is_positive(self, case: Case, options: dict[str, Any]) -> None:
        Xnew = np.vstack([XNEW, XNEW + 1e-3, case.problem.X])
        _, cov = case.model().predict_f(Xnew, full_cov=True, **options)
        assert_close(cov, np.swapaxes(cov, 1, 2))
        assert np.min(np.linalg.eigvalsh(cov)) > -1e-10

    @pytest.mark.parametrize(
        "full_cov", [False, pytest.param(True, marks=pytest.mark.slow)]
    )
    @pytest.mark.near_copies
    def test_any_number_of_rows(
        self, case: Case, options: dict[str, Any], full_cov: bool
    ) -> None:
        """In graphs: of new ones, and of the data."""
        model = case.model()
        spec = [tf.TensorSpec([None, None], tf.float64)]
        predict = partial(model.predict_f, full_cov=full_cov, **options)
        graph = tf.function(lambda Xnew: predict(Xnew), input_signature=spec)
        for Xnew in (XNEW, XNEW[:1], XNEW[:0]):
            for actual, wanted in zip(graph(Xnew), predict(Xnew)):
                np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-11)
        expected = predict(XNEW)
        model.data = _in_variables(model.data)
        for one in (predict, tf.function(lambda Xnew: predict(Xnew))):
            assert_all_close(one(XNEW), expected)

    @pytest.mark.near_copies("False-near")
    @pytest.mark.parametrize(
        "compiled", [False, pytest.param(True, marks=pytest.mark.slow)]
    )
    def test_gradients(
        self, case: Case, options: dict[str, Any], compiled: bool
    ) -> None:
        model = case.model(chunk_size=10)
        weights = np.random.default_rng(3).standard_normal([len(XNEW), 2])
        Xnew = tf.Variable(XNEW)

        def value() -> tf.Tensor:
            return tf.add_n(
                [tf.reduce_sum(weights * p) for p in model.predict_f(Xnew, **options)]
            )

        variables = [Xnew, model.kernel.lengthscales.unconstrained_variable]
        value = tf.function(value) if compiled else value
        assert_gradients(value, variables, step=1e-4, rtol=1e-6, scale=0.1)


@pytest.mark.parametrize(
    "case, options",
    [
        pytest.param(*KINDS["blocks"], marks=pytest.mark.slow, id="blocks"),
        pytest.param(*KINDS["near"], id="near"),
    ],
)
class TestOneOfBoth:
    def test_saved_posterior(
        self, case: Case, options: dict[str, Any], tmp_path: Path
    ) -> None:
        posterior = case.model().posterior("variable", near=options.get("near", 0))
        # In eager mode near are found by a tree, which has no place in the file.
        expected = posterior.predict_f(XNEW, **options)
        predict = partial(posterior.predict_f, **options)
        spec = tf.TensorSpec([None, 2], tf.float64)
        posterior.compiled = tf.function(
            lambda Xnew: predict(Xnew), input_signature=[spec]
        )
        tf.saved_model.save(posterior, str(tmp_path))
        loaded = tf.saved_model.load(str(tmp_path))
        assert_all_close(loaded.compiled(XNEW), expected)

    def test_float32(self, case: Case, options: dict[str, Any]) -> None:
        expected = case.model().predict_f(XNEW, **options)
        gpflow.config.set_default_float(np.float32)
        linear = cases.SLOPE, cases.OFFSET, cases.NOISE_SLOPE, cases.NOISE_OFFSET
        parts = (*case.problem.data, case.problem.Z, XNEW, *linear)
        X, Y, Z, Xnew, *linear = (part.astype(np.float32) for part in parts)
        likelihood = gpflow.likelihoods.Gaussian(scale=Linear(*linear[2:]))
        of_case = {"alpha": case.alpha, "blocks": case.blocks, "likelihood": likelihood}
        parts = (X, Y), case.problem.kernel(), Z
        model = pep.PEPRegression(*parts, mean_function=Linear(*linear[:2]), **of_case)
        for predict in (model.predict_f, tf.function(model.predict_f)):
            actual = predict(Xnew, **options)
            assert all(part.dtype == tf.float32 for part in actual)
            assert_all_close(actual, expected, rtol=2e-3)


_of_rows = Case().model
_of_blocks = Case(blocks=SPARSE_LABELS).model
Call = Callable[[], Any]


def _rows(Xnew: Any = XNEW, **options: Any) -> Call:
    return lambda: _of_rows().predict_f(Xnew, **options)


def _blocks(**options: Any) -> Call:
    return lambda: _of_blocks().predict_f(XNEW, **options)


UNSEEN = np.where(np.arange(18).reshape(9, 2) == 5, np.nan, XNEW)
REFUSED = {
    "without blocks, expected none": _rows(blocks=NEW_BLOCKS),
    "got 3 for a model with blocks": _blocks(near=3),
    "near: got 3 for a model with blocks": _blocks(near=3, blocks="nearest"),
    "expected labels of the 5 blocks": _blocks(blocks=NEW_BLOCKS * 7 + 4),
    "blocks: got .*expected labels of the 5 blocks": _blocks(blocks=NEW_BLOCKS + 2**40),
    "got 'next', expected 'nearest' or": _blocks(blocks="next"),
    r"shape \(3,\), expected an int": _blocks(blocks=SPARSE_LABELS[:3]),
    r"shape \(9, 1\), expect": _blocks(blocks=NEW_BLOCKS[:, None]),
    "got float64 .*expected an integer": _blocks(blocks=NEW_BLOCKS + 0.5),
    "expected an integer for each of the 9 rows": _blocks(blocks={"a": 1}),
    **{
        f"got {near}, expected an integer from 0 to 17": _rows(near=near)
        for near in (N + 1, -1, 1.5, True)
    },
    "Xnew: got .*two axes": _rows(XNEW[None], near=3),
    "Xnew: got .*the columns of the data": _rows(XNEW[:, :1], near=3),
    "Xnew: got .*first at index 2": _rows(UNSEEN, near=3),
    "near: got 3": lambda: _of_blocks().posterior(near=3),
    "near: got 18": lambda: _of_rows().posterior(near=18),
    "near: got 18,": lambda: _of_rows().posterior(near=2).predict_f(XNEW, near=18),
    "cache: got none": lambda: _of_rows().posterior("nocache", near=2).predict_f(XNEW),
}
test_refused = refusals(REFUSED)


@pytest.mark.slow
def test_refused_in_graphs() -> None:
    model = _of_blocks()
    spec = [tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None], tf.int64)]

    def of_labels(Xnew, blocks):
        return model.predict_f(Xnew, blocks=blocks)

    predict = tf.function(of_labels, input_signature=spec)
    good = NEW_BLOCKS * 7 + 3
    assert_all_close(predict(XNEW, good), model.predict_f(XNEW, blocks=good))
    for bad in (good + 1, good[:4]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="blocks: got"):
            predict(XNEW, bad)
    of_rows = _of_rows()
    predict = tf.function(lambda Xnew: of_rows.predict_f(Xnew, near=3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Check the new inputs"):
        predict(np.where(XNEW[0, 0] == XNEW, np.nan, XNEW))


# Of any likelihood, and training for these.

RNG = np.random.default_rng(0)
INPUTS = RNG.uniform(-2.0, 2.0, (60, 2))
NEW = RNG.uniform(-2.0, 2.0, (7, 2))
F = np.sin(3.0 * INPUTS[:, :1]) + INPUTS[:, 1:] + 0.3 * RNG.standard_normal((60, 1))
LABELS = 1.0 * (F > 0.0)


def _of_labels(alpha: Any = 0.5, rows: int = 60, **options: Any) -> pep.PEP:
    kernel = gpflow.kernels.Matern32(variance=3.0, lengthscales=[0.5, 1.3])
    bernoulli = gpflow.likelihoods.Bernoulli()
    Z = INPUTS[:4].copy()
    data = (INPUTS[:rows], LABELS[:rows])
    mean = gpflow.functions.Constant(0.2)
    return pep.PEP(
        data, kernel, bernoulli, Z, alpha=alpha, mean_function=mean, **options
    )


def _given_near(model: pep.PEP, m: int, alpha: float) -> Array:
    """Each new row given its m nearest rows, densely."""
    moments = []
    scales = [0.5, 1.3]
    for new in NEW:
        near = np.argsort(np.sum(((INPUTS - new) / scales) ** 2, axis=1))[:m]
        K = model.kernel(np.concatenate([new[None], INPUTS[near]])).numpy()
        factors = [partial(probit_log_density, y=y) for y in LABELS[near, 0]]
        nu, tau = groups.fixed_point(factors, np.full(m, 0.2), K[1:, 1:], alpha, 80)
        gain = np.linalg.solve(K[1:, 1:] + np.diag(1.0 / tau), K[1:, 0])
        moments.append([0.2 + gain @ (nu / tau - 0.2), K[0, 0] - gain @ K[1:, 0]])
    return np.array(moments)


@pytest.mark.near_copies("0.0", "0.5")
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.3, 0.5, 1.0])
def test_equation(alpha: float) -> None:
    model = _of_labels(alpha)
    actual = np.hstack(model.predict_f(NEW, near=5))
    # Sites stop when means move by less than 1e-4 standard deviations, see
    # sites.groups.
    np.testing.assert_allclose(actual, _given_near(model, 5, alpha), atol=1e-3)


def test_posterior_and_graph_and_powers_of_rows_are_the_same() -> None:
    model = _of_labels(1.0)
    expected = model.predict_f(NEW, near=5)
    graph = tf.function(lambda x: model.predict_f(x, near=5), autograph=False)
    assert_all_close(model.posterior(near=5).predict_f(NEW), expected, rtol=1e-8)
    assert_all_close(graph(tf.constant(NEW)), expected, rtol=1e-8)
    assert_all_close(
        _of_labels(np.ones(60)).predict_f(NEW, near=5), expected, rtol=1e-6
    )
    with pytest.raises(
        ValueError, match="full_cov: got True with near rows of a likelihood"
    ):
        model.predict_f(NEW, full_cov=True, near=5)


def test_density_of_rows_with_gaussian_noise() -> None:
    kernel = gpflow.kernels.Matern32(lengthscales=[0.5, 1.3])
    model = pep.PEPRegression(
        (INPUTS, LABELS), kernel, INPUTS[:4].copy(), noise_variance=0.3
    )
    index = np.array([3, 8])
    near = np.array([[1, 2, 40], [5, 7, 9]])
    actual = model.near_row_log_density(tf.constant(index), tf.constant(near))
    for n, others, value in zip(index, near, actual, strict=True):
        rows = np.array([n, *others])
        K = kernel(INPUTS[rows]).numpy() + 0.3 * np.eye(4)
        joint = multivariate_normal.logpdf(LABELS[rows, 0], cov=K)
        expected = joint - multivariate_normal.logpdf(LABELS[others, 0], cov=K[1:, 1:])
        np.testing.assert_allclose(value, expected, rtol=1e-8)


@pytest.mark.near_copies("True")
@pytest.mark.parametrize("labels", [False, True])
def test_gradient(labels: bool) -> None:
    """Exact with Gaussian noise; with sites, but for what those before the last sweep
    would add.
    """
    model: Any = _of_labels(1.0)
    if not labels:
        model = pep.PEPRegression(
            (INPUTS, LABELS), model.kernel, INPUTS[:4].copy(), noise_variance=0.3
        )
    loss = model.near_row_training_loss_closure(5, batch_size=30)
    batch = next(iter(loss.epoch(0)))
    parts = model.kernel, model.mean_function, model.likelihood
    variables = [v for part in parts for v in part.trainable_variables]
    rtol = 0.1 if labels else 1e-5
    assert_gradients(
        lambda: loss.of_batch(batch), variables, step=1e-4, rtol=rtol, scale=1.0
    )


def test_neighbours_are_others_and_nearest() -> None:
    model = _of_labels()
    index, near = next(
        iter(model.near_row_training_loss_closure(5, batch_size=60).epoch(0))
    )
    assert sorted(index.numpy()) == list(range(60))
    scaled = INPUTS / [0.5, 1.3]
    for n, others in zip(index.numpy(), near.numpy(), strict=True):
        order = np.argsort(np.sum((scaled - scaled[n]) ** 2, axis=1))
        assert n not in others
        assert set(others) == set(order[1:6])


@pytest.mark.slow
def test_training_for_near_rows() -> None:
    """Rows that alternate at a scale which few inducing points cannot follow."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1.0, 1.0, (1200, 2))
    labels = 1.0 * (np.sin(25.0 * inputs[:, :1]) > 0.0)
    kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])
    data = inputs[:1000], labels[:1000]
    model = pep.PEP(
        data, kernel, gpflow.likelihoods.Bernoulli(), inputs[:5].copy(), alpha=1.0
    )

    def errors() -> float:
        mean, _ = model.predict_f(inputs[1000:], near=10)
        return float(np.mean((mean.numpy() > 0.0) != labels[1000:]))

    before = errors()
    loss = model.near_row_training_loss_closure(10, batch_size=100)
    optimizer = tf_keras.optimizers.Adam(0.2)
    pep.training.fit(model, loss, num_steps=40, optimizer=optimizer, progress=False)
    lengthscales = model.kernel.lengthscales.numpy()
    assert errors() < 0.7 * before
    assert lengthscales[0] < 0.3 * lengthscales[1]
