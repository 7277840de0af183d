"""What a comparison says in words: the best row, what it is good for, warnings, what to try."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import binomtest
from sklearn.metrics import mean_absolute_error, precision_recall_fscore_support, r2_score

from .candidates import TRIVIAL, is_separate
from .details import describe_others, would_more_rows_help
from .run import Comparison
from .scores import area_under_curve, class_indices, in_full, inside, without_limits
from .screening import describe_scales, describe_screening
from .settings import AUTO, COUNTS, KERNELS, has_gaussian_noise, is_counts
from .summary import (
    LEAST_GAIN,
    LEAST_SMALLER,
    USES,
    WITHIN,
    difference,
    gain_over_trivial,
    summarise,
    unstable_part,
)

#: Whole numbers of a larger mean are nearly as well described by Gaussians as by counts.
MOST_COUNTED = 50.0
#: Intervals are said to be wrong where so many rows more or fewer than 90% are inside, and the
#: chance of that would be below LEAST_CHANCE if they were right.
COVERAGE_OFF, LEAST_CHANCE = 0.03, 0.01
#: A class is said to be missed where it has at least so many held-out rows, and half of them get
#: another one.
FEWEST_OF_CLASS = 5


def headline(comparison: Comparison) -> str:
    """Say how good the best model's predictions of held-out rows are; empty if all failed."""
    if comparison.best is None:
        return ""
    table = comparison.held_out[comparison.best]
    if without_limits(table).empty:
        return ""
    classes = comparison.data.kind == "classes"
    words = _of_classes(table) if classes else _of_numbers(comparison)
    return f"On rows that were held out, {comparison.best} {words} {usable_for(comparison)}"


def usable_for(comparison: Comparison) -> str:
    """Say what the best model's predictions can be used for, and what not."""
    if comparison.best is None:
        return ""
    gain, smaller, _ = gain_over_trivial(comparison, comparison.best)
    if gain < LEAST_GAIN and smaller < LEAST_SMALLER:
        return "Do not use it: it predicts no better than a constant."
    if gain < LEAST_GAIN:
        useful, useless = USES[comparison.data.kind]
        return f"Use its {useful}, but not its {useless}: those of a constant have a better NLPD."
    if comparison.data.kind == "classes":
        names = ", ".join(map(repr, missed_classes(comparison).index))
        if not names:
            return "Use its classes and its probabilities."
        return f"Use its probabilities, to rank rows; do not rely on it to name {names}."
    true, predicted, average = _levels(comparison)
    if len(comparison.data.targets) > 1:
        shares = explained_by_target(comparison.held_out[comparison.best])
        unknown = [name for name, share in shares.items() if share <= 0.0]
        if unknown:
            names = ", ".join(map(repr, unknown))
            return f"Its means of {names} are no better than a constant."
    elif _explained(true, predicted) <= 0.0:
        return f"Its {average}s are no better than a constant: look at the rows it predicts worst."
    wrong = width_of_intervals(comparison)
    if wrong:
        return f"Use its {average}s; its intervals are {wrong}."
    return f"Use its {average}s and its intervals."


def _levels(comparison: Comparison) -> tuple[AnyNDArray, AnyNDArray, str]:
    """Give targets and their predictions, [N] each, on the scale of the model; and what those are.

    The mean of targets that spread over decades depends on the largest few alone. For these the
    logarithms of the targets are compared with those of the medians.
    """
    table = without_limits(comparison.held_out[str(comparison.best)])
    if comparison.settings.likelihood == "log_normal":
        return np.log(table["true"].to_numpy()), np.log(table["median"].to_numpy()), "median"
    return table["true"].to_numpy(), table["mean"].to_numpy(), "mean"


def _explained(true: AnyNDArray, predicted: AnyNDArray) -> float:
    """Compute the fraction of the variance of targets that predictions explain."""
    return float(r2_score(true, predicted)) if len(true) > 1 else np.nan


def explained_by_target(table: pd.DataFrame) -> dict[str, float]:
    """Compute the fraction of the variance of each of several targets that predictions explain."""
    return {
        str(name): _explained(part["true"].to_numpy(), part["mean"].to_numpy())
        for name, part in table.groupby("target", sort=False)
    }


def _of_targets(table: pd.DataFrame) -> str:
    shares = [f"{max(s, 0.0):.0%} of that of '{n}'" for n, s in explained_by_target(table).items()]
    shares[0] = shares[0].replace("that", "the variance", 1)
    return (
        f"explains {', '.join(shares)}; its 90% intervals hold {inside(table).mean():.0%} of the"
        " targets."
    )


def _of_numbers(comparison: Comparison) -> str:
    if len(comparison.data.targets) > 1:
        return _of_targets(comparison.held_out[str(comparison.best)])
    true, predicted, average = _levels(comparison)
    share = _explained(true, predicted)
    explained = f"explains {share:.0%}" if share > 0.0 else "explains nothing"
    error = mean_absolute_error(true, predicted)
    share_inside = inside(comparison.held_out[str(comparison.best)]).mean()
    target, words = "the target", f"its mean absolute error is {in_full(error, '.3g')}"
    if average == "median":
        target = "the target's logarithm"
        words = f"its medians are off by a factor of {np.exp(error):.3g} on average"
    return (
        f"{explained} of the variance of {target}; {words}, and its 90% intervals hold"
        f" {share_inside:.0%} of the targets."
    )


def _of_classes(table: pd.DataFrame) -> str:
    labels, probability = class_indices(table)
    right = (table["predicted"] == table["true"]).mean()
    frequent = table["true"].value_counts(normalize=True).iloc[0]
    text = f"names the right class of {right:.0%} of the rows; always naming the most frequent one"
    text += f" would be right in {frequent:.0%}."
    area = area_under_curve(labels, probability)
    if probability.shape[1] == 2 and np.isfinite(area):
        text += f" The area under its ROC curve is {area:.2f}."
    return text


def width_of_intervals(comparison: Comparison) -> str:
    """Say that intervals of numbers are too narrow or too wide, by more than chance; or nothing."""
    if is_counts(comparison.settings.likelihood):
        return ""  # of whole numbers no interval holds exactly 90%
    hits = inside(comparison.held_out[str(comparison.best)])
    if hits.empty:
        return ""
    chance = binomtest(int(hits.sum()), len(hits), 0.9).pvalue
    if abs(hits.mean() - 0.9) <= COVERAGE_OFF or chance >= LEAST_CHANCE:
        return ""
    return "too narrow" if hits.mean() < 0.9 else "too wide"


def missed_classes(comparison: Comparison) -> pd.DataFrame:
    """Give the part of :func:`class_report` with the classes most of whose rows are missed."""
    report = class_report(comparison)
    return report[(report["rows"] >= FEWEST_OF_CLASS) & (report["recall"] < 0.5)]


def class_report(comparison: Comparison) -> pd.DataFrame:
    """
    Count how the best model names the held-out rows of each class.

    Columns are "rows", "recall" (the fraction of these rows that it predicts to be of the class)
    and "precision" (the fraction of its predictions of the class that are right), by class.
    """
    table = comparison.held_out[str(comparison.best)]
    names = sorted(set(table["true"].astype(str)) | set(table["predicted"].astype(str)))
    precision, recall, _, counts = precision_recall_fscore_support(
        table["true"].astype(str),
        table["predicted"].astype(str),
        labels=names,
        zero_division=np.nan,
    )
    columns = {"rows": counts, "recall": recall, "precision": precision}
    return pd.DataFrame(columns, index=pd.Index(names, name="class"))


def worst_rows(comparison: Comparison, most: int = 8) -> pd.DataFrame:
    """Give the held-out rows that the best model gave the lowest densities, the lowest first."""
    table = comparison.held_out[str(comparison.best)]
    return table.drop(columns="part").nsmallest(most, "log_density")


def cautions(comparison: Comparison) -> Iterator[str]:
    """Say what the best model's predictions cannot be relied on for, a sentence each."""
    best = comparison.best
    if best is None:
        return
    if comparison.data.kind == "classes":
        for name, row in missed_classes(comparison).iterrows():
            yield (
                f"{best}: of {row['rows']:.0f} held-out rows of class '{name}' it names"
                f" {row['rows'] * row['recall']:.0f}: do not rely on it to find them; look at their"
                " probabilities."
            )
        return
    wrong = width_of_intervals(comparison)
    if wrong:
        share = inside(comparison.held_out[best]).mean()
        yield (
            f"{best}: its 90% intervals hold {share:.0%} of the held-out targets: they are {wrong}."
            + " predict_interval(calibrate='folds') corrects that."
            * has_gaussian_noise(comparison.settings.likelihood)
        )


def verdict(comparison: Comparison) -> str:
    """Say in a sentence or two which row of the table is the best, and what is close to it."""
    best = comparison.best
    if best is None:
        return "No power could be trained in every part: see the messages."
    metric = comparison.metrics[0]
    table = summarise(comparison).query("failed == 0")
    losses = table[metric.name].map(metric.loss).fillna(np.inf)
    lowest = str(losses.idxmin())
    text = f"{best} has the {metric.best} {metric.heading}"
    way = f"clearly {'above' if metric.higher_is_better else 'below'}"
    if losses[best] > losses[lowest]:
        near = way if difference(comparison, lowest, best).clear else "within noise of"
        chosen = "the best of the powers"
        if comparison.settings.select == "loo":
            chosen = "which was chosen by leave-one-out densities"
        text = f"{lowest} has the {metric.best} {metric.heading}, {near} {best}, {chosen}"
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


def together_or_separate(comparison: Comparison) -> str:
    """Say whether it pays to model several targets together; empty where that is not known."""
    metric = comparison.metrics[0]
    names = sorted(comparison.losses, key=comparison.losses.__getitem__)
    together = next((name for name in names if not is_separate(name)), None)
    separate = next(filter(is_separate, names), None)
    if together is None or separate is None:
        return ""
    contrast = difference(comparison, together, separate)
    pays, way = ("pays", "better") if contrast.mean < 0.0 else ("does not pay", "worse")
    noise = ""
    if not contrast.clear:
        pays = "makes no clear difference to modelling each by itself"
        noise = f", within noise ({in_full(contrast.limit * contrast.error, metric.form)})"
    return (
        f"Modelling the targets together {pays}: the {metric.heading} of {together} is"
        f" {in_full(abs(contrast.mean), metric.form)} {way} than that of {separate}{noise}."
    )


def better_baselines(comparison: Comparison) -> list[str]:
    """Name the baselines whose decisive score is clearly better than that of the best model."""
    best = comparison.best
    if best is None:
        return []
    baselines = [name for name in comparison.candidates if name not in comparison.choices]
    known = [name for name in baselines if not comparison.num_failed(name)]
    contrasts = ((name, difference(comparison, name, best)) for name in known)
    return [name for name, contrast in contrasts if contrast.mean < 0.0 and contrast.clear]
