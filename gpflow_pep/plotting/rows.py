"""Pictures of what Power EP does at one row."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import logsumexp
from scipy.stats import norm

from ..checks import refusal
from ..tilted import log_power_expectation
from ..tilted.entries import entry_log_power_expectation
from . import canvas
from .canvas import BEST, FIT, TRAIN, color_of, legend_on_top, note

#: Values of f on the axis, and how many standard deviations they reach.
_POINTS, _REACH = 401, 4.5


class RowCurves(NamedTuple):
    """Functions of one latent function at one row, on a grid of its values, [G] each."""

    f: AnyNDArray
    """The values: h plus the prior mean, without the residual."""

    cavity: AnyNDArray
    """Density without the power alpha of the row's site."""

    likelihood: AnyNDArray
    """To the power alpha, averaged over the residual, and over the cavity of other latent
    functions; at most 1."""

    tilted: AnyNDArray
    """Density: cavity times likelihood, normalised."""

    site: AnyNDArray
    """To the power alpha, on the scale of the likelihood: their products with the cavity have the
    same integral."""

    posterior: AnyNDArray
    """Density under q: cavity times site, normalised."""

    label: str
    """Which row of which target and power it is."""


def row_curves(model: Any, number: int, *, latent: int = 0) -> RowCurves:
    r"""
    Compute what :func:`row` draws.

    At :math:`\alpha = 0` nothing is taken out of q, and cavity, tilted distribution and q are the
    same. Likelihood and site are then to the power 1: the likelihood is
    :math:`\exp E[\log p(y | f)]`, over the residual, and the logarithms of both have the same mean
    under q.

    :param model: A model that has ``row_terms``.
    :param number: Of the row, from 0.
    :param latent: Of the latent function, from 0; of mixtures, and where targets are missing, of
        the output.
    :raises ValueError: If there is no such row or latent function, the target was not observed, or
        the model has no row terms.
    """
    terms = model.row_terms()
    for name, place, size in zip(("number", "latent"), (number, latent), terms.nu.shape):
        if not 0 <= place < size:
            raise refusal(name, place, f"a whole number from 0 to {size - 1}", "Pass one.")
    X, Y = (tf.convert_to_tensor(part)[number : number + 1] for part in model.data)
    of_entries = terms.log_normaliser.shape.rank == 2
    if of_entries and not np.isfinite(Y[0, latent]):
        got, expected = f"row {number} without target {latent}", "one that was observed"
        raise refusal("number and latent", got, expected, "Pass another row or output.")
    powers = np.atleast_1d(model.alpha.numpy())
    alpha = float(powers[number if len(powers) > 1 else 0])
    at = {name: part.numpy()[number] for name, part in terms._asdict().items()}
    center, spread = at["mean"][latent], np.sqrt(at["cavity_variance"][latent])
    h = center + _REACH * spread * np.linspace(-1.0, 1.0, _POINTS)
    # Other latent functions are averaged over.
    residual = at["residual_variance"]
    if of_entries and terms.contribution.shape.rank == 1:  # rows are factors, of f itself
        residual = np.zeros_like(residual)
    mean = np.tile(at["cavity_mean"] + at["prior_mean"], [_POINTS, 1])
    variance = np.tile(at["cavity_variance"] + residual, [_POINTS, 1])
    mean[:, latent] = h + at["prior_mean"][latent]
    variance[:, latent] = residual[latent]
    inputs, targets = (tf.repeat(part, _POINTS, axis=0) for part in (X, Y))
    moments = tf.constant(mean), tf.constant(variance)
    arguments = model.likelihood, inputs, *moments, targets
    if of_entries:
        power = tf.constant([alpha], targets.dtype)
        log_likelihood = entry_log_power_expectation(*arguments, power)[:, latent].numpy()
    else:
        log_likelihood = log_power_expectation(*arguments, alpha).numpy()
    log_site = at["nu"][latent] * h - 0.5 * at["tau"][latent] * h**2
    cavity = norm.pdf(h, at["cavity_mean"][latent], spread)
    posterior = norm.pdf(h, center, np.sqrt(at["variance"][latent]))
    if alpha > 0.0:
        log_likelihood, log_site = alpha * log_likelihood, alpha * log_site
        largest = log_likelihood.max()
        tilted = cavity * np.exp(log_likelihood - largest)
        normaliser = _integral(h, tilted)
        log_site += np.log(normaliser / (h[1] - h[0])) - logsumexp(log_site, b=cavity)
        tilted /= normaliser
    else:
        tilted, largest = cavity, log_likelihood.max()
        log_site += _integral(h, posterior * (log_likelihood - largest - log_site))
    seen = Y[0, latent : latent + 1] if of_entries else Y[0]
    return RowCurves(
        mean[:, latent],
        cavity,
        np.exp(log_likelihood - largest),
        tilted,
        np.exp(np.minimum(log_site, 50.0)),
        posterior,
        f"row {number}: y = {', '.join(f'{y:g}' for y in seen.numpy())}, alpha {alpha:g}",
    )


@canvas.picture()
def row(curves: RowCurves, *, ax: Any = None) -> None:
    """
    Draw what Power EP does at one row: cavity times likelihood is tilted; cavity times site is q.

    :param curves: Of :func:`row_curves`. Cavity, tilted distribution and q are densities;
        likelihood and site have a scale of their own.
    :raises ValueError: If the curves have different lengths.
    """
    lengths = {len(part) for part in curves[:-1]}
    if len(lengths) > 1:
        raise refusal("curves", f"lengths {sorted(lengths)}", "one length", "Use row_curves.")
    top = max(curves.tilted.max(), curves.posterior.max(), curves.cavity.max())
    f = curves.f
    ax.fill_between(f, curves.cavity, color=TRAIN, alpha=0.25, linewidth=0, label="cavity")
    ax.plot(f, 0.9 * top * curves.likelihood, color=color_of(2), label="likelihood, scaled")
    ax.plot(f, 0.9 * top * curves.site, "--", color=color_of(2), label="site, scaled")
    ax.plot(f, curves.tilted, color=FIT, linewidth=2.0, label="tilted")
    ax.plot(f, curves.posterior, "--", color=BEST, label="q")
    ax.set(xlim=(f[0], f[-1]), ylim=(0.0, 1.15 * top), xlabel="f at the row", ylabel="density")
    legend_on_top(ax, columns=3)
    note(ax, curves.label, right=True, bottom=True)


def _integral(h: AnyNDArray, values: AnyNDArray) -> float:
    return float(np.sum(values)) * float(h[1] - h[0])
