"""Pictures of parts of models: inducing inputs and their blur, the inputs a kernel looks at."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ..engine.checks import as_vector, refusal, require_same_length
from ..inducing_variables import BlurredInducingPoints
from . import canvas
from .canvas import BEST, INK, SMALL, TRAIN, as_columns, as_names, color_of, halo, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inputs whose relevance is drawn: the most relevant ones.
MOST_INPUTS = 25


class Inducing(NamedTuple):
    """Where inducing variables are."""

    Z: AnyNDArray
    """Inputs, [M, D]."""

    covariance: AnyNDArray | None = None
    """Of the blur of each, [M, D, D]; None for points."""


def inducing_points_of(model: Any) -> list[Inducing]:
    """
    Find the inducing inputs of each set that a model has; of an estimator, in original units.

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
        raise refusal(
            "model",
            f"{type(model).__name__} with the inducing variable {type(variables).__name__}",
            "one with inputs Z",
            "Leave this out, or draw it yourself.",
        )
    return [_in_original_units(variable, scaler) for variable in sets]


def _in_original_units(variable: Any, scaler: Any) -> Inducing:
    Z, covariance = np.asarray(variable.Z), None
    if isinstance(variable, BlurredInducingPoints):
        covariance = np.asarray(variable.covariance)
    if scaler is not None:
        Z = scaler.inverse_transform(Z)
        if covariance is not None and scaler.scale_ is not None:
            covariance = covariance * np.outer(scaler.scale_, scaler.scale_)
    return Inducing(Z, covariance)


@canvas.picture()
def inducing_points(
    sets: Any,
    X: Any = None,
    *,
    dimensions: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    ax: Any = None,
) -> None:
    """
    Draw inducing inputs among rows, and their blur: one standard deviation, as an ellipse.

    :param sets: Z [M, D], or what :func:`inducing_points_of` gives; each set has its colour.
    :param X: Rows, [N, D], or None.
    :param dimensions: The input on each axis, one or two; the first two by default. Of one input
        there are marks on a line.
    :param names: Of the D inputs.
    :raises ValueError: If arrays are not finite or of other shapes, or there is no such input.
    """
    several = _sets(sets)
    num_inputs = several[0].Z.shape[1]
    inputs = as_names("input", names, num_inputs)
    shown = tuple(range(min(2, num_inputs)) if dimensions is None else dimensions)
    if len(shown) not in (1, 2) or not all(0 <= dimension < num_inputs for dimension in shown):
        expected = f"one or two of the inputs 0 to {num_inputs - 1}"
        raise refusal("dimensions", shown, expected, "Choose others.")
    if X is not None:
        X = as_columns("X", X, num_inputs)
        x, y = X[:, shown[0]], X[:, shown[1]] if len(shown) > 1 else np.zeros(len(X))
        canvas.backdrop(ax, x, y, "rows", color=TRAIN)
    for number, points in enumerate(several):
        name = "inducing inputs" if len(several) == 1 else f"inducing inputs {number}"
        draw_inducing(ax, points, shown, color=color_of(number), label=name)
    ax.set_xlabel(inputs[shown[0]])
    if len(shown) > 1:
        ax.set_ylabel(inputs[shown[1]])
    else:
        ax.set_yticks([])
    canvas.legend_on_top(ax)


def draw_inducing(
    ax: "Axes", inducing: Inducing, shown: Sequence[int], *, color: str, label: str
) -> None:
    """Draw one set with its blur; ``shown`` is the input on each axis, one or two."""
    from matplotlib.collections import EllipseCollection

    Z = inducing.Z[:, shown]
    flat = len(shown) == 1
    if flat:
        Z = np.column_stack([Z, np.zeros(len(Z))])
    if inducing.covariance is not None:
        label += ", blur ± 1 std"
        C = inducing.covariance[:, shown][:, :, shown]
        if flat:
            spread = np.sqrt(C[:, 0, 0])
            ax.hlines(Z[:, 1], Z[:, 0] - spread, Z[:, 0] + spread, color=color, alpha=0.5)
        else:
            values, vectors = np.linalg.eigh(C)
            short, long = 2.0 * np.sqrt(np.maximum(values, 0.0)).T
            angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
            ellipses = EllipseCollection(
                long, short, angles, units="xy", offsets=Z, transOffset=ax.transData
            )
            ellipses.set(facecolor="none", edgecolor=color, linewidth=1.1)
            ax.add_collection(ellipses)
    style: dict[str, Any] = {
        "markersize": 8,
        "markeredgewidth": 1.6,
        "path_effects": halo(),
        "zorder": 6,
    }
    ax.plot(*Z.T, "+", color=color, label=label, **style)


def draw_ticks(ax: "Axes", inducing: Inducing) -> None:
    """Mark inducing inputs of one dimension at the foot of axes, when all else is drawn."""
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.08 * (high - low), high)
    z, transform = inducing.Z[:, 0], ax.get_xaxis_transform()
    height = np.full_like(z, 0.03)
    if inducing.covariance is not None:
        spread = np.sqrt(inducing.covariance[:, 0, 0])
        style: dict[str, Any] = {"color": BEST, "alpha": 0.6, "linewidth": 3}
        bars = (height, z - spread, z + spread)
        ax.hlines(*bars, transform=transform, label="blur ± 1 std", **style)
    style = {"color": INK, "markersize": 9, "markeredgewidth": 1.4}
    ax.plot(z, height, "|", transform=transform, label="inducing inputs", **style)


def _sets(sets: Any) -> list[Inducing]:
    if isinstance(sets, Inducing) or not isinstance(sets, (list, tuple)):
        sets = [sets]
    several = [each if isinstance(each, Inducing) else Inducing(each) for each in sets]
    several = [each._replace(Z=as_columns("Z", each.Z)) for each in several]
    sizes = {each.Z.shape[1] for each in several}
    if len(sizes) != 1:
        raise refusal(
            "sets",
            f"inducing inputs with {sorted(sizes)} columns",
            "as many in each, and at least one set",
            "Draw them apart.",
        )
    return several


def relevance(
    kernel: Any, names: Sequence[Any] | None = None, *, spread: Any = None, ax: "Axes | None" = None
) -> "Axes":
    r"""
    Draw the relevance of each input, one over its lengthscale: how many lengthscales there are in a
    unit of the input, or in its `spread`.

    Inputs are comparable if they have the same spread: standardise them, as estimators do, or
    pass `spread`. In a sum or a product of kernels each part with lengthscales has bars of its own.

    :param kernel: A kernel with lengthscales in one part at least, a model with such a kernel, or a
        fitted estimator, which knows the names of its inputs.
    :param names: Of all inputs.
    :param spread: Of each input, such as its standard deviation, [D].
    :param ax: To draw on; a new figure of pyplot's if None.
    :return: `ax`.
    :raises ValueError: If no part has lengthscales, or there are not as many names as inputs.
    :raises ImportError: If matplotlib is not installed.
    """
    if names is None:
        names = getattr(kernel, "feature_names_in_", None)
    num_inputs = getattr(kernel, "n_features_in_", None if names is None else len(names))
    every = list(_parts(getattr(kernel, "kernel_", getattr(kernel, "kernel", kernel))))
    parts = [part for part in every if hasattr(part, "lengthscales")]
    if not parts:
        raise refusal(
            "kernel",
            ", ".join(type(part).__name__ for part in every),
            "lengthscales in one part at least: without, no input has a relevance",
            "Use a stationary kernel, such as gpflow.kernels.SquaredExponential(lengthscales=[1.0]"
            " * D).",
        )
    size = _num_inputs(parts, num_inputs)
    inputs = as_names("input", names, size)
    values = np.stack([_inverse_lengthscales(part, size) for part in parts])
    if spread is not None:
        spread = canvas.check_spread("spread", as_vector("spread", spread))
        require_same_length("spread", spread, "inputs", inputs)
        values = values * spread
    order = np.argsort(-values.max(axis=0), kind="stable")[:MOST_INPUTS]
    ax = canvas.axes_for(ax, 6.0, 1.1 + 0.28 * max(4, len(order)))
    _draw_bars(ax, values[:, order], [inputs[place] for place in order], _names(parts))
    ax.set_xlabel("1 / lengthscale" if spread is None else "spread / lengthscale")
    if size > len(order):
        ax.set_title(f"the {len(order)} most relevant of {size} inputs", fontsize="medium")
    return ax


def _parts(kernel: Any) -> Iterator[Kernel]:
    """Give the kernels that sums, products, outputs and wrappers are made of."""
    if not isinstance(kernel, Kernel):
        expected = "a gpflow.kernels.Kernel, or a model or fitted estimator that has one"
        raise refusal("kernel", type(kernel).__name__, expected, "Pass one.")
    inside = getattr(kernel, "kernels", None) or getattr(kernel, "latent_kernels", None)
    if inside is None and hasattr(kernel, "base_kernel"):
        inside = [kernel.base_kernel]
    if inside is None:
        yield kernel
        return
    for part in inside:
        yield from _parts(part)


def _num_inputs(parts: Sequence[Any], known: int | None) -> int:
    if known is not None:
        return int(known)
    sizes = []
    for part in parts:
        if isinstance(part.active_dims, slice):
            sizes.append(int(np.size(part.lengthscales)))
            if sizes[-1] == 1 and part.active_dims.stop:
                sizes[-1] = part.active_dims.stop
        else:
            sizes.append(int(np.max(part.active_dims)) + 1)
    return max(sizes)


def _inverse_lengthscales(part: Any, num_inputs: int) -> AnyNDArray:
    """[D]; 0 of inputs that are not active."""
    lengthscales = np.asarray(part.lengthscales)
    try:
        active = np.arange(num_inputs)[part.active_dims]
    except IndexError:
        active = np.array([], dtype=int)
    if active.size == 0 or lengthscales.size not in (1, active.size):
        raise refusal(
            "kernel",
            f"active_dims {part.active_dims} and {lengthscales.size} lengthscale(s) for"
            f" {num_inputs} input(s)",
            "one for all or one for each",
            "Pass the names of all inputs that the kernel is called with.",
        )
    values = np.zeros(num_inputs)
    values[active] = 1.0 / lengthscales
    return values


def _names(parts: Sequence[Kernel]) -> list[str]:
    """Name each part by its type, and by its number where there are several of that."""
    types = [type(part).__name__ for part in parts]
    return [
        f"{name} {types[:place].count(name) + 1}" if types.count(name) > 1 else name
        for place, name in enumerate(types)
    ]


def _draw_bars(ax: "Axes", values: AnyNDArray, inputs: Sequence[str], parts: Sequence[str]) -> None:
    """Draw a bar for each input and part, with its value."""
    num_parts, places = len(parts), np.arange(len(inputs))
    active = values > 0.0
    thickness = 0.8 / np.maximum(active.sum(axis=0), 1)
    above = np.cumsum(active, axis=0) - active
    for number, name in enumerate(parts):
        shown = active[number]
        heights = (places - 0.4 + (above[number] + 0.5) * thickness)[shown]
        lengths, color = values[number][shown], color_of(number)
        bars = ax.barh(heights, lengths, 0.9 * thickness[shown], color=color, label=name)
        if num_parts <= 3:
            ax.bar_label(bars, fmt="{:.2g}", padding=3.0, fontsize=SMALL - 1.0, color=INK)
    ax.set_yticks(places, [name if len(name) < 30 else f"{name[:28]}…" for name in inputs])
    ax.set_ylim(len(inputs) - 0.4, -0.6)
    ax.set_xlim(0.0, 1.12 * values.max())
    ax.tick_params(axis="y", length=0)
    if num_parts > 1:
        ax.legend(loc="lower right", frameon=False, fontsize=SMALL)
    tidy(ax)
