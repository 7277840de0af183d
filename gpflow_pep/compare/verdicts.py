"""What a comparison says, in sentences: which model to take, what to beware of, what to try."""

from collections.abc import Iterator, Sequence

import numpy as np

from .candidates import TRIVIAL
from .details import describe_others, would_more_rows_help
from .headline import cautions
from .run import Comparison
from .screening import describe_scales, describe_screening
from .settings import AUTO, COUNTS, KERNELS, has_gaussian_noise
from .summary import (
    LEAST_GAIN,
    LEAST_SMALLER,
    USES,
    WITHIN,
    better_baselines,
    difference,
    gain_over_trivial,
    summarise,
    together_or_separate,
    unstable_part,
)

#: Whole numbers of a larger mean are nearly as well described by Gaussians as by counts.
MOST_COUNTED = 50.0


def verdict(comparison: Comparison) -> str:
    """Say in a sentence or two which row of the table is the best, and what is close to it."""
    best = comparison.best
    if best is None:
        return "No power could be trained in every part: see the messages."
    metric = comparison.metrics[0]
    table = summarise(comparison).query("failed == 0")
    losses = metric.loss(table[metric.name]).fillna(np.inf)
    lowest = str(losses.idxmin())
    text = f"The {metric.best} {metric.heading} has {best}"
    way = f"clearly {'above' if metric.higher_is_better else 'below'}"
    if losses[best] > losses[lowest]:
        near = way if difference(comparison, lowest, best).clear else "within noise of"
        chosen = "the best of the powers"
        if comparison.settings.select == "loo":
            chosen = "which was chosen by leave-one-out densities"
        text = f"The {metric.best} {metric.heading} has {lowest}, {near} {best}, {chosen}"
    powers = table.loc[[name for name in table.index if name in comparison.choices]]
    worse = powers.index[(powers["verdict"] == "") & (powers["difference"] > 0.0)]
    if len(worse) and lowest == best:
        text += f", {way} {listed_as_words(worse)}"
    within = table.index[(table["verdict"] == WITHIN) & (table.index != lowest)]
    if len(within):
        text += f"; {_they_are(within)} within noise of {'it' if lowest == best else best}"
    better = [name for name in better_baselines(comparison) if name != lowest]
    if better:
        names = _they_are(better)
        text += f". {names[0].upper()}{names[1:]} clearly better on these rows"
    return text + "."


def listed_as_words(names: Sequence[str]) -> str:
    """Join names as a sentence does: "a", "a and b", "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _they_are(names: Sequence[str]) -> str:
    return f"{listed_as_words(names)} {'is' if len(names) == 1 else 'are'}"


def warnings_of(comparison: Comparison) -> list[str]:
    """Find what there is to know of the fits before their scores are believed, a sentence each."""
    messages = list(cautions(comparison))
    for name in comparison.candidates:
        messages += [f"{name}: {message}" for message in _warnings_of_model(comparison, name)]
    final = comparison.final
    if final is not None and comparison.model is None:
        messages.append(f"{final.model}, all rows: the fit failed: {final.message}")
    elif final is not None and not final.converged:
        messages.append(f"{final.model}, all rows: the fit did not converge: {final.message}")
    return messages


def _warnings_of_model(comparison: Comparison, name: str) -> Iterator[str]:
    fits = comparison.fits_of(name)
    failed = [fit for fit in fits if fit.failed]
    open_ended = [fit for fit in fits if not fit.converged and not fit.failed]
    if failed:
        yield f"{len(failed)} of {len(fits)} fits failed: {failed[0].message}"
    if open_ended:
        over = any("time" in fit.message for fit in open_ended)
        yield (
            f"{len(open_ended)} of {len(fits)} fits did not converge: {open_ended[0].message}"
            f"{' More minutes may help.' * over}"
        )
    trivial = TRIVIAL[comparison.data.kind]
    if failed or name == trivial:
        return
    worst = unstable_part(fits)
    if worst is not None:
        part, *_ = comparison.settings.parts()
        median = np.median([fit.scores["nlpd"] for fit in fits])
        yield (
            f"unstable: its NLPD is {worst.scores['nlpd']:.2f} in {part} {worst.part}, and"
            f" {median:.2f} in the median {part}."
        )
    gain, smaller, error = gain_over_trivial(comparison, name)
    if gain < LEAST_GAIN:
        start = f"no better than the baseline '{trivial}' in NLPD ({gain:+.3f} nats)"
        if smaller < LEAST_SMALLER:
            yield f"{start}: it has learnt nothing from these inputs that holds for other rows."
        else:
            useful, useless = USES[comparison.data.kind]
            yield (
                f"{start}, but its {error} is {smaller:.0%} smaller: it is too sure of"
                f" itself where it is wrong. Its {useful} are of use, its {useless} are not."
            )


def advice(comparison: Comparison) -> list[str]:
    """Say what to try next, and how the models that were compared were chosen."""
    settings, sentences = comparison.settings, []
    metric = comparison.metrics[0]
    if len(comparison.data.targets) > 1:
        sentences.append(together_or_separate(comparison))
        if comparison.details is not None and comparison.details.given_others:
            sentences.append(describe_others(comparison.details.given_others))
    if comparison.screening is not None:
        sentences.append(describe_screening(comparison.screening, settings, metric))
    if comparison.scales:
        sentences.append(describe_scales(comparison.scales))
    if _is_of_counts(comparison):
        y, likelihoods = comparison.data.y, [f"--likelihood {name}" for name in COUNTS]
        sentences.append(
            f"The targets are counts, {y.min():g} to {y.max():g}: {listed_as_words(likelihoods)}"
            " predict no negative ones and no fractions. Compare their NLPD and MAE with these."
        )
    better = better_baselines(comparison)
    if better:
        tries = []
        if settings.num_inducing != AUTO:
            tries.append("--inducing auto, which chooses the number of inducing points")
        if not isinstance(settings.kernel, tuple):
            others = ",".join(name for name in KERNELS if name != "matern12")
            tries.append(f"--kernels {others}, for functions that are less smooth")
        if tries:
            sentences.append(f"As {_they_are(better)} better here, try {'; or '.join(tries)}.")
    if comparison.details is not None:
        sentences.append(would_more_rows_help(metric, comparison.details.learning))
    return list(filter(None, sentences))


def _is_of_counts(comparison: Comparison) -> bool:
    """Whether the targets are small whole numbers that a Gaussian likelihood was compared on."""
    y = comparison.data.y
    if comparison.data.kind == "classes" or len(comparison.data.targets) > 1:
        return False
    if not has_gaussian_noise(comparison.settings.likelihood):
        return False
    return bool((y >= 0.0).all() and (y % 1.0 == 0.0).all() and y.mean() < MOST_COUNTED)
