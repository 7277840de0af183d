"""Predictions that use training rows: blocks (PIC) and near."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import (
    ALPHA_PER_BLOCK,
    NOISE_OFFSET,
    NOISE_SLOPE,
    OFFSET,
    SLOPE,
    SPARSE_LABELS,
    UNEVEN_BLOCKS,
    Case,
    N,
)
from gpflow.functions import Linear
from helpers import Array, assert_all_close, assert_close, assert_gradients
from reference import rows as context_reference

import gpflow_pep as pep
from gpflow_pep.engine.numerics.chunks import Reduction
from gpflow_pep.engine.predictions.context_rows import Context, predict_from_near_rows
from gpflow_pep.engine.prior import Parts

XNEW = np.random.default_rng(8).uniform(-2.5, 2.5, [9, 2])
NEW_BLOCKS = np.array([4, 0, 0, 2, 1, 4, 0, 4, 2])  # none in block 3
ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)
ALL = {"num_outputs": 2, "noise": "scale", "mean": "linear"}
BLOCK_CASES = {
    **{f"alpha {alpha:g}": Case(alpha, UNEVEN_BLOCKS) for alpha in ALPHAS},
    "everything": Case(ALPHA_PER_BLOCK, UNEVEN_BLOCKS, **ALL),
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


def of_cases(cases: dict[str, Case]) -> Any:
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


def _expected(
    case: Case, held: list[Any], same: Array | None, Xnew: Array = XNEW
) -> tuple[Array, Array]:
    mean, cov = context_reference.predict(context_reference.dense(case, Xnew), held, same)
    return mean + case.mean_at(Xnew), cov


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
    return [part for full in (False, True) for part in predict(*arguments, full, **options)]


def _in_variables(data: Any) -> tuple[tf.Variable, ...]:
    return tuple(tf.Variable(part, shape=[None, part.shape[1]], trainable=False) for part in data)


class TestBlocks:
    @of_cases(BLOCK_CASES)
    def test_equation(self, case: Case) -> None:
        held = [np.flatnonzero(label == UNEVEN_BLOCKS) for label in NEW_BLOCKS]
        expected = _expected(case, held, NEW_BLOCKS[:, None] == NEW_BLOCKS)
        model = case.model()
        _check(lambda **full: model.predict_f(XNEW, blocks=NEW_BLOCKS, **full), *expected)

    @pytest.mark.parametrize("num_outputs, noise", [(1, "constant"), (2, "variance")])
    def test_exact_for_the_model_of_pitc(self, num_outputs: int, noise: str) -> None:
        case = Case(alpha=1.0, blocks=UNEVEN_BLOCKS, num_outputs=num_outputs, noise=noise)
        dense = context_reference.dense(case, XNEW)
        expected = context_reference.pitc_conditional(dense, UNEVEN_BLOCKS, NEW_BLOCKS)
        model = case.model()
        _check(lambda **full: model.predict_f(XNEW, blocks=NEW_BLOCKS, **full), *expected)

    def test_nearest_centre(self) -> None:
        case = Case(blocks=SPARSE_LABELS)
        problem, names = case.problem, np.unique(SPARSE_LABELS)
        centres = np.stack([problem.X[name == SPARSE_LABELS].mean(axis=0) for name in names])
        scaled = (part / problem.lengthscales for part in (centres, XNEW))
        labels = names[np.concatenate(context_reference.nearest(*scaled, 1))]
        assert len(set(labels)) > 2
        actual, expected = (case.model().predict_f(XNEW, blocks=b) for b in ("nearest", labels))
        assert_all_close(actual, expected, rtol=1e-12)


class TestNeighbours:
    @pytest.mark.parametrize(
        "case, m",
        [
            *(pytest.param(case, 5, id=name) for name, case in ROW_CASES.items()),
            *(pytest.param(ROW_CASES["everything"], m, id=f"{m} near") for m in (1, N)),
        ],
    )
    def test_equation(self, case: Case, m: int) -> None:
        scaled = (part / case.problem.lengthscales for part in (case.problem.X, XNEW))
        held = context_reference.nearest(*scaled, m)
        expected = _expected(case, held, None)
        model = case.model()
        _check(lambda **full: model.predict_f(XNEW, near=m, **full), *expected)

    def test_exact_where_all_are_known(self) -> None:
        """Each training row given all before it, each new one given all: the exact process."""
        case = Case(alpha=1.0, noise="scale", num_outputs=2)
        dense, prior = context_reference.dense(case, XNEW), case.problem.prior()
        L, X, model = np.linalg.cholesky(prior.Kuu), case.problem.X, case.model()
        mean, cov = context_reference.vecchia_qu(dense, prior.Kuu)
        q = (np.linalg.solve(L, part) for part in (mean, np.linalg.cholesky(cov)))
        parts = Parts(model.kernel, model.inducing_variable, model.mean_function, None)
        rows = X, dense.R, dense.noise, np.ones(X.shape[1])
        context = Context(parts.whiten().W, *map(tf.constant, (*q, *rows)))
        index = tf.constant(np.tile(np.arange(N), [len(XNEW), 1]))
        actual = predict_from_near_rows(parts, context, tf.constant(XNEW), index, True)
        K, new = dense.Q + dense.D, slice(N, None)
        gain = np.linalg.solve(K[:N, :N] + np.diag(dense.noise), K[:N, new]).T
        assert_all_close(actual, (gain @ dense.R, K[new, new] - gain @ K[:N, new]))


@kinds
class TestBoth:
    def test_chunks_change_nothing(self, case: Case, options: dict[str, Any]) -> None:
        Xnew = np.vstack([XNEW, XNEW + 0.1, XNEW - 0.1])
        actual, expected = (
            _both(case.model(chunk_size=size).predict_f, Xnew, **options) for size in (10, None)
        )
        assert_all_close(actual, expected, rtol=1e-10)

    @pytest.mark.parametrize(
        "cache", ["tensor", *(pytest.param(c, marks=pytest.mark.slow) for c in ("variable", None))]
    )
    def test_posterior(self, case: Case, options: dict[str, Any], cache: str | None) -> None:
        model = case.model()
        posterior = model.posterior(cache, near=options.get("near", 0))
        assert isinstance(posterior, gpflow.posteriors.AbstractPosterior)
        expected = _both(model.predict_f, XNEW, **options)
        assert_all_close(_both(posterior.fused_predict_f, XNEW, **options), expected)
        if cache:
            assert_all_close(_both(posterior.predict_f, XNEW, **options), expected)

    def test_posterior_is_brought_up_to_date(self, case: Case, options: dict[str, Any]) -> None:
        model = case.model()
        model.data = X, _ = _in_variables(case.problem.data)
        posterior = model.posterior("variable", near=options.get("near", 0))
        before, _ = posterior.predict_f(XNEW, **options)
        X.assign(X.numpy()[::-1])
        model.kernel.lengthscales.assign([0.3, 1.9])
        assert np.max(np.abs(posterior.fused_predict_f(XNEW, **options)[0] - before)) > 1e-2
        posterior.update_cache()
        after = model.predict_f(XNEW, **options)
        assert_all_close(posterior.predict_f(XNEW, **options), after)

    def test_covariance_is_positive(self, case: Case, options: dict[str, Any]) -> None:
        Xnew = np.vstack([XNEW, XNEW + 1e-3, case.problem.X])
        _, cov = case.model().predict_f(Xnew, full_cov=True, **options)
        assert_close(cov, np.swapaxes(cov, 1, 2))
        assert np.min(np.linalg.eigvalsh(cov)) > -1e-10

    @pytest.mark.parametrize("full_cov", [False, pytest.param(True, marks=pytest.mark.slow)])
    @pytest.mark.near_copies
    def test_graphs_of_any_number_of_rows(
        self, case: Case, options: dict[str, Any], full_cov: bool
    ) -> None:
        model = case.model()
        predict = tf.function(
            lambda Xnew: model.predict_f(Xnew, full_cov, **options),
            input_signature=[tf.TensorSpec([None, None], tf.float64)],
        )
        for Xnew in (XNEW, XNEW[:1], XNEW[:0]):
            expected = model.predict_f(Xnew, full_cov, **options)
            for actual, wanted in zip(predict(Xnew), expected):
                np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-11)

    @pytest.mark.near_copies
    def test_data_of_any_number_of_rows(self, case: Case, options: dict[str, Any]) -> None:
        model = case.model()
        expected = model.predict_f(XNEW, **options)
        model.data = _in_variables(model.data)
        for predict in (model.predict_f, tf.function(model.predict_f)):
            assert_all_close(predict(XNEW, **options), expected)

    @pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_gradients(self, case: Case, options: dict[str, Any], compiled: bool) -> None:
        model = case.model(chunk_size=10)
        weights, Xnew = np.random.default_rng(3).standard_normal([len(XNEW), 2]), tf.Variable(XNEW)

        def value() -> tf.Tensor:
            return tf.add_n([tf.reduce_sum(weights * p) for p in model.predict_f(Xnew, **options)])

        variables = [Xnew, model.kernel.lengthscales.unconstrained_variable]
        value = tf.function(value) if compiled else value
        assert_gradients(value, variables, step=1e-4, rtol=1e-6, scale=0.1)

    def test_copies(self, case: Case, options: dict[str, Any]) -> None:
        model = case.model()
        posterior = model.posterior(near=options.get("near", 0))
        expected = posterior.predict_f(XNEW, **options)
        by_gpflow = gpflow.utilities.deepcopy
        for one in (by_gpflow(model), copy.deepcopy(posterior), by_gpflow(posterior)):
            assert_all_close(one.predict_f(XNEW, **options), expected)

    def test_not_where_rows_are_elsewhere(self, case: Case, options: dict[str, Any]) -> None:
        class Two(Reduction):
            count = 2

        model = case.model()
        model.reduction = Two()
        with pytest.raises(ValueError, match=r"(?s)got it where 2 processes.*expected one"):
            model.predict_f(XNEW, **options)
        model.posterior().predict_f(XNEW)


@pytest.mark.parametrize(
    "case, options",
    [
        pytest.param(*KINDS["blocks"], marks=pytest.mark.slow, id="blocks"),
        pytest.param(*KINDS["near"], id="near"),
    ],
)
class TestOneOfBoth:
    def test_saved_posterior(self, case: Case, options: dict[str, Any], tmp_path: Path) -> None:
        posterior = case.model().posterior("variable", near=options.get("near", 0))
        # In eager mode near are found by a tree, which has no place in the file.
        expected = posterior.predict_f(XNEW, **options)
        posterior.compiled = tf.function(
            lambda Xnew: posterior.predict_f(Xnew, **options),
            input_signature=[tf.TensorSpec([None, 2], tf.float64)],
        )
        tf.saved_model.save(posterior, str(tmp_path))
        loaded = tf.saved_model.load(str(tmp_path))
        assert_all_close(loaded.compiled(XNEW), expected)

    def test_float32(self, case: Case, options: dict[str, Any]) -> None:
        expected = case.model().predict_f(XNEW, **options)
        gpflow.config.set_default_float(np.float32)
        parts = (*case.problem.data, case.problem.Z, XNEW, SLOPE, OFFSET, NOISE_SLOPE, NOISE_OFFSET)
        X, Y, Z, Xnew, *linear = (part.astype(np.float32) for part in parts)
        model = pep.models.PEPRegression(
            (X, Y),
            case.problem.kernel(),
            Z,
            alpha=case.alpha,
            blocks=case.blocks,
            likelihood=gpflow.likelihoods.Gaussian(scale=Linear(*linear[2:])),
            mean_function=Linear(*linear[:2]),
        )
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


REFUSED: dict[str, tuple[Call, str]] = {
    "blocks without blocks": (_rows(blocks=NEW_BLOCKS), "without blocks, expected none"),
    "near with blocks": (_blocks(near=3), "got 3 for a model with blocks"),
    "both": (_blocks(near=3, blocks="nearest"), "got 3 for a model with blocks"),
    "unknown label": (_blocks(blocks=NEW_BLOCKS * 7 + 4), "expected labels of the 5 blocks"),
    "large label": (_blocks(blocks=NEW_BLOCKS + 2**40), "expected labels of the 5 blocks"),
    "another rule": (_blocks(blocks="next"), "got 'next', expected 'nearest' or"),
    "too few labels": (_blocks(blocks=SPARSE_LABELS[:3]), r"shape \(3,\), expected an int"),
    "labels in a column": (_blocks(blocks=NEW_BLOCKS[:, None]), r"shape \(9, 1\), expect"),
    "float labels": (_blocks(blocks=NEW_BLOCKS + 0.5), "got float64 .*expected an integer"),
    "no labels": (_blocks(blocks={"a": 1}), "expected an integer for each of the 9 rows"),
    **{
        f"near {near}": (_rows(near=near), f"got {near}, expected an integer from 0 to 17")
        for near in (N + 1, -1, 1.5, True)
    },
    "batched": (_rows(XNEW[None], near=3), "Xnew: got .*two axes"),
    "columns": (_rows(XNEW[:, :1], near=3), "Xnew: got .*the columns of the data"),
    "not finite": (
        _rows(np.where(np.arange(18).reshape(9, 2) == 5, np.nan, XNEW), near=3),
        "Xnew: got .*first at index 2",
    ),
    "posterior with blocks": (lambda: _of_blocks().posterior(near=3), "near: got 3"),
    "posterior of few rows": (lambda: _of_rows().posterior(near=18), "near: got 18"),
    "near of a posterior": (
        lambda: _of_rows().posterior(near=2).predict_f(XNEW, near=18),
        "near: got 18",
    ),
    "no cache": (
        lambda: _of_rows().posterior("nocache", near=2).predict_f(XNEW),
        "cache: got none",
    ),
}


@pytest.mark.parametrize("call, message", REFUSED.values(), ids=REFUSED)
def test_refused(call: Call, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


def test_refused_in_graphs() -> None:
    model = _of_blocks()
    predict = tf.function(
        lambda Xnew, blocks: model.predict_f(Xnew, blocks=blocks),
        input_signature=[tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None], tf.int64)],
    )
    good = NEW_BLOCKS * 7 + 3
    assert_all_close(predict(XNEW, good), model.predict_f(XNEW, blocks=good))
    for bad in (good + 1, good[:4]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="blocks: got"):
            predict(XNEW, bad)
    of_rows = _of_rows()
    predict = tf.function(lambda Xnew: of_rows.predict_f(Xnew, near=3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Check the new inputs"):
        predict(np.where(XNEW[0, 0] == XNEW, np.nan, XNEW))
