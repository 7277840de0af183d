"""The scores of all fits as one table: which power is best, what is within noise, what to know."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from .candidates import TRIVIAL
from .headline import cautions
from .run import Comparison
from .trials import Fit

#: A model whose decisive score is not lower than the baseline's by so many nats learnt nothing.
LEAST_GAIN = 0.02
#: Unless its error is smaller than the baseline's by this fraction.
LEAST_SMALLER = 0.1
#: What is called clearly different has a chance of at most this to be none.
SIGNIFICANCE = 0.05
BEST, WITHIN, UNSTABLE = "best", "within noise", "unstable"
#: A model is unstable where one part's score is so many nats worse than the median of the others,
#: and so many times as far from it as they are from each other.
FAR, TIMES = 1.0, 5.0


class Difference(NamedTuple):
    """A model's decisive score less another model's, on the same held-out rows."""

    mean: float
    error: float
    """The standard error of the mean."""
    limit: float
    """Above how many standard errors the difference is clear."""

    @property
    def clear(self) -> bool:
        return abs(self.mean) > self.limit * self.error


def difference(comparison: Comparison, name: str, other: str) -> Difference:
    """
    Compare two models on the same held-out rows.

    Training sets of folds or splits overlap, so differences between parts are not independent: the
    standard error of their mean is √(1/J + n_test/n_train) of their standard deviation instead of
    √(1/J) (Nadeau and Bengio, *Inference for the generalization error*, Machine Learning 52, 2003),
    and Student's t with J − 1 degrees of freedom tells what is clear. With a single part it is the
    standard error of the mean over rows, which leaves out how much training sets matter.
    """
    table, other_table = comparison.held_out[name], comparison.held_out[other]
    rows = other_table["log_density"].to_numpy() - table["log_density"].to_numpy()
    parts = pd.Series(rows).groupby(table["part"].to_numpy()).mean().to_numpy()
    count = len(parts)
    if count == 1:
        error = np.std(rows, ddof=1) / np.sqrt(len(rows))
        return Difference(float(np.mean(rows)), float(error), stats.norm.ppf(1 - SIGNIFICANCE / 2))
    held_out = len(rows) / count
    spread = np.sqrt(1.0 / count + held_out / (len(comparison.data.X) - held_out))
    limit = stats.t.ppf(1.0 - SIGNIFICANCE / 2.0, count - 1)
    return Difference(float(np.mean(parts)), float(spread * np.std(parts, ddof=1)), float(limit))


def summarise(comparison: Comparison) -> pd.DataFrame:
    """
    Sum a comparison up: a row for each model, by its name.

    Columns are "alpha" (NaN for the mixture and baselines); for each metric its mean over parts
    and, as "_se", the standard error of that mean (NaN for a single part); "difference",
    "difference_se" of the decisive metric to the best; "verdict": "best", "within noise" of it,
    "unstable" where one part is far worse than the others, or nothing; the mean "seconds" and
    "iterations" of a fit; and how many fits "converged" and "failed".

    :param comparison: What :func:`~gpflow_pep.compare.run.compare` returned.
    """
    rows = {}
    for name, alpha in comparison.candidates.items():
        fits = comparison.fits_of(name)
        failed = sum(fit.failed for fit in fits)
        row: dict[str, object] = {"alpha": alpha}
        for metric in comparison.metrics:
            values = [fit.scores[metric.name] for fit in fits]
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            row |= {metric.name: np.mean(values), f"{metric.name}_se": error}
        row |= {"difference": np.nan, "difference_se": np.nan, "verdict": ""}
        if comparison.best is not None and not failed:
            mean, error, _ = to_best = difference(comparison, name, comparison.best)
            row |= {"difference": mean, "difference_se": error}
            row["verdict"] = "" if to_best.clear else WITHIN
            if unstable_part(fits) is not None:
                row["verdict"] = UNSTABLE
        if name == comparison.best:
            row["verdict"] = BEST
        row |= {
            "seconds": np.mean([fit.seconds for fit in fits]),
            "iterations": np.mean([fit.iterations for fit in fits]),
            "fits": len(fits),
            "converged": sum(fit.converged for fit in fits),
            "failed": failed,
        }
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def unstable_part(fits: Sequence[Fit]) -> Fit | None:
    """Find the fit of the one part that is far worse than the others, if there is one."""
    *others, worst = sorted(fits, key=lambda fit: fit.scores["nlpd"])
    if len(others) < 2:
        return None
    values = [fit.scores["nlpd"] for fit in others]
    spread = max(values) - min(values)
    return worst if worst.scores["nlpd"] - np.median(values) > max(FAR, TIMES * spread) else None


def verdict(comparison: Comparison) -> str:
    """Say in a sentence or two which power to take, or whether to mix them."""
    best = comparison.best
    if best is None:
        return "No power could be trained in every part: see the messages."
    table = summarise(comparison)
    heading = comparison.metrics[0].heading
    powers = table.loc[comparison.choices].query("failed == 0")
    worse = powers.index[powers["verdict"] == ""]
    within = powers.index[powers["verdict"] == WITHIN]
    text = f"The lowest {heading} has {best}"
    if len(worse):
        text += f", clearly below {_listed(worse)}"
    if len(within):
        text += f"; {_listed(within)} {'is' if len(within) == 1 else 'are'} within noise of it"
    better = [
        name
        for name in table.index[table["difference"] < 0.0]
        if name not in comparison.choices and difference(comparison, name, best).clear
    ]
    if better:
        verb = "is" if len(better) == 1 else "are"
        names = _listed(better)
        text += f". {names[0].upper()}{names[1:]} {verb} clearly better on these rows"
    return text + "."


def _listed(names: Sequence[str]) -> str:
    """Join names as a sentence does: "a", "a and b", "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


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
    decisive, error, *_ = comparison.metrics
    scores = {metric: [fit.scores[metric.name] for fit in fits] for metric in (decisive, error)}
    worst = unstable_part(fits)
    if worst is not None:
        part, *_ = comparison.settings.parts()
        yield (
            f"unstable: its {decisive.heading} is {worst.scores[decisive.name]:.2f} in {part}"
            f" {worst.part}, and {np.median(scores[decisive]):.2f} in the median {part}."
        )
    baseline = {
        metric: np.mean([fit.scores[metric.name] for fit in comparison.fits_of(trivial)])
        for metric in scores
    }
    gain = baseline[decisive] - np.mean(scores[decisive])
    if gain < LEAST_GAIN:
        start = f"no better than the baseline '{trivial}' in {decisive.heading} ({gain:+.3f} nats)"
        smaller = 1.0 - np.mean(scores[error]) / baseline[error] if baseline[error] else 0.0
        if smaller < LEAST_SMALLER:
            yield f"{start}: it has learnt nothing from these inputs that holds for other rows."
        else:
            yield (
                f"{start}, but its {error.heading} is {smaller:.0%} smaller: it is too sure of"
                " itself where it is wrong. Its means are of use, its intervals are not."
            )
