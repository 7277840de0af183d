"""Inducing variables of one's own, in one file: values and slopes of f.

    python -m examples interdomain

An inducing variable is any linear function of f whose covariances are known (Titsias
2009, section 6). Three things make one that serves in every model of this package and
of GPflow: a class that holds its parameters, the covariance ``Kuu`` among the
variables, and ``Kuf`` with f. Here each point z stands for f(z) and f'(z), so that K
points are 2 K variables.

Prints, for one input and 200 rows with hyperparameters at exact regression's optimum,
the log marginal likelihood and how far the posterior mean is from the exact one.
"""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorLike, TensorType
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import SquaredExponential

import gpflow_pep as pep
from examples.common import arguments


class ValuesAndSlopes(InducingVariables):
    """
    :math:`u = (f(z_1), ..., f(z_K), f'(z_1), ..., f'(z_K))` for functions of one input.

    :param Z: The points, [K, 1].
    """

    def __init__(self, Z: AnyNDArray) -> None:
        super().__init__()
        self.Z = gpflow.Parameter(Z)

    @property
    def num_inducing(self) -> tf.Tensor:
        """M = 2 K."""
        return 2 * tf.shape(self.Z)[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """[M, D, P]: variables, inputs, outputs."""
        return 2 * self.Z.shape[0], 1, 1


@Kuu.register(ValuesAndSlopes, SquaredExponential)
def _Kuu(
    u: ValuesAndSlopes, kernel: SquaredExponential, *, jitter: float = 0.0
) -> tf.Tensor:
    K = kernel(u.Z)
    r = (u.Z - tf.transpose(u.Z)) / kernel.lengthscales**2
    curvature = (1.0 / kernel.lengthscales**2 - r**2) * K  # cov(f'(z), f'(z'))
    slope = r * K  # cov(f(z), f'(z'))
    upper = tf.concat([K, slope], axis=1)
    lower = tf.concat([-slope, curvature], axis=1)
    joint = tf.concat([upper, lower], axis=0)
    return joint + jitter * tf.eye(u.num_inducing, dtype=joint.dtype)


@Kuf.register(ValuesAndSlopes, SquaredExponential, TensorLike)
def _Kuf(u: ValuesAndSlopes, kernel: SquaredExponential, X: TensorType) -> tf.Tensor:
    K = kernel(u.Z, X)
    r = (u.Z - tf.transpose(X)) / kernel.lengthscales**2
    return tf.concat([K, -r * K], axis=0)


def wave(num_rows: int = 200) -> tuple[AnyNDArray, AnyNDArray]:
    """A noisy sine whose inputs are spread evenly at random."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, [num_rows, 1])
    return X, np.sin(2.0 * X) + 0.1 * rng.standard_normal([num_rows, 1])


def main() -> None:
    arguments(__doc__)
    data = wave()
    Xnew = np.linspace(0.0, 10.0, 300)[:, None]
    exact = gpflow.models.GPR(data, SquaredExponential())
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    target = exact.predict_f(Xnew)[0]
    print(f"exact log marginal likelihood {float(exact.log_marginal_likelihood()):.3f}")
    print(f"{'':>22} {'variables':>9} {'alpha':>5} {'log Z':>10} {'distance':>9}")

    def spread(num_points: int) -> AnyNDArray:
        return np.linspace(0.0, 10.0, num_points)[:, None]

    for name, variables in (
        ("8 points", InducingPoints(spread(8))),
        ("8 values and slopes", ValuesAndSlopes(spread(8))),
        ("16 points", InducingPoints(spread(16))),
    ):
        for alpha in (0.0, 0.5, 1.0):
            model = pep.models.PEPRegression(
                data, exact.kernel, variables, alpha=alpha, likelihood=exact.likelihood
            )
            value = float(model.pep_log_marginal_likelihood())
            difference = model.predict_f(Xnew)[0] - target
            distance = float(tf.sqrt(tf.reduce_mean(tf.square(difference))))
            number = int(variables.num_inducing)
            print(f"{name:>22} {number:>9} {alpha:>5g} {value:>10.3f} {distance:>9.5f}")
