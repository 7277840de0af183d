"""Checks of what users pass to models with tied sites."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float


def check_num_data(num_data: Any) -> int:
    """
    Check the number of rows of the whole data set.

    :raises ValueError: If it is missing or no positive whole number.
    """
    numbers = (int, float, np.integer, np.floating)
    whole = isinstance(num_data, numbers) and num_data == num_data // 1
    if not whole or isinstance(num_data, bool) or num_data < 1:
        raise ValueError(
            f"num_data: got {num_data!r}, expected the number of rows of the whole data set, at"
            " least 1. Pass num_data=len(X), of all rows and not of a batch."
        )
    return int(num_data)


def check_q(
    q_mu: Any, q_sqrt: Any, size: int, num_latent_gps: int
) -> tuple[AnyNDArray, AnyNDArray | None]:
    """
    Check the Gaussian to start from.

    :param q_mu: Means [M, L], or None: zero.
    :param q_sqrt: Lower triangular square roots [L, M, M], or None.
    :param size: M.
    :param num_latent_gps: L where both are None.
    :raises ValueError: If they are not as said here.
    """
    q_mu, q_sqrt = (None if value is None else _to_array(value) for value in (q_mu, q_sqrt))
    given = [value.shape[axis] for value, axis in ((q_mu, -1), (q_sqrt, 0)) if np.ndim(value)]
    num_latent = given[0] if given else num_latent_gps
    if isinstance(num_latent, bool) or not isinstance(num_latent, (int, np.integer)):
        raise ValueError(f"num_latent_gps: got {num_latent!r}, expected a whole number. Pass one.")
    if num_latent < 1:
        raise ValueError(f"num_latent_gps: got {num_latent}, expected at least 1. Pass more.")
    parts = {"q_mu": (q_mu, (size, num_latent)), "q_sqrt": (q_sqrt, (num_latent, size, size))}
    for name, (value, shape) in parts.items():
        if value is None:
            continue
        if value.shape != shape:
            raise ValueError(
                f"{name}: got shape {value.shape}, expected {shape}, for {size} inducing"
                f" variables and {num_latent} latent function(s). Reshape it, or leave it out."
            )
        if not np.isfinite(value).all():
            raise ValueError(
                f"{name}: got NaN or infinity, expected finite numbers. Leave it out to start from"
                " the prior's."
            )
    if q_mu is None:
        q_mu = np.zeros([size, num_latent], default_float())
    if q_sqrt is not None and (np.triu(q_sqrt, 1).any() or not np.diagonal(q_sqrt, 0, 1, 2).all()):
        raise ValueError(
            "q_sqrt: got matrices with entries above the diagonal or zeros on it, expected lower"
            " triangular square roots of covariances. Use numpy.linalg.cholesky of them."
        )
    return q_mu, q_sqrt


def _to_array(value: Any) -> AnyNDArray:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value, dtype=default_float())


def check_narrower_than_prior(root: tf.Tensor) -> None:
    """
    Check that factors of positive precision times the prior can give a Gaussian.

    :param root: Square roots of its covariances where the prior is N(0, I), [L, M, M].
    :raises ValueError: If it is as wide as the prior in some direction, or wider.
    """
    largest = float(tf.reduce_max(tf.linalg.svd(root, compute_uv=False))) ** 2
    if not largest < 1.0 - np.sqrt(np.finfo(root.dtype.as_numpy_dtype).eps):
        raise ValueError(
            f"q_sqrt: got {largest:.6g} times the prior's variance in some direction, expected less"
            " than 1: q is the prior times Gaussian factors, which only narrow it. Leave q_sqrt out"
            " to start near the prior, or use ARPEP or RPAPEP, which take any q."
        )
