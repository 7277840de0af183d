"""Pictures of models: the inputs that matter to a kernel, scores at several powers."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ..engine.checks import as_vector, as_vectors, refusal, require_same_length
from . import canvas
from .canvas import BEST, FIT, INK, SMALL, as_names, color_of

#: Inputs whose relevance is drawn: the most relevant ones.
MOST_INPUTS = 25


class Inducing(NamedTuple):
    """Where inducing variables are."""

    Z: AnyNDArray  #: Inputs, [M, D].
    covariance: AnyNDArray | None = None  #: Of the blur of each, [M, D, D]; None for points.


def inducing_points_of(model: Any) -> list[Inducing]:
    """Find the inducing inputs of each set that a model has; of an estimator, in original units.

    :param model: A model of GPflow's or of this package, a fitted ``PEPRegressor`` or
        ``PEPClassifier``, or an inducing variable.
    :raises ValueError: If it has none with inputs Z.
    """
    scaler = getattr(model, "input_scaler_", None)
    variables: Any = model
    for name in ("inducing_variable", "inducing_variable_"):
        variables = getattr(model, name, variables)
    sets = getattr(variables, "inducing_variables", (variables,))
    sets = [getattr(variable, "inducing_variable", variable) for variable in sets]
    if not all(hasattr(variable, "Z") for variable in sets):
        got = f"{type(model).__name__} with the inducing variable {type(variables).__name__}"
        remedy = "Leave this out, or draw it yourself."
        raise refusal("model", got, "one with inputs Z", remedy)
    scale, inputs = getattr(scaler, "scale_", None), []
    square = 1.0 if scale is None else np.outer(scale, scale)
    for variable in sets:
        Z, blur = np.asarray(variable.Z), getattr(variable, "covariance", None)
        Z = Z if scaler is None else scaler.inverse_transform(Z)
        inputs.append(Inducing(Z, None if blur is None else square * np.asarray(blur)))
    return inputs


@canvas.picture()
def relevance(
    kernel: Any, names: Sequence[Any] | None = None, *, spread: Any = None, ax: Any = None
) -> None:
    r"""
    Draw the relevance of each input, one over its lengthscale: how many lengthscales there are in a
    unit of the input, or in its `spread`.

    Inputs are comparable if they have the same spread: standardise them, as estimators do, or
    pass `spread`. In a sum or a product of kernels each part with lengthscales has bars of its own.
    Inputs of one name, as of the columns of 0 and 1 that text becomes, share a bar: the root of the
    sum of their squares.

    :param kernel: A kernel with lengthscales in one part at least, a model with such a kernel, or a
        fitted estimator, which has the names of its inputs.
    :param names: Of all inputs.
    :param spread: Of each input, such as its standard deviation, [D].
    :raises ValueError: If no part has lengthscales, or there are not as many names as inputs.
    """
    if names is None:
        names = getattr(kernel, "feature_names_in_", None)
    size = getattr(kernel, "n_features_in_", None if names is None else len(names))
    kernel = getattr(kernel, "kernel_", getattr(kernel, "kernel", kernel))
    if not isinstance(kernel, Kernel):
        expected = "a gpflow.kernels.Kernel, or a model or fitted estimator that has one"
        raise refusal("kernel", type(kernel).__name__, expected, "Pass one.")
    parts: list[Any] = [p for p in (kernel, *kernel.submodules) if hasattr(p, "lengthscales")]
    if not parts:
        expected = "lengthscales in one part at least: without, no input has a relevance"
        remedy = "Use a stationary kernel, such as gpflow.kernels.SquaredExponential()."
        raise refusal("kernel", type(kernel).__name__, expected, remedy)
    inputs = as_names("input", names, size or max(map(_num_inputs, parts)))
    values = np.stack([_inverse_lengthscales(part, len(inputs)) for part in parts])
    if spread is not None:
        spread = canvas.check_spread("spread", as_vector("spread", spread))
        require_same_length("spread", spread, "inputs", inputs)
        values = values * spread
    different = list(dict.fromkeys(inputs))
    values = np.sqrt(np.square(values) @ np.equal.outer(inputs, different))
    inputs = different
    order = np.argsort(-values.max(axis=0), kind="stable")[:MOST_INPUTS]
    places, thickness = np.arange(len(order)), 0.8 / len(parts)
    for number, (part, lengths) in enumerate(zip(parts, values[:, order])):
        label = type(part).__name__ + (f" {number + 1}" if len(parts) > 1 else "")
        heights = places - 0.4 + (number + 0.5) * thickness
        bars = ax.barh(heights, lengths, 0.9 * thickness, color=color_of(number), label=label)
        ax.bar_label(bars, fmt="{:.2g}", padding=3.0, fontsize=SMALL - 1.0, color=INK)
    labels = (inputs[place] for place in order)
    ax.set_yticks(places, [name if len(name) < 30 else f"{name[:28]}…" for name in labels])
    ax.set(ylim=(len(order) - 0.4, -0.6), xlim=(0.0, 1.12 * values.max()))
    ax.tick_params(axis="y", length=0)
    if len(parts) > 1:
        ax.legend(loc="lower right", frameon=False, fontsize=SMALL)
    ax.set_xlabel("1 / lengthscale" if spread is None else "spread / lengthscale")
    if len(inputs) > len(order):
        ax.set_title(f"the {len(order)} most relevant of {len(inputs)} inputs", fontsize="medium")


def _num_inputs(part: Any) -> int:
    dims, size = part.active_dims, np.size(part.lengthscales)
    return int((dims.stop or size) if isinstance(dims, slice) else np.max(dims) + 1)


def _inverse_lengthscales(part: Any, num_inputs: int) -> AnyNDArray:
    """[D]; 0 of inputs that are not active."""
    lengthscales, values = np.asarray(part.lengthscales), np.zeros(num_inputs)
    with contextlib.suppress(IndexError, ValueError):
        values[part.active_dims] = 1.0 / lengthscales
    if not values.any():
        got = f"active_dims {part.active_dims} and {lengthscales.size} lengthscale(s) for"
        remedy = "Pass the names of all inputs that the kernel is called with."
        got += f" {num_inputs} input(s)"
        raise refusal("kernel", got, "one for all or one for each", remedy)
    return values


@canvas.picture()
def alpha_sweep(
    alphas: Any,
    values: Any,
    errors: Any = None,
    *,
    best: float | None = None,
    baselines: Mapping[str, float | tuple[float, float]] | None = None,
    label: str = "",
    ax: Any = None,
) -> None:
    """Draw a score against the power, with error bars, and other methods as horizontal lines.

    A line far from all powers would squeeze these: it is outside of the picture, and the legend has
    an arrow to where it is.

    :param alphas: Powers in [0, 1], [A], all different; one will do.
    :param values: The score of each, [A].
    :param errors: Its standard error, [A], or None.
    :param best: The power to be ringed, one of `alphas`.
    :param baselines: The score of other methods by name, or a pair of it and its standard error.
    :param label: Of the score.
    :raises ValueError: If arrays are not finite or of other lengths, a power is not in [0, 1] or
        there twice, an error is negative, or `best` is none of the powers.
    """
    alphas, values = as_vectors(alphas=alphas, values=values)
    errors = np.zeros_like(values) if errors is None else as_vector("errors", errors)
    require_same_length("errors", errors, "alphas", alphas)
    others = {
        str(name): np.append(as_vector(f"baselines of {name!r}", np.atleast_1d(pair)), 0.0)[:2]
        for name, pair in (baselines or {}).items()
    }
    _check_powers(alphas, np.append(errors, [error for _, error in others.values()]), best)
    order = np.argsort(alphas)
    alphas, values, errors = alphas[order], values[order], errors[order]
    several = len(alphas) > 1
    text = None if several else f"alpha {alphas[0]:g}: {values[0]:.4g}"
    bars, form = errors if errors.any() else None, "o-" if several else "o"
    ax.errorbar(alphas, values, bars, fmt=form, color=FIT, capsize=3, zorder=4, label=text)
    if best is not None and several:
        ring = values[np.isclose(alphas, best)][:1]
        ax.plot([best], ring, "o", color=BEST, markersize=13, fillstyle="none", zorder=5)
    low, high = _heights(values, errors, np.reshape(list(others.values()), (-1, 2)))
    for number, (name, (value, error)) in enumerate(others.items(), start=2):
        color, style = color_of(number), ("--", "-.", ":")[number % 3]
        arrow = " ↑" if value > high else " ↓" if value < low else ""
        text = f"{name}: {value:.4g}{arrow}"
        ax.axhline(value, color=color, linestyle=style, zorder=2, label=text)
        ax.axhspan(value - error, value + error, color=color, alpha=0.1, linewidth=0)
    ticks = alphas if len(alphas) <= 6 else np.linspace(0.0, 1.0, 6)
    ax.set(xlabel="alpha (0: variational, 1: EP)", ylabel=label, xticks=ticks)
    ax.set(xlim=(-0.05, 1.05), ylim=(low, high))
    ax.ticklabel_format(axis="y", useOffset=False)
    canvas.legend_on_top(ax, columns=2)


def _check_powers(alphas: AnyNDArray, errors: AnyNDArray, best: float | None) -> None:
    if alphas.min() < 0.0 or alphas.max() > 1.0 or len(set(alphas)) < len(alphas):
        remedy = "Draw other methods as baselines, and repeated splits as a mean with its error."
        raise refusal("alphas", alphas.tolist(), "different numbers in [0, 1]", remedy)
    if errors.min() < 0.0:
        raise refusal("errors", errors.min(), "numbers of at least 0", "Pass standard errors.")
    if best is not None and not np.isclose(alphas, best).any():
        raise refusal("best", best, f"one of alphas, {alphas.tolist()}", "Pass one, or None.")


def _heights(values: AnyNDArray, errors: AnyNDArray, others: AnyNDArray) -> tuple[float, float]:
    """Find limits of y that hold the sweep, and the baselines [B, 2] that are not far from it."""
    low, high = float(np.min(values - errors)), float(np.max(values + errors))
    far = 3.0 * (high - low) if len(values) > 1 and high > low else np.inf
    ends = np.ravel([others[:, 0] - others[:, 1], others[:, 0] + others[:, 1]])
    near = np.tile((low - far <= others[:, 0]) & (others[:, 0] <= high + far), 2)
    low, high = np.min(ends, where=near, initial=low), np.max(ends, where=near, initial=high)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return float(low - margin), float(high + margin)
