r"""Kernels as functions of NumPy arrays, each equal to the GPflow kernel of the same
name.

A kernel is described by a dictionary, as :class:`~gpflow_pep.scoring.stored.Reader`
reads it: ``kind``, the name of GPflow's class, and the arguments of its constructor by
name.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from ..distributions.units import Array
from ..engine.refusals import refusal

Description = Mapping[str, Any]

#: The smallest squared distance of which GPflow computes the root.
_SMALLEST_SQUARE = 1e-36
_REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "Sum": np.add,
    "Product": np.multiply,
}
#: Kernels as functions of the distance r, for unit variance.
_OF_DISTANCE: dict[str, Callable[[Array], Array]] = {
    "Matern12": lambda r: np.exp(-r),
    "Exponential": lambda r: np.exp(-0.5 * r),
    "Matern32": lambda r: (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r),
    "Matern52": lambda r: (
        (1.0 + np.sqrt(5.0) * r + 5.0 / 3.0 * (r * r)) * np.exp(-np.sqrt(5.0) * r)
    ),
}
#: Kernels as functions of the squared distance, for unit variance.
_OF_SQUARE: dict[str, Callable[[Array, Description], Array]] = {
    "SquaredExponential": lambda r2, kernel: np.exp(-0.5 * r2),
    "RationalQuadratic": lambda r2, kernel: (
        (1.0 + 0.5 * r2 / kernel["alpha"]) ** (-kernel["alpha"])
    ),
}
#: Kernels of the distance of two rows, each column divided by its lengthscale.
ISOTROPIC = (*_OF_DISTANCE, *_OF_SQUARE)
KINDS = (
    *ISOTROPIC,
    *("Cosine", "Linear", "Constant", "White", "Periodic"),
    *_REDUCTIONS,
)
REMEDY = "Use the estimator itself, which save_estimator and load_estimator keep."


def covariance_with(kernel: Description, Z: Array) -> Callable[[Array], Array]:
    """Prepare the prior covariances of f at rows with f at other rows.

    :param kernel: The description of the kernel.
    :param Z: The other rows, [M, D]; or the rows of several groups, [..., M, D].
    :return: A function of rows X [N, D] or [..., N, D] that computes the covariances
        [..., N, M].
    :raises ValueError: If the kind of kernel is not known.
    """
    kind = kernel["kind"]
    if kind in _REDUCTIONS:
        terms = [covariance_with(term, Z) for term in kernel["kernels"]]
        return lambda X: reduce(_REDUCTIONS[kind], [term(X) for term in terms])
    if kind == "Periodic":
        return _periodic(kernel, Z)
    if kind not in KINDS:
        raise _unknown(kind)
    columns = _columns(kernel)
    variance = kernel["variance"]
    Z = Z[..., columns]
    if kind == "Linear":
        weighted = (Z * variance).swapaxes(-1, -2)
        return lambda X: X[..., columns] @ weighted
    if kind in ("Constant", "White"):
        value = 0.0 if kind == "White" else float(variance)
        return lambda X: np.full((*X.shape[:-1], Z.shape[-2]), value)
    scale = kernel["lengthscales"]
    # Products would lose digits if numbers are large.
    origin = Z.mean(axis=-2, keepdims=True)
    Z = Z - origin
    if kind == "Cosine":
        phase = np.sum(Z / scale, axis=-1)[..., None, :]

        def cosine(X: Array) -> Array:
            turns = (
                np.sum((X[..., columns] - origin) / scale, axis=-1)[..., None] - phase
            )
            return np.asarray(variance * np.cos(2.0 * np.pi * turns))

        return cosine
    of_square = _profile(kernel)
    doubled = -2.0 * (Z / scale).swapaxes(-1, -2)
    squares = np.sum((Z / scale) ** 2, axis=-1)[..., None, :]

    def isotropic(X: Array) -> Array:
        X = (X[..., columns] - origin) / scale
        r2 = X @ doubled
        r2 += np.einsum("...d,...d->...", X, X)[..., None] + squares
        return of_square(r2)

    return isotropic


def variance_of(kernel: Description) -> Callable[[Array], Array]:
    """Prepare the prior variance of f.

    :param kernel: The description of the kernel.
    :return: A function of rows X [N, D] that computes the variances [N].
    :raises ValueError: If the kind of kernel is not known.
    """
    kind = kernel["kind"]
    if kind in _REDUCTIONS:
        terms = [variance_of(term) for term in kernel["kernels"]]
        return lambda X: reduce(_REDUCTIONS[kind], [term(X) for term in terms])
    if kind == "Periodic":
        return variance_of(kernel["base_kernel"])
    if kind not in KINDS:
        raise _unknown(kind)
    columns = _columns(kernel)
    variance = kernel["variance"]
    if kind == "Linear":
        return lambda X: np.sum(X[:, columns] ** 2 * variance, axis=1)
    return lambda X: np.full(len(X), float(variance))


def _profile(kernel: Description) -> Callable[[Array], Array]:
    """Return the kernel as a function of the squared distance."""
    kind = kernel["kind"]
    variance = kernel["variance"]
    if kind in _OF_DISTANCE:
        return lambda r2: np.asarray(
            variance * _OF_DISTANCE[kind](np.sqrt(np.maximum(r2, _SMALLEST_SQUARE)))
        )
    return lambda r2: np.asarray(variance * _OF_SQUARE[kind](r2, kernel))


def _periodic(kernel: Description, Z: Array) -> Callable[[Array], Array]:
    base = kernel["base_kernel"]
    period = kernel["period"]
    if base["kind"] not in ISOTROPIC:
        raise _unknown(f"Periodic of {base['kind']}")
    columns = _columns(base)
    scale = base["lengthscales"]
    of_square = _profile(base)
    Z = Z[..., None, :, columns]

    def periodic(X: Array) -> Array:
        sines = np.sin(np.pi * (X[..., None, columns] - Z) / period) / scale
        # Here GPflow adds absolute values instead of squares.
        if base["kind"] in _OF_DISTANCE:
            return of_square(np.sum(np.abs(sines), axis=-1) ** 2)
        return of_square(np.sum(sines**2, axis=-1))

    return periodic


def _columns(kernel: Description) -> Any:
    columns = kernel["active_dims"]
    return columns if isinstance(columns, slice) else np.asarray(columns, dtype=np.intp)


def _unknown(kind: str) -> ValueError:
    return refusal("kernel", kind, f"one of GPflow's {', '.join(KINDS)}", REMEDY)
