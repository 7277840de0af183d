"""What every model has in common with GPflow's; a new one joins by a line in
`cases.models`.
"""

import copy
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import models as cases
from cases.models import MODELS, XNEW, Compiled, D, Data, ModelCase, N, Z, params
from gpflow import monitor
from gpflow.models import training_mixins
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    gradients,
    value_and_gradients,
)
from tf_keras.optimizers import Adam

import gpflow_pep as pep
from gpflow_pep.engine.numerics.linalg import JitterWarning

ALSO_BY_CHUNKS = [*MODELS, *cases.BY_CHUNKS]
also_by_chunks = pytest.mark.parametrize("case", params(ALSO_BY_CHUNKS))
of_gpflow = pytest.mark.parametrize(
    "case", params(MODELS, slow=cases.but(*cases.ENOUGH))
)


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
    with cases.borrowed(case) as compiled:
        yield compiled


def _loss(model: gpflow.models.GPModel, data: Data, compile: bool = False) -> Any:
    return cases.loss_closure(model, tuple(map(tf.convert_to_tensor, data)), compile)


def _assert_same(actual: Any, expected: Any, data: Data) -> None:
    assert_close(_loss(actual, data)(), _loss(expected, data)(), rtol=1e-12)
    assert_all_close(actual.predict_f(XNEW), expected.predict_f(XNEW), rtol=1e-12)


def _disturb(model: gpflow.models.GPModel) -> None:
    for variable in model.trainable_variables:
        variable.assign_add(0.3 * tf.ones_like(variable))
    model.alpha.assign(0.2)


def test_no_public_model_is_forgotten() -> None:
    classes = (value for _, value in inspect.getmembers(pep.models, inspect.isclass))
    public = {value for value in classes if issubclass(value, gpflow.models.GPModel)}
    assert public == {case.model_class for case in MODELS}


def test_is_a_gpflow_model(
    model: gpflow.models.GPModel, data: Data, capsys: Any
) -> None:
    """Its loss, with a prior and without, the parts that it lists, and alpha, which is
    fixed.
    """
    assert isinstance(model, gpflow.models.GPModel)
    is_external = isinstance(model, training_mixins.ExternalDataTrainingLossMixin)
    assert is_external != isinstance(
        model, training_mixins.InternalDataTrainingLossMixin
    )
    arguments = (data,) if is_external else ()
    log_z = model.pep_log_marginal_likelihood(*arguments)
    assert log_z.shape == ()
    assert_close(model.maximum_log_likelihood_objective(*arguments), log_z, rtol=1e-14)
    assert_close(_loss(model, data)(), -log_z, rtol=1e-14)
    part = cases.first_kernel(model)
    parameters = gpflow.utilities.parameter_dict(model)
    listed = {id(parameter) for parameter in parameters.values()}
    assert {
        id(one) for one in (part.variance, part.lengthscales, cases.points(model).Z)
    } <= listed
    assert (
        isinstance(parameters[".alpha"], gpflow.Parameter) and not model.alpha.trainable
    )
    ids = {id(variable) for variable in model.trainable_variables}
    assert id(model.alpha.unconstrained_variable) not in ids
    gpflow.utilities.print_summary(model, fmt="simple")
    (line,) = (
        line for line in capsys.readouterr().out.splitlines() if ".alpha" in line
    )
    assert "False" in line and "0.7" in line  # not trainable, and its value
    part.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    log_density = float(part.variance.prior.log_prob(part.variance))
    assert_close(model.log_prior_density(), log_density, rtol=1e-12)
    assert_close(_loss(model, data)(), -log_z - log_density, rtol=1e-12)


def _pickled(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


@pytest.mark.near_copies("*-deepcopy0", "ARPEP-_pickled")
@pytest.mark.parametrize(
    "copy_of", [gpflow.utilities.deepcopy, copy.deepcopy, _pickled]
)
def test_copies(copy_of: Any, model: gpflow.models.GPModel, data: Data) -> None:
    _loss(model, data)()  # Anything cached by a first use has to survive, too.
    twin = copy_of(copy_of(model))
    _assert_same(twin, model, data)
    both = (
        gradients(_loss(one, data), one.trainable_variables) for one in (twin, model)
    )
    assert_all_close(*both, rtol=1e-10)
    before = float(_loss(model, data)())
    _disturb(twin)
    assert float(_loss(model, data)()) == before
    assert float(_loss(twin, data)()) != before
    _disturb(model)
    _assert_same(twin, model, data)


def _assert_saved(model: gpflow.models.GPModel, method: str, directory: Path) -> None:
    loaded = cases.saved_and_loaded(model, method, str(directory))
    predict = getattr(model, method)
    for Xnew in (XNEW, XNEW[:1], np.vstack([XNEW, XNEW])):
        assert_all_close(loaded.compiled(Xnew), predict(Xnew), rtol=1e-12)


@pytest.mark.near_copies("PEP")
@also_by_chunks
def test_all_that_a_user_does(
    case: ModelCase, compiled: Compiled, tmp_path: Path
) -> None:
    """Other data of other lengths, compiled once, trained, copied, written, read and
    saved.
    """
    for num_rows in (2 * N, 1):
        new = tuple(
            np.concatenate(both)[:num_rows] for both in zip(case.data(1), case.data(2))
        )
        compiled.assign_data(new)
        fresh = case.create(new, Z)
        loss, by_variable = compiled.loss_and_gradients()
        expected = value_and_gradients(_loss(fresh, new), fresh.trainable_variables)
        assert_close(loss, expected[0], rtol=1e-10)
        assert_all_close(by_variable, expected[1], rtol=1e-9)
        assert_all_close(compiled.predict_f(XNEW), fresh.predict_f(XNEW), rtol=1e-10)
    new = case.data(1)
    compiled.assign_data(new)
    start = float(compiled.loss())
    optimizer = Adam(0.01)
    for _ in range(5):
        optimizer.minimize(compiled.loss, compiled.variables)
    after = float(compiled.loss())
    assert after < start
    result = compiled.minimize(5)
    assert result.fun < after - 0.1
    assert float(compiled.loss()) == pytest.approx(result.fun, rel=1e-9)
    assert compiled.loss.experimental_get_tracing_count() == 1

    compiled.model.alpha.assign(0.2)
    trained = compiled.predict_f(XNEW)
    values = gpflow.utilities.read_values(compiled.model)
    with_constants, read = (case.create(new, Z) for _ in range(2))
    assert np.max(np.abs(with_constants.predict_f(XNEW)[0] - trained[0])) > 1e-3
    given = {name: values[name] for name in values if ".data" not in name}
    gpflow.utilities.multiple_assign(with_constants, given)
    checkpoint = tf.train.Checkpoint(model=with_constants).write(
        str(tmp_path / "checkpoint")
    )
    tf.train.Checkpoint(model=read).read(checkpoint).assert_existing_objects_matched()
    for other in (with_constants, read):
        assert float(other.alpha.numpy()) == 0.2
        assert_all_close(other.predict_f(XNEW), trained, rtol=1e-9)
        assert_close(_loss(other, new)(), compiled.loss(), rtol=1e-9)
    # PEPClassification, which has its code, is among the slow tests.
    if case.name != "PEP":
        _assert_saved(read, "predict_f", tmp_path / "saved")


@pytest.mark.near_copies("PEPRegression")
@of_gpflow
def test_saved_predictions_of_targets_and_posteriors(
    model: Any, tmp_path: Path
) -> None:
    """The cached posterior as variables: it needs no data, and can be refreshed."""
    _assert_saved(model, "predict_y", tmp_path / "targets")
    posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)
    spec = [tf.TensorSpec([None, D], dtype=tf.float64)]
    posterior.compiled = tf.function(
        lambda Xnew: posterior.predict_f(Xnew), input_signature=spec
    )
    tf.saved_model.save(posterior, str(tmp_path / "posterior"))
    loaded = tf.saved_model.load(str(tmp_path / "posterior"))
    assert_all_close(loaded.compiled(XNEW), model.predict_f(XNEW), rtol=1e-8)


@pytest.mark.near_copies("PEP", "PEPRegression")
def test_set_trainable(compiled: Compiled) -> None:
    model = compiled.model
    everything = len(model.trainable_variables)
    gpflow.set_trainable(model.inducing_variable, False)
    part = cases.first_kernel(model)
    Z = cases.points(model).Z
    gpflow.set_trainable(part.variance, False)
    assert len(model.trainable_variables) == everything - 2
    before = [one.numpy() for one in (Z, part.variance, part.lengthscales)]
    compiled.minimize(3)
    np.testing.assert_array_equal(Z.numpy(), before[0])
    assert part.variance.numpy() == before[1]
    assert np.all(part.lengthscales.numpy() != before[2])


@pytest.mark.near_copies("PEP")
@also_by_chunks
def test_float32(case: ModelCase, model: gpflow.models.GPModel, data: Data) -> None:
    in_double = float(_loss(model, data)())
    moments_in_double = model.predict_f(XNEW)
    gpflow.config.set_default_float(np.float32)
    single = tuple(array.astype(np.float32) for array in data)
    tf.config.experimental.enable_tensor_float_32_execution(True)  # as it is by default
    model = case.create(single, Z.astype(np.float32))
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    for compile in (False, True):
        loss = _loss(model, single, compile)
        assert loss().dtype == tf.float32
        assert_close(loss(), np.float32(in_double), rtol=1e-4)
        for gradient in gradients(loss, model.trainable_variables):
            assert gradient.dtype == np.float32
            assert np.all(np.isfinite(gradient))
    moments = model.predict_f(XNEW.astype(np.float32))
    assert all(part.dtype == tf.float32 for part in moments)
    assert_all_close(moments, moments_in_double, rtol=1e-3)
    options = {"compile": False, "options": {"maxiter": 2}}
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, **options)


@pytest.mark.near_copies("PEPRegression")
@of_gpflow
def test_unknown_static_shapes(compiled: Compiled, model: Any, data: Data) -> None:
    for Xnew in (XNEW, XNEW[:2]):
        expected = compiled.model.predict_f(Xnew, full_cov=True)
        assert_all_close(compiled.predict_f_full_cov(Xnew), expected, rtol=1e-10)
    rows = [tf.TensorSpec([None, None], dtype=tf.float64)] * 2
    log_density = tf.function(lambda X, Y: model.predict_log_density((X, Y)), rows)
    assert_close(log_density(*data), model.predict_log_density(data), rtol=1e-10)


@pytest.fixture
def singular_Z() -> Array:
    """Far more inducing points than the kernel's smoothness can tell apart."""
    gpflow.config.set_default_jitter(1e-20)
    line = np.linspace(-0.1, 0.1, 10)
    Z = np.stack([line, line], axis=1)
    Kuu = cases.kernel()(Z).numpy()
    assert np.min(np.linalg.eigvalsh(Kuu)) < 1e-16  # singular in double precision
    assert np.any(np.isnan(tf.linalg.cholesky(Kuu)))
    return np.vstack([Z, Z])


@pytest.mark.near_copies("PEP", "PEPRegression")
@also_by_chunks
@pytest.mark.filterwarnings("ignore:(?i).*jitter")
def test_ill_conditioned(case: ModelCase, data: Data, singular_Z: Array) -> None:
    """All is finite and reported; at alpha = 0 less jitter is a better bound: little is
    added.
    """
    model = case.create(data, singular_Z)
    loss = _loss(model, data, True)
    with pytest.warns(JitterWarning, match="jitter was added"):
        assert np.isfinite([loss(), loss()]).all()
    with pytest.warns(Warning, match="(?i)jitter"):
        assert np.isfinite(_loss(model, data)())
    tensors = gradients(_loss(model, data), model.trainable_variables)
    tensors += [
        part for full in (False, True) for part in model.predict_f(XNEW, full_cov=full)
    ]
    assert all(
        np.all(np.isfinite(tensor)) for tensor in (*tensors, *model.compute_qu())
    )
    escalated = float(_loss(case.create(data, singular_Z, alpha=0.0), data)())
    gpflow.config.set_default_jitter(1e-8)
    plenty = float(_loss(case.create(data, singular_Z, alpha=0.0), data)())
    assert escalated < plenty + 1e-6 * abs(plenty)


@also_by_chunks
def test_duplicates_under_the_default_jitter(case: ModelCase, data: Data) -> None:
    # At other powers RPAPEP's value at the q that it starts from depends on the number
    # of them.
    alpha = 0.0 if case.model_class is pep.models.RPAPEP else 0.7
    models = (
        case.create(data, points, alpha=alpha) for points in (np.vstack([Z, Z]), Z)
    )
    twice, once = (_loss(model, data)() for model in models)
    assert_close(twice, once, rtol=1e-3)


@of_gpflow
def test_monitor(compiled: Compiled, tmp_path: Path) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    losses: list[float] = []

    def current_loss() -> float:
        losses.append(float(compiled.loss()))
        return losses[-1]

    of_model = monitor.ModelToTensorBoard(
        str(tmp_path), compiled.model, keywords_to_monitor=["*"]
    )
    each = [of_model, monitor.ScalarToTensorBoard(str(tmp_path), current_loss, "loss")]
    groups = monitor.Monitor(monitor.MonitorTaskGroup(each, period=1))
    compiled.minimize(4, step_callback=groups)
    sizes = {accumulators.TENSORS: 0}
    accumulator = accumulators.EventAccumulator(
        str(tmp_path), size_guidance=sizes
    ).Reload()

    def series(*ends: str) -> tuple[list[int], Any]:
        (tag,) = (tag for tag in accumulator.Tags()["tensors"] if tag.endswith(ends))
        events = accumulator.Tensors(tag)
        return [e.step for e in events], [
            float(tf.make_ndarray(e.tensor_proto)) for e in events
        ]

    steps, written = series("loss")
    assert (
        steps == list(range(len(losses))) and len(steps) >= 3 and losses[-1] < losses[0]
    )
    assert_close(written, losses, rtol=1e-6)
    # The file holds the value before the step that the callback announces or after it;
    # in either case the series has moved away from where it began.
    _, values = series("kernel.variance", "kernels[0].variance")
    assert len(values) == len(losses) and len(set(values)) > 1
    assert_close(series("alpha")[1], np.full(len(losses), 0.7), rtol=1e-6)
