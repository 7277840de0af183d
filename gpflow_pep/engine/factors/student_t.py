"""Student-t noise: tails so heavy that the tilted distribution can have two modes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, StudentT
from tensorflow import Tensor

from ..checks import refusal
from ..numerics.quadrature import REACH, Mode, Structure, search_mode
from .gaussian import noise_in_units
from .generic import ScalarFactor
from .moments import Traits, any_number, scalar_factor, support, traits


@scalar_factor.register(StudentT)
def _student_t(
    likelihood: StudentT, X: Tensor, Y: Tensor, alpha: Tensor
) -> ScalarFactor:
    df = tf.cast(likelihood.df, Y.dtype)
    scale = likelihood._scale(X) * tf.ones_like(Y)
    constant = (
        tf.math.lgamma(0.5 * (df + 1.0))
        - tf.math.lgamma(0.5 * df)
        - 0.5 * (tf.math.log(df) + np.log(np.pi))
        - tf.math.log(scale)
    )
    factor = 0.5 * (df + 1.0)
    root = scale * tf.sqrt(df)
    tiny = np.finfo(Y.dtype.as_numpy_dtype).tiny

    def log_prob(f: Tensor) -> Tensor:
        return constant - factor * tf.math.log1p(tf.square((Y - f) / root))

    # With many degrees of freedom the density is nearly a Gaussian of this width.
    width = scale * tf.sqrt(df / (1.0 + alpha * df))
    structures = [Structure(Y, width, 2.0 * width)]

    def mode(mean: Tensor, variance: Tensor) -> Mode:
        # Nodes reach from a mode near y to the Gaussian's mean, but not from there to
        # y. With two modes that is the least of three roots u = |y - f| / |y - m| of
        # the cubic u^3 - u^2 + (b + c) u - b, with b = root^2 / (y - m)^2 and c = c_0 /
        # (y - m)^2.
        best = search_mode(log_prob, mean, variance, alpha, structures)
        distance = Y - mean
        by_power = tf.maximum(alpha * variance, tiny)
        b, c = (
            values / tf.square(distance)
            for values in (tf.square(root), (df + 1.0) * by_power)
        )
        m = tf.sqrt(tf.maximum(1.0 - 3.0 * (b + c), 0.0)) / 3.0
        cosine = (1.0 / 27.0 + 0.5 * b - (b + c) / 6.0) / m**3
        u = 1.0 / 3.0 + 2.0 * m * tf.cos((tf.acos(cosine) + 2.0 * np.pi) / 3.0)
        is_near = (tf.abs(cosine) < 1.0) & (
            2.0 * REACH * tf.sqrt(variance) > tf.abs(distance)
        )
        near = distance * (1.0 - u) / by_power
        return Mode(tf.where(is_near, near, best.slope), best.width)

    return ScalarFactor(log_prob, structures, mode, num_nodes=128)


@traits.register(StudentT)
def _traits(likelihood: StudentT) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        scale = np.asarray(likelihood._scale(X))
        return np.asarray(
            f + scale * random.standard_t(np.asarray(likelihood.df), f.shape)
        )

    def in_units(change: Callable[[float], float], scale: float) -> Likelihood:
        return noise_in_units(likelihood, "scale", 1.0 / scale)

    def predict(X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        df: Any = tf.get_static_value(tf.convert_to_tensor(likelihood.df))
        if df is not None and not np.all(df > 2.0):
            remedy = "Fix df above 2, or use predict_f, draws or densities."
            raise refusal(
                "df", df, "above 2, because otherwise y has no variance", remedy
            )
        return Fmu, Fvar + likelihood.conditional_variance(X, Fmu)

    return Traits(draw=draw, follows_by_newton=True, in_units=in_units, predict=predict)


support.register(StudentT)(any_number)
