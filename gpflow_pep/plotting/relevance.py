"""Which inputs a kernel looks at."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ..checks import as_vector, refusal, require_same_length
from .arrays import as_names, check_spread
from .canvas import INK, SMALL, axes_for, color_of, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inputs that are drawn: the most relevant ones.
MOST_INPUTS = 25


def relevance(
    kernel: Any,
    names: Sequence[Any] | None = None,
    *,
    spread: Any = None,
    ax: "Axes | None" = None,
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
        spread = check_spread("spread", as_vector("spread", spread))
        require_same_length("spread", spread, "inputs", inputs)
        values = values * spread
    order = np.argsort(-values.max(axis=0), kind="stable")[:MOST_INPUTS]
    ax = axes_for(ax, 6.0, 1.1 + 0.28 * max(4, len(order)))
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
