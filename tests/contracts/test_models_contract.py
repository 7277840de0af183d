"""What every model of the package has in common with GPflow's models.

A new model joins by one line in ``cases.models.MODELS`` (and one in ``BY_CHUNKS``, where it sums
over chunks of rows); a test checks that none is forgotten.
"""

import copy
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases.models import (
    BY_CHUNKS,
    ENOUGH,
    MODELS,
    NEARLY_ANOTHER,
    WHOLE_CHAIN,
    XNEW,
    Compiled,
    D,
    Data,
    ModelCase,
    N,
    Z,
    borrowed,
    but,
    first_kernel,
    kernel,
    loss_closure,
    params,
    points,
    saved_and_loaded,
)
from gpflow.models.training_mixins import (
    ExternalDataTrainingLossMixin,
    InternalDataTrainingLossMixin,
)
from helpers import Array, assert_all_close, assert_close, gradients, value_and_gradients
from tf_keras.optimizers import Adam

import gpflow_pep as pep
from gpflow_pep.engine.numerics.linalg import JitterWarning

also_by_chunks = pytest.mark.parametrize("case", params([*MODELS, *BY_CHUNKS]))
of_gpflow = pytest.mark.parametrize("case", params(MODELS, slow=but(*ENOUGH)))
#: With the class that shares PEP's code among the fast tests, in `test_all_that_a_user_does`.
but_pep = params([*MODELS, *BY_CHUNKS], slow=("PEP", *NEARLY_ANOTHER))


@pytest.fixture(params=params(MODELS))
def case(request: pytest.FixtureRequest) -> ModelCase:
    return request.param


@pytest.fixture
def data(case: ModelCase) -> Data:
    return case.data(0)


@pytest.fixture
def model(case: ModelCase, data: Data) -> gpflow.models.GPModel:
    return case.create(data, Z)


@pytest.fixture
def compiled(case: ModelCase) -> Iterator[Compiled]:
    with borrowed(case) as compiled:
        yield compiled


def _loss(model: gpflow.models.GPModel, data: Data, compile: bool = False) -> Callable[[], Any]:
    return loss_closure(model, tuple(map(tf.convert_to_tensor, data)), compile)


def _assert_same(
    actual: gpflow.models.GPModel, expected: gpflow.models.GPModel, data: Data
) -> None:
    assert_close(_loss(actual, data)(), _loss(expected, data)(), rtol=1e-12)
    assert_all_close(actual.predict_f(XNEW), expected.predict_f(XNEW), rtol=1e-12)


def _disturb(model: gpflow.models.GPModel) -> None:
    for variable in model.trainable_variables:
        variable.assign_add(0.3 * tf.ones_like(variable))
    model.alpha.assign(0.2)


def test_no_public_model_is_forgotten() -> None:
    public = {
        value
        for _, value in inspect.getmembers(pep.models, inspect.isclass)
        if issubclass(value, gpflow.models.GPModel)
    }
    assert public == {case.model_class for case in MODELS}


def test_is_a_gpflow_model_with_one_loss_mixin(model: gpflow.models.GPModel) -> None:
    assert isinstance(model, gpflow.models.GPModel)
    mixins = (InternalDataTrainingLossMixin, ExternalDataTrainingLossMixin)
    assert sum(isinstance(model, mixin) for mixin in mixins) == 1


def test_objective_is_the_pep_log_marginal_likelihood(
    model: gpflow.models.GPModel, data: Data
) -> None:
    arguments = (data,) if isinstance(model, ExternalDataTrainingLossMixin) else ()
    log_z = model.pep_log_marginal_likelihood(*arguments)
    assert log_z.shape == ()
    assert_close(model.maximum_log_likelihood_objective(*arguments), log_z, rtol=1e-14)
    assert_close(_loss(model, data)(), -log_z, rtol=1e-14)


def test_deepcopy(model: gpflow.models.GPModel, data: Data) -> None:
    _check_copies(model, data, gpflow.utilities.deepcopy)


@of_gpflow
def test_deepcopy_by_python(model: gpflow.models.GPModel, data: Data) -> None:
    _check_copies(model, data, copy.deepcopy)


def _check_copies(
    model: gpflow.models.GPModel, data: Data, copy_of: Callable[..., gpflow.models.GPModel]
) -> None:
    _loss(model, data)()  # Anything cached by a first use has to survive, too.
    twin = copy_of(copy_of(model))
    _assert_same(twin, model, data)
    assert_all_close(
        gradients(_loss(twin, data), twin.trainable_variables),
        gradients(_loss(model, data), model.trainable_variables),
        rtol=1e-10,
    )
    before = float(_loss(model, data)())
    _disturb(twin)
    assert float(_loss(model, data)()) == before
    assert float(_loss(twin, data)()) != before
    _disturb(model)
    _assert_same(twin, model, data)


def test_checkpoint(
    model: gpflow.models.GPModel, case: ModelCase, data: Data, tmp_path: Path
) -> None:
    _disturb(model)
    saved = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    other = case.create(data, Z)
    assert float(_loss(other, data)()) != float(_loss(model, data)())
    tf.train.Checkpoint(model=other).read(saved).assert_existing_objects_matched()
    assert float(other.alpha.numpy()) == 0.2
    _assert_same(other, model, data)


def _assert_saved(model: gpflow.models.GPModel, method: str, directory: Path) -> None:
    loaded, predict = saved_and_loaded(model, method, str(directory)), getattr(model, method)
    for Xnew in (XNEW, XNEW[:1], np.vstack([XNEW, XNEW])):
        assert_all_close(loaded.compiled(Xnew), predict(Xnew), rtol=1e-12)


@pytest.mark.parametrize("case", but_pep[: len(MODELS)])
def test_saved_model_of_predictions(model: gpflow.models.GPModel, tmp_path: Path) -> None:
    _assert_saved(model, "predict_f", tmp_path)


@pytest.mark.near_copies("ARPEP")
@of_gpflow
def test_saved_model_of_predictions_of_targets(
    model: gpflow.models.GPModel, tmp_path: Path
) -> None:
    _assert_saved(model, "predict_y", tmp_path)


@pytest.mark.near_copies("PEPRegression")
@of_gpflow
def test_saved_model_of_a_posterior(model: gpflow.models.GPModel, tmp_path: Path) -> None:
    """The cached posterior as variables: it needs no data, and can be refreshed."""
    posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)
    posterior.compiled_predict_f = tf.function(
        lambda Xnew: posterior.predict_f(Xnew),
        input_signature=[tf.TensorSpec([None, D], dtype=tf.float64)],
    )
    tf.saved_model.save(posterior, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert_all_close(loaded.compiled_predict_f(XNEW), model.predict_f(XNEW), rtol=1e-8)


def test_parameter_dict_and_multiple_assign(
    model: gpflow.models.GPModel, case: ModelCase, data: Data
) -> None:
    _disturb(model)
    values = gpflow.utilities.read_values(model)
    assert values[".alpha"] == 0.2
    other = case.create(data, Z)
    gpflow.utilities.multiple_assign(other, values)
    _assert_same(other, model, data)
    parameters = gpflow.utilities.parameter_dict(model)
    part = first_kernel(model)
    listed = {id(parameter) for parameter in parameters.values()}
    assert listed >= {id(one) for one in (part.variance, part.lengthscales, points(model).Z)}
    assert ".alpha" in parameters


def test_print_summary_shows_alpha(
    model: gpflow.models.GPModel, capsys: pytest.CaptureFixture[str]
) -> None:
    gpflow.utilities.print_summary(model, fmt="simple")
    lines = [line for line in capsys.readouterr().out.splitlines() if ".alpha" in line]
    assert len(lines) == 1
    assert "False" in lines[0] and "0.7" in lines[0]  # not trainable, and its value


def test_alpha_is_not_trained(model: gpflow.models.GPModel) -> None:
    assert isinstance(model.alpha, gpflow.Parameter)
    assert not model.alpha.trainable
    ids = {id(variable) for variable in model.trainable_variables}
    assert id(model.alpha.unconstrained_variable) not in ids


def test_set_trainable(compiled: Compiled) -> None:
    model = compiled.model
    everything = len(model.trainable_variables)
    gpflow.set_trainable(model.inducing_variable, False)
    part, Z = first_kernel(model), points(model).Z
    gpflow.set_trainable(part.variance, False)
    assert len(model.trainable_variables) == everything - 2
    Z_before, variance_before = Z.numpy(), float(part.variance.numpy())
    lengthscales_before = part.lengthscales.numpy()
    compiled.minimize(3)
    np.testing.assert_array_equal(Z.numpy(), Z_before)
    assert float(part.variance.numpy()) == variance_before
    assert np.all(part.lengthscales.numpy() != lengthscales_before)


def test_prior(model: gpflow.models.GPModel, data: Data) -> None:
    without = float(_loss(model, data)())
    prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    variance = first_kernel(model).variance
    variance.prior = prior
    log_density = float(prior.log_prob(variance))
    assert_close(model.log_prior_density(), log_density, rtol=1e-12)
    assert_close(_loss(model, data)(), without - log_density, rtol=1e-12)


def test_scipy_improves_the_loss(model: gpflow.models.GPModel, data: Data) -> None:
    _check_scipy(model, data, compile=True)


@of_gpflow
def test_scipy_improves_the_eager_loss(model: gpflow.models.GPModel, data: Data) -> None:
    _check_scipy(model, data, compile=False)


def _check_scipy(model: gpflow.models.GPModel, data: Data, compile: bool) -> None:
    loss = _loss(model, data)
    before = float(loss())
    result = gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, compile=compile, options={"maxiter": 5}
    )
    assert float(loss()) == pytest.approx(result.fun, rel=1e-9)
    assert result.fun < before - 0.1


def test_adam_improves_the_loss(compiled: Compiled) -> None:
    before = float(compiled.loss())
    optimizer = Adam(0.01)
    for _ in range(5):
        optimizer.minimize(compiled.loss, compiled.variables)
    assert float(compiled.loss()) < before


@also_by_chunks
@pytest.mark.near_copies("PEP", "ARPEP")
def test_float32(case: ModelCase, model: gpflow.models.GPModel, data: Data) -> None:
    in_double = float(_loss(model, data)())
    mean_in_double, variance_in_double = model.predict_f(XNEW)
    gpflow.config.set_default_float(np.float32)
    single = tuple(array.astype(np.float32) for array in data)
    model = case.create(single, Z.astype(np.float32))
    for compile in (False, True):
        loss = _loss(model, single, compile)
        assert loss().dtype == tf.float32
        assert_close(loss(), np.float32(in_double), rtol=1e-4)
        for gradient in gradients(loss, model.trainable_variables):
            assert gradient.dtype == np.float32
            assert np.all(np.isfinite(gradient))
    mean, variance = model.predict_f(XNEW.astype(np.float32))
    assert mean.dtype == variance.dtype == tf.float32
    assert_close(mean, mean_in_double, rtol=1e-3)
    assert_close(variance, variance_in_double, rtol=1e-3)
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, compile=False, options={"maxiter": 2}
    )


def _replacement(case: ModelCase, num_rows: int) -> Data:
    pieces = [case.data(seed) for seed in (1, 2)]
    X, Y = (np.concatenate(arrays)[:num_rows] for arrays in zip(*pieces))
    return X, Y


@pytest.mark.parametrize("case", but_pep)
class TestDataInVariables:
    """Data whose number of rows is not known to the graph, and changes."""

    @pytest.fixture
    def compiled(self, case: ModelCase) -> Iterator[Compiled]:
        with borrowed(case, data_in_variables=True) as compiled:
            yield compiled

    def test_replaced_by_data_of_another_length(self, case: ModelCase, compiled: Compiled) -> None:
        for num_rows in (2 * N, 1):
            new = _replacement(case, num_rows)
            compiled.assign_data(new)
            _assert_same_as_fresh(compiled, case, new)

    def test_compiled_once(self, case: ModelCase, compiled: Compiled) -> None:
        """By all tests together, whatever they have assigned."""
        for num_rows in (N, 2 * N, 4):
            compiled.assign_data(_replacement(case, num_rows))
            compiled.loss()
        assert compiled.loss.experimental_get_tracing_count() == 1


def _assert_same_as_fresh(compiled: Compiled, case: ModelCase, data: Data) -> None:
    fresh = case.create(data, Z)
    loss, gradients = compiled.loss_and_gradients()
    expected_loss, expected_gradients = value_and_gradients(
        _loss(fresh, data), fresh.trainable_variables
    )
    assert_close(loss, expected_loss, rtol=1e-10)
    assert_all_close(gradients, expected_gradients, rtol=1e-9)
    assert_all_close(compiled.predict_f(XNEW), fresh.predict_f(XNEW), rtol=1e-10)


@of_gpflow
@pytest.mark.parametrize("full_cov", [False, True])
def test_unknown_static_shapes(compiled: Compiled, full_cov: bool) -> None:
    predict = compiled.predict_f_full_cov if full_cov else compiled.predict_f
    for Xnew in (XNEW, XNEW[:2]):
        expected = compiled.model.predict_f(Xnew, full_cov=full_cov)
        assert_all_close(predict(Xnew), expected, rtol=1e-10)


@of_gpflow
def test_unknown_static_shapes_of_density(model: gpflow.models.GPModel, data: Data) -> None:
    log_density = tf.function(
        lambda X, Y: model.predict_log_density((X, Y)),
        input_signature=[tf.TensorSpec([None, None], dtype=tf.float64)] * 2,
    )
    expected = model.predict_log_density(data)
    assert_close(log_density(*data), expected, rtol=1e-10)


@also_by_chunks
class TestIllConditioned:
    """Far more inducing points than the kernel's smoothness can tell apart."""

    @pytest.fixture
    def singular_Z(self) -> Array:
        gpflow.config.set_default_jitter(1e-20)
        line = np.linspace(-0.1, 0.1, 10)
        Z = np.stack([line, line], axis=1)
        Kuu = kernel()(Z).numpy()
        assert np.min(np.linalg.eigvalsh(Kuu)) < 1e-16  # singular in double precision
        assert np.any(np.isnan(tf.linalg.cholesky(Kuu)))
        return np.vstack([Z, Z])

    def test_reported_by_a_compiled_loss(
        self, case: ModelCase, data: Data, singular_Z: Array
    ) -> None:
        loss = _loss(case.create(data, singular_Z), data, True)
        with pytest.warns(JitterWarning, match="jitter was added"):
            assert np.isfinite([float(loss()), float(loss())]).all()

    @pytest.mark.filterwarnings("ignore:(?i).*jitter")
    def test_all_is_finite_and_reported(
        self, case: ModelCase, data: Data, singular_Z: Array
    ) -> None:
        model = case.create(data, singular_Z)
        with pytest.warns(Warning, match="(?i)jitter"):
            assert np.isfinite(_loss(model, data)())
        for gradient in gradients(_loss(model, data), model.trainable_variables):
            assert np.all(np.isfinite(gradient))
        for full_cov in (False, True):
            mean, variance = model.predict_f(XNEW, full_cov=full_cov)
            assert np.all(np.isfinite(mean))
            assert np.all(np.isfinite(variance))
        for tensor in model.compute_qu():
            assert np.all(np.isfinite(tensor))

    @pytest.mark.filterwarnings("ignore:(?i).*jitter")
    def test_no_more_jitter_than_needed(
        self, case: ModelCase, data: Data, singular_Z: Array
    ) -> None:
        """At alpha = 0 less jitter is a better bound: inducing variables known with less noise."""
        escalated = float(_loss(case.create(data, singular_Z, alpha=0.0), data)())
        gpflow.config.set_default_jitter(1e-8)
        plenty = float(_loss(case.create(data, singular_Z, alpha=0.0), data)())
        assert escalated < plenty + 1e-6 * abs(plenty)

    def test_duplicates_under_the_default_jitter(self, case: ModelCase, data: Data) -> None:
        # At other powers RPAPEP's value at the q that it starts from depends on the number of them.
        alpha = 0.0 if case.model_class is pep.models.RPAPEP else 0.7
        duplicated = float(_loss(case.create(data, np.vstack([Z, Z]), alpha=alpha), data)())
        alone = float(_loss(case.create(data, Z, alpha=alpha), data)())
        assert_close(duplicated, alone, rtol=1e-3)


class Watched(NamedTuple):
    """What an optimisation wrote for TensorBoard, and the losses that it went through."""

    accumulator: Any
    losses: list[float]


#: One optimisation of a model serves the tests of all that is written.
WATCHED: dict[str, Watched] = {}


class TestMonitor:
    """GPflow's own monitor tasks as the step callback of an optimisation."""

    @pytest.fixture
    def watched(self, case: ModelCase, tmp_path_factory: pytest.TempPathFactory) -> Watched:
        pytest.importorskip("tensorboard")
        pytest.importorskip("matplotlib")
        if case.name not in WATCHED:
            WATCHED[case.name] = _watch(case, str(tmp_path_factory.mktemp("events")))
        return WATCHED[case.name]

    def _series(self, accumulator: Any, tag: str) -> dict[int, Any]:
        return {
            event.step: tf.make_ndarray(event.tensor_proto) for event in accumulator.Tensors(tag)
        }

    def test_scalar(self, watched: Watched) -> None:
        series = self._series(watched.accumulator, "loss")
        assert list(series) == list(range(len(watched.losses)))
        assert len(series) >= 3
        assert_close(list(series.values()), watched.losses, rtol=1e-6)
        assert watched.losses[-1] < watched.losses[0]

    def test_model(self, watched: Watched) -> None:
        accumulator = watched.accumulator
        tags = accumulator.Tags()["tensors"]
        variance = [tag for tag in tags if tag.endswith(("kernel.variance", "kernels[0].variance"))]
        assert len(variance) == 1
        # The file holds the value before the step that the callback announces or after it; in
        # either case the series has moved away from where it began.
        values = [float(value) for value in self._series(accumulator, variance[0]).values()]
        assert len(values) == len(watched.losses)
        assert len(set(values)) > 1
        alphas = [tag for tag in tags if tag.endswith("alpha")]
        assert len(alphas) == 1
        recorded = [float(value) for value in self._series(accumulator, alphas[0]).values()]
        assert_close(recorded, np.full(len(recorded), 0.7), rtol=1e-6)

    def test_image(self, watched: Watched) -> None:
        images = self._series(watched.accumulator, "fit")
        assert list(images) == [step for step in range(len(watched.losses)) if step % 2 == 0]
        for image in images.values():
            width, height, *encoded = image
            assert int(width) > 0 and int(height) > 0
            assert len(encoded) == 1
            assert tf.io.decode_png(encoded[0]).shape[2] in (3, 4)


def _watch(case: ModelCase, directory: str) -> Watched:
    from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator

    with borrowed(case) as compiled:
        losses = _minimize_watched(compiled, directory)
    accumulator = EventAccumulator(directory, size_guidance={TENSORS: 0})
    accumulator.Reload()
    return Watched(accumulator, losses)


def _minimize_watched(compiled: Compiled, directory: str) -> list[float]:
    losses: list[float] = []

    def current_loss() -> float:
        losses.append(float(compiled.loss()))
        return losses[-1]

    def draw(_: Any, axes: Any) -> None:
        mean, _variance = compiled.predict_f(XNEW)
        axes.plot(XNEW[:, 0], mean[:, 0], ".")

    monitor = gpflow.monitor.Monitor(
        gpflow.monitor.MonitorTaskGroup(
            [
                gpflow.monitor.ModelToTensorBoard(
                    directory, compiled.model, keywords_to_monitor=["*"]
                ),
                gpflow.monitor.ScalarToTensorBoard(directory, current_loss, "loss"),
            ],
            period=1,
        ),
        gpflow.monitor.MonitorTaskGroup(
            gpflow.monitor.ImageToTensorBoard(directory, draw, "fit"), period=2
        ),
    )
    compiled.minimize(4, step_callback=monitor)
    return losses


@pytest.mark.parametrize(
    "case",
    [
        # PEP, whose class it derives from, has all of these among the fast tests.
        pytest.param(case, marks=[pytest.mark.slow] if case.name == "PEPClassification" else [])
        for case in WHOLE_CHAIN
    ],
    ids=lambda case: case.name,
)
def test_all_that_a_user_does(case: ModelCase, tmp_path: Path) -> None:
    """Other data, trained, copied, written, read and saved: for models whose tests of each of these
    run with the slow ones.
    """
    with borrowed(case, data_in_variables=True) as compiled:
        before = compiled.predict_f(XNEW)
        for num_rows in (2 * N, 1):
            new = _replacement(case, num_rows)
            compiled.assign_data(new)
            _assert_same_as_fresh(compiled, case, new)
        new = case.data(1)
        compiled.assign_data(new)
        assert compiled.loss.experimental_get_tracing_count() == 1
        start = float(compiled.loss())
        result = compiled.minimize(5)
        assert result.fun < start - 0.1
        assert float(compiled.loss()) == pytest.approx(result.fun, rel=1e-9)

        model, trained = compiled.model, compiled.predict_f(XNEW)
        assert np.max(np.abs(before[0] - trained[0])) > 1e-3
        with_constants = case.create(new, Z)
        values = gpflow.utilities.parameter_dict(model)
        gpflow.utilities.multiple_assign(
            with_constants, {name: values[name] for name in values if ".data" not in name}
        )
        twin, read = gpflow.utilities.deepcopy(with_constants), case.create(new, Z)
        checkpoint = tf.train.Checkpoint(model=twin).write(str(tmp_path / "checkpoint"))
        tf.train.Checkpoint(model=read).read(checkpoint).assert_existing_objects_matched()
        for other in (with_constants, twin, read):
            assert_all_close(other.predict_f(XNEW), trained, rtol=1e-9)
        _assert_saved(read, "predict_f", tmp_path / "saved")
