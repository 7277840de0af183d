"""Predictions that use training rows: blocks (PIC) and near."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import saved_and_loaded
from cases.regression import ALPHA_PER_BLOCK, SPARSE_LABELS, UNEVEN_BLOCKS, Case, N
from helpers import Array, assert_all_close, assert_close
from reference import rows as context_reference

import gpflow_pep as pep
from gpflow_pep.engine.numerics.chunks import Reduction
from gpflow_pep.engine.predictions.context_rows import Context, predict_from_near_rows
from gpflow_pep.engine.prior import Parts

XNEW = np.random.default_rng(8).uniform(-2.5, 2.5, [9, 2])
NEW_BLOCKS = np.array([4, 0, 0, 2, 1, 4, 0, 4, 2])  # none in block 3
BLOCK_CASES = {
    **{
        f"alpha {alpha:g}": Case(alpha=alpha, blocks=UNEVEN_BLOCKS)
        for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0)
    },
    "everything": Case(
        alpha=ALPHA_PER_BLOCK, blocks=UNEVEN_BLOCKS, num_outputs=2, noise="scale", mean="linear"
    ),
}
ROW_CASES = {
    **{f"alpha {alpha:g}": Case(alpha=alpha) for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0)},
    "everything": Case(alpha=np.linspace(0.0, 1.0, N), num_outputs=2, noise="scale", mean="linear"),
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
    options = [
        (False, False, np.tile(np.diag(cov)[:, None], [1, P])),
        (True, False, np.tile(cov, [P, 1, 1])),
        (False, True, np.stack([by_output[s, :, s] for s in range(S)])),
        (True, True, by_output),
    ]
    for full_cov, full_output_cov, expected in options if P > 1 else options[:2]:
        actual = predict(full_cov=full_cov, full_output_cov=full_output_cov)
        assert_close(actual[0], mean)
        assert_close(actual[1], expected)


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

    def test_one_block_is_the_exact_process(self) -> None:
        case = Case(alpha=1.0, blocks=np.zeros(N, dtype=int))
        problem = case.problem
        exact = problem.model(gpflow.models.GPR)
        model = case.model()
        for full_cov in (False, True):
            actual = model.predict_f(XNEW, full_cov, blocks=np.zeros(len(XNEW), dtype=int))
            assert_all_close(actual, exact.predict_f(XNEW, full_cov))

    def test_nearest_centre(self) -> None:
        case = Case(blocks=SPARSE_LABELS)
        problem, names = case.problem, np.unique(SPARSE_LABELS)
        centres = np.stack([problem.X[name == SPARSE_LABELS].mean(axis=0) for name in names])
        scaled = (part / problem.lengthscales for part in (centres, XNEW))
        labels = names[np.concatenate(context_reference.nearest(*scaled, 1))]
        assert len(set(labels)) > 2
        model = case.model()
        assert_all_close(
            model.predict_f(XNEW, blocks="nearest"),
            model.predict_f(XNEW, blocks=labels),
            rtol=1e-12,
        )

    def test_without_blocks_it_is_what_it_was(self) -> None:
        case = BLOCK_CASES["everything"]
        model = case.model()
        dense = context_reference.dense(case, XNEW)
        expected = dense.C[N:] @ dense.qu_mean + case.mean_at(XNEW)
        for mean, _ in (model.predict_f(XNEW), model.posterior().predict_f(XNEW)):
            assert_close(mean, expected)

    def test_a_toy_with_too_few_points(self) -> None:
        """Snelson & Ghahramani's reason for PIC."""
        rng = np.random.default_rng(0)
        X = np.sort(rng.uniform(0.0, 30.0, [300, 1]), axis=0)
        Xnew = rng.uniform(0.0, 30.0, [200, 1])

        def f(X: Array) -> Array:
            return np.sin(3.0 * X) + 0.5 * np.cos(7.0 * X)

        model = pep.models.PEPRegression(
            (X, f(X) + 0.05 * rng.standard_normal(X.shape)),
            gpflow.kernels.SquaredExponential(lengthscales=0.3),
            np.linspace(0.0, 30.0, 15)[:, None],
            alpha=1.0,
            noise_variance=0.05**2,
            blocks=np.arange(300) // 20,
        )
        pitc, pic = (
            float(pep.metrics.smse(f(Xnew), model.predict_f(Xnew, blocks=blocks)[0]))
            for blocks in (None, "nearest")
        )
        assert pitc > 0.5
        assert pic < 0.05


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
        L = np.linalg.cholesky(prior.Kuu)
        mean, cov = context_reference.vecchia_qu(dense, prior.Kuu)
        root = np.linalg.cholesky(cov)
        model = case.model()
        parts = Parts(model.kernel, model.inducing_variable, model.mean_function, None)
        X = case.problem.X
        context = Context(
            parts.whiten().W,
            *map(tf.constant, (np.linalg.solve(L, mean), np.linalg.solve(L, root))),
            *map(tf.constant, (X, dense.R, dense.noise, np.ones(X.shape[1]))),
        )
        index = tf.constant(np.tile(np.arange(N), [len(XNEW), 1]))
        actual = predict_from_near_rows(parts, context, tf.constant(XNEW), index, True)
        K, new = dense.Q + dense.D, slice(N, None)
        gain = np.linalg.solve(K[:N, :N] + np.diag(dense.noise), K[:N, new]).T
        assert_close(actual[0], gain @ dense.R)
        assert_close(actual[1], K[new, new] - gain @ K[:N, new])

    def test_predictions_alone_improve(self) -> None:
        """A rough function that few points cannot follow."""
        rng = np.random.default_rng(1)
        X = rng.uniform(-3.0, 3.0, [600, 2])
        kernel = gpflow.kernels.Matern12(lengthscales=[0.7, 1.4])
        root = np.linalg.cholesky(kernel(X).numpy() + 1e-9 * np.eye(600))
        f = root @ rng.standard_normal([600, 1])
        Y = f + 0.1 * rng.standard_normal(f.shape)
        model = pep.models.PEPRegression(
            (X[:400], Y[:400]), kernel, X[:20].copy(), alpha=0.5, noise_variance=0.01
        )
        errors = [
            float(pep.metrics.smse(f[400:], model.predict_f(X[400:], near=m)[0])) for m in (0, 10)
        ]
        assert errors[1] < 0.6 * errors[0]


@kinds
class TestBoth:
    def test_chunks_change_nothing(self, case: Case, options: dict[str, Any]) -> None:
        Xnew = np.vstack([XNEW, XNEW + 0.1, XNEW - 0.1])
        whole = [case.model().predict_f(Xnew, full_cov, **options) for full_cov in (False, True)]
        model = case.model(chunk_size=10)
        for full_cov, expected in zip((False, True), whole):
            assert_all_close(model.predict_f(Xnew, full_cov, **options), expected, rtol=1e-10)

    @pytest.mark.parametrize(
        "cache", ["tensor", *(pytest.param(c, marks=pytest.mark.slow) for c in ("variable", None))]
    )
    def test_posterior(self, case: Case, options: dict[str, Any], cache: str | None) -> None:
        model = case.model()
        posterior = model.posterior(cache, near=options.get("near", 0))
        methods = [posterior.fused_predict_f]
        if cache:
            methods.append(posterior.predict_f)
        for full_cov in (False, True):
            expected = model.predict_f(XNEW, full_cov, **options)
            for method in methods:
                assert_all_close(method(XNEW, full_cov, **options), expected)
        assert isinstance(posterior, gpflow.posteriors.AbstractPosterior)

    def test_posterior_is_brought_up_to_date(self, case: Case, options: dict[str, Any]) -> None:
        X, Y = (
            tf.Variable(part, shape=[None, part.shape[1]], trainable=False)
            for part in case.problem.data
        )
        model = case.model()
        model.data = X, Y
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
        model.data = tuple(
            tf.Variable(part, shape=[None, part.shape[1]], trainable=False) for part in model.data
        )
        for predict in (model.predict_f, tf.function(model.predict_f)):
            assert_all_close(predict(XNEW, **options), expected)

    @pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_gradients(self, case: Case, options: dict[str, Any], compiled: bool) -> None:
        model = case.model(chunk_size=10)
        weights = np.random.default_rng(3).standard_normal([len(XNEW), 2])
        Xnew, lengthscales = tf.constant(XNEW), model.kernel.lengthscales

        def value(Xnew: tf.Tensor) -> tf.Tensor:
            mean, variance = model.predict_f(Xnew, **options)
            return tf.reduce_sum(weights * mean) + tf.reduce_sum(weights * variance)

        value = tf.function(value) if compiled else value
        with tf.GradientTape() as tape:
            tape.watch(Xnew)
            result = value(Xnew)
        by_X, by_scales = tape.gradient(result, [Xnew, lengthscales.unconstrained_variable])
        step = 1e-5
        shift = np.zeros_like(XNEW)
        shift[5, 1] = step
        difference = (value(Xnew + shift) - value(Xnew - shift)) / (2.0 * step)
        assert float(by_X[5, 1]) == pytest.approx(float(difference), rel=1e-6, abs=1e-7)
        variable = lengthscales.unconstrained_variable
        values = []
        for sign in (1.0, -1.0):
            variable.assign_add([sign * step, 0.0])
            values.append(float(value(Xnew)))
            variable.assign_add([-sign * step, 0.0])
        difference = (values[0] - values[1]) / (2.0 * step)
        assert float(by_scales[0]) == pytest.approx(difference, rel=1e-6, abs=1e-7)

    def test_copies(self, case: Case, options: dict[str, Any]) -> None:
        model = case.model()
        posterior = model.posterior(near=options.get("near", 0))
        expected = posterior.predict_f(XNEW, **options)
        for one in (
            gpflow.utilities.deepcopy(model),
            copy.deepcopy(posterior),
            gpflow.utilities.deepcopy(posterior),
        ):
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
    @pytest.mark.slow
    def test_saved_model(self, case: Case, options: dict[str, Any], tmp_path: Path) -> None:
        model = case.model()
        expected = model.predict_f(XNEW, **options)
        model.chosen = lambda Xnew, predict=model.predict_f: predict(Xnew, **options)
        loaded = saved_and_loaded(model, "chosen", str(tmp_path))
        assert_all_close(loaded.compiled(XNEW), expected)

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
        problem = case.problem
        X, Y, Z, Xnew = (part.astype(np.float32) for part in (*problem.data, problem.Z, XNEW))
        scale = gpflow.functions.Linear(np.float32([[0.05], [0.03]]), np.float32([0.4]))
        model = pep.models.PEPRegression(
            (X, Y),
            problem.kernel(),
            Z,
            alpha=case.alpha,
            blocks=case.blocks,
            likelihood=gpflow.likelihoods.Gaussian(scale=scale),
            mean_function=gpflow.functions.Linear(np.float32([[0.3], [-0.2]]), np.float32([0.1])),
        )
        for predict in (model.predict_f, tf.function(model.predict_f)):
            for actual, wanted in zip(predict(Xnew, **options), expected):
                assert actual.dtype == tf.float32
                assert_close(actual, wanted, rtol=2e-3)


def _of_rows() -> "pep.models.PEPRegression":
    return Case().model()


def _of_blocks() -> "pep.models.PEPRegression":
    return Case(blocks=SPARSE_LABELS).model()


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "blocks without blocks": (_of_rows, {"blocks": NEW_BLOCKS}, "without blocks, expected none"),
    "near with blocks": (_of_blocks, {"near": 3}, "got 3 for a model with blocks"),
    "both": (_of_blocks, {"near": 3, "blocks": "nearest"}, "got 3 for a model with blocks"),
    "unknown label": (
        _of_blocks,
        {"blocks": NEW_BLOCKS * 7 + 4},
        "expected labels of the 5 blocks",
    ),
    "large label": (_of_blocks, {"blocks": NEW_BLOCKS + 2**40}, "expected labels of the 5 blocks"),
    "another rule": (_of_blocks, {"blocks": "next"}, "got 'next', expected 'nearest' or"),
    "too few labels": (_of_blocks, {"blocks": SPARSE_LABELS[:3]}, r"shape \(3,\), expected an int"),
    "labels in a column": (_of_blocks, {"blocks": NEW_BLOCKS[:, None]}, r"shape \(9, 1\), expect"),
    "float labels": (_of_blocks, {"blocks": NEW_BLOCKS + 0.5}, "got float64 .*expected an integer"),
    "no labels": (_of_blocks, {"blocks": {"a": 1}}, "expected an integer for each of the 9 rows"),
    "too many": (_of_rows, {"near": N + 1}, "got 18, expected an integer from 0 to 17"),
    "negative": (_of_rows, {"near": -1}, "got -1, expected an integer from 0 to 17"),
    "half": (_of_rows, {"near": 1.5}, "got 1.5, expected an integer from 0 to 17"),
    "truth": (_of_rows, {"near": True}, "got True, expected an integer from 0 to 17"),
}


class TestRefused:
    @pytest.mark.parametrize("create, options, message", REFUSED.values(), ids=REFUSED)
    def test_by_predictions(
        self, create: Callable[[], Any], options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=f"(?s){message}"):
            create().predict_f(XNEW, **options)

    @pytest.mark.parametrize("near", [3, N + 1])
    def test_by_the_posterior(self, near: int) -> None:
        for create in (_of_blocks, _of_rows) if near > N else (_of_blocks,):
            with pytest.raises(ValueError, match=f"near: got {near}"):
                create().posterior(near=near)
        if near > N:
            with pytest.raises(ValueError, match=f"near: got {near}"):
                _of_rows().posterior(near=2).predict_f(XNEW, near=near)

    def test_no_cache(self) -> None:
        with pytest.raises(ValueError, match="cache: got none"):
            _of_rows().posterior("nocache", near=2).predict_f(XNEW)

    @pytest.mark.parametrize(
        "Xnew, message",
        [
            (XNEW[None], "two axes"),
            (XNEW[:, :1], "the columns of the data"),
            (np.where(np.arange(18).reshape(9, 2) == 5, np.nan, XNEW), "first at index 2"),
        ],
        ids=["batched", "columns", "not finite"],
    )
    def test_new_rows(self, Xnew: Array, message: str) -> None:
        with pytest.raises(ValueError, match=f"Xnew: got .*{message}"):
            _of_rows().predict_f(Xnew, near=3)

    def test_in_graphs(self) -> None:
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

    def test_nan_in_graphs(self) -> None:
        model = _of_rows()
        predict = tf.function(lambda Xnew: model.predict_f(Xnew, near=3))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Check the new inputs"):
            predict(np.where(XNEW[0, 0] == XNEW, np.nan, XNEW))
