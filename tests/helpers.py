"""Small test problems, comparison and differentiation used by several test modules."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import gpflow
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from reference import regression as reference

from gpflow_pep.training import MaximiseRecord

Array = npt.NDArray[np.float64]
EXAMPLES = Path(__file__).parents[1] / "examples"


def load_example(path: str) -> ModuleType:
    """A module of the examples, by its path in their folder."""
    return importlib.import_module(
        "examples." + path.removesuffix(".py").replace("/", ".")
    )


def refusals(table: dict[str, Callable[[], Any]]) -> Callable[..., None]:
    """A test of calls that are refused, by what the messages of their errors match."""

    @pytest.mark.parametrize("message", table)
    def test(message: str) -> None:
        with pytest.raises(ValueError, match=f"(?s){message}"):
            table[message]()

    return test


def skip_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let estimators keep their first parameters."""
    record = MaximiseRecord(0.0, 0, 0, 0, 0.0, True, "", np.zeros(1), 0.0, ())
    for module in ("estimators.single.trainer", "training.fitting.cheaper"):
        monkeypatch.setattr(f"gpflow_pep.{module}.maximise", lambda *_, **__: record)


def before_calls(
    monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, do: Any
) -> None:
    """Call ``do`` before each call of a method."""
    method = getattr(kind, name)

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        do()
        return method(self, *arguments, **options)

    monkeypatch.setattr(kind, name, call)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Graphs run as Python: quicker where the steps are few, and it is they that are
    tested.
    """
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


class RegressionProblem(NamedTuple):
    """A small regression data set with hyperparameters."""

    X: Array  # [N, D]
    Y: Array  # [N, P]
    Z: Array  # [M, D]
    Xnew: Array  # [S, D]
    variance: float
    lengthscales: Sequence[float]  # D numbers
    noise_variance: float

    @property
    def data(self) -> "tuple[Array, Array]":
        return self.X, self.Y

    def kernel(self) -> gpflow.kernels.SquaredExponential:
        return gpflow.kernels.SquaredExponential(
            variance=self.variance, lengthscales=list(self.lengthscales)
        )

    def model(
        self, model_class: Any, inducing_variable: Any = None, **options: Any
    ) -> Any:
        """Of Gaussian noise, ours or GPflow's; at Z, unless told where or exact."""
        if not issubclass(model_class, gpflow.models.GPR):
            points = self.Z if inducing_variable is None else inducing_variable
            options = {"inducing_variable": points, **options}
        return model_class(
            self.data, self.kernel(), noise_variance=self.noise_variance, **options
        )

    def covariance(self, X1: Array, X2: Array) -> Array:
        return reference.squared_exponential(X1, X2, self.variance, self.lengthscales)

    def prior(self, jitter: float | None = None) -> reference.Prior:
        """The reference's prior, by default with the jitter that GPflow adds to Kuu."""
        jitter = gpflow.config.default_jitter() if jitter is None else jitter
        return reference.squared_exponential_prior(
            self.X, self.Z, self.variance, self.lengthscales, jitter
        )


def regression_problem(
    seed: int = 0, *, num_data: int = 17, num_inducing: int = 5, num_outputs: int = 1
) -> RegressionProblem:
    """Random inputs in two dimensions, a smooth function and noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=[num_data, 2])
    phase = np.arange(num_outputs)
    Y = np.sin(2.0 * X[:, :1] + phase) + 0.5 * np.cos(3.0 * X[:, 1:] - phase)
    return RegressionProblem(
        X=X,
        Y=Y + 0.3 * rng.standard_normal(Y.shape) + 0.4,
        Z=rng.uniform(-2.0, 2.0, size=[num_inducing, 2]),
        Xnew=rng.uniform(-2.5, 2.5, size=[6, 2]),
        variance=1.3,
        lengthscales=[0.8, 1.1],
        noise_variance=0.09,
    )


class GoldenProblem(NamedTuple):
    """The nine rows for which reference values of high accuracy are known."""

    problem: RegressionProblem
    mean: float
    noise_of_row: Array  # [N], the heteroscedastic variant
    blocks: reference.IntArray  # [N]
    alpha_of_block: Sequence[float]


def golden_problem() -> GoldenProblem:
    n = np.arange(9.0)
    m = np.arange(4.0)
    X = np.stack([-1.0 + n / 4.0, np.cos(n)], axis=1)
    y = np.sin(3.0 * X[:, 0]) + 0.3 * np.cos(5.0 * X[:, 1])
    return GoldenProblem(
        problem=RegressionProblem(
            X=X,
            Y=y[:, None],
            Z=np.stack([-0.9 + 0.6 * m, np.sin(2.0 * m)], axis=1),
            Xnew=np.array([[0.3, -0.4], [-0.65, 0.8]]),
            variance=1.3,
            lengthscales=[0.7, 1.1],
            noise_variance=0.05,
        ),
        mean=0.2,
        noise_of_row=0.02 + 0.01 * n,
        blocks=np.array([0, 1, 1, 0, 2, 2, 0, 2, 1]),
        alpha_of_block=[0.0, 0.5, 1.0],
    )


def assert_close(
    actual: Any, expected: Any, rtol: float = 1e-8, scale: float = 0.0
) -> None:
    """Same shape, and the largest difference at most `rtol` times the largest entry of
    `expected`.

    :param scale: compare with this size instead, where it is larger.
    """
    actual = np.asarray(actual)
    expected = np.asarray(expected)
    assert actual.shape == expected.shape, (
        f"shape {actual.shape}, expected {expected.shape}"
    )
    assert np.all(np.isfinite(actual)), f"not finite: {actual}"
    size = max(float(np.max(np.abs(expected))), scale)
    difference = float(np.max(np.abs(actual - expected)))
    assert difference <= rtol * size, (
        f"largest difference {difference:.3g} is {difference / size:.3g} of {size:.6g} "
        f"(allowed: {rtol:.3g}); got {actual}, expected {expected}"
    )


def assert_all_close(
    actual: Iterable[Any], expected: Iterable[Any], **tolerance: float
) -> None:
    """As many of each, and `assert_close` for every pair of them."""
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other, **tolerance)


def directional_slope(
    function: Callable[[], Any],
    variables: Sequence[tf.Variable],
    direction: Sequence[Any],
    step: float = 1e-3,
) -> Array:
    """
    The derivative along a direction, of which each variable has a part: the central
    difference on five points, whose error is of the order of step ** 4.
    """
    # Also where that is a scalar.
    start = [np.array(variable.numpy()) for variable in variables]
    slope: Any = 0.0
    for offset, weight in ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0)):
        for variable, value, part in zip(variables, start, direction, strict=True):
            variable.assign(value + offset * step * part)
        slope = slope + weight * np.asarray(function()) / (12.0 * step)
    for variable, value in zip(variables, start):
        variable.assign(value)
    return np.asarray(slope)


def worst_z(draws: Any, mean: Any, covariance: Any) -> float:
    """The largest z-score of means and second moments, where draws [S, ..., N] should
    have a mean [..., N] and a covariance [..., N, N].
    """
    apart = np.asarray(draws) - np.asarray(mean)
    covariance = np.asarray(covariance)
    spread = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    products = apart[..., :, None] * apart[..., None, :]
    z = (
        apart.mean(0) / (spread + 1e-12),
        (products.mean(0) - covariance) / (products.std(0) + 1e-12),
    )
    return float(np.sqrt(len(apart)) * max(np.abs(part).max() for part in z))


def assert_gradients(
    function: Callable[[], tf.Tensor],
    variables: Sequence[tf.Variable],
    *actual: Sequence[Any],
    step: float = 1e-3,
    **tolerance: float,
) -> None:
    """
    The gradient in each variable, along a random direction, is the central difference.

    :param actual: The gradients that are tested; those of GradientTape where there are
        none.
    :param tolerance: Of `assert_close`.
    """
    of_each = actual or [gradients(function, variables)]
    random = np.random.default_rng(0)
    for index, variable in enumerate(variables):
        direction = random.standard_normal(variable.shape)
        expected = directional_slope(function, [variable], [direction], step)
        for parts in of_each:
            slope = np.sum(np.asarray(tf.convert_to_tensor(parts[index])) * direction)
            assert_close(slope, expected, **tolerance)


def trainable_by_name(model: tf.Module) -> dict[str, tf.Variable]:
    """The variables that an optimiser would move."""
    return {
        name: parameter.unconstrained_variable
        for name, parameter in gpflow.utilities.parameter_dict(model).items()
        if parameter.trainable
    }


@tf.autograph.experimental.do_not_convert
def value_and_gradients(
    function: Callable[[], tf.Tensor], variables: Sequence[tf.Variable | tf.Tensor]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """A function, and its gradient in each variable by GradientTape."""
    with tf.GradientTape() as tape:
        tape.watch(variables)
        value = function()
    return value, [
        tf.convert_to_tensor(part) for part in tape.gradient(value, variables)
    ]


def gradients(
    function: Callable[[], tf.Tensor], variables: Sequence[tf.Variable | tf.Tensor]
) -> list[Array]:
    """The gradient in each variable, eager."""
    return [part.numpy() for part in value_and_gradients(function, variables)[1]]
