"""The conclusions of a comparison: a table of scores, and findings in words.

The terminal, the report and the card of the model show the same findings. Most findings
have a condition, and a sentence that is shown if the condition holds.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.metrics import r2_score

from ..engine.records import OVER
from ..engine.refusals import counted
from ..estimators.exporting_numpy import why_no_scorer
from ..tables.suspicions import formula
from . import scores as of_rows
from .candidates import DEFAULT, LOGARITHMS, TRIVIAL, is_separate
from .losses import (
    METRICS,
    RELATIVE,
    Difference,
    Metric,
    by_target,
    in_full,
    inside,
    without_limits,
)
from .run import Comparison, better_than_default, wins_each_window
from .settings import COUNTS, GAUSSIAN
from .trials import FEWEST_STEPS, Fit

SAVED = "saved"
UNSTABLE = "unstable"
STOPPED = "too little time"
BETTER = "better"
WORSE = "worse"
AS_GOOD = "about as good"
NOT_TOLD_APART = "not told apart"
#: A difference that is not clear is small if it and its standard error are at most this
#: number of nats a row, and at most this share of the saved model's gain over a
#: constant.
SMALL = 0.05
SMALL_SHARE = 0.1
#: A model is unstable if one part's score is worse than the median of the others by
#: this number of nats, and by this multiple of the range of the others. With five
#: Gaussian scores this happens in 0.5% of cases.
FAR = 1.0
TIMES = 5.0
#: A model learnt nothing if its NLPD is not lower than the NLPD of a constant by this
#: number of nats (2% more probability for each row), and no error is smaller by this
#: fraction.
LEAST_GAIN = 0.02
LEAST_SMALLER = 0.1
#: What predictions can be used for if this error is small, and if densities are high.
USES = {"rmse": "means", "mae": "means", "error": "classes", "auc": "order of rows"}
DENSITIES = {"numbers": "intervals", "classes": "probabilities"}
#: With a larger mean, the distribution functions of a Poisson and of the Gaussian with
#: the same moments differ by at most 0.009.
MOST_COUNTED = 50.0
#: Intervals are called wrong if the fraction of rows inside differs from 90% by this
#: much (two standard errors with 400 rows), and if the probability of that would be
#: below LEAST_CHANCE for right intervals.
COVERAGE_OFF = 0.03
LEAST_CHANCE = 0.01
#: Predictions are too good if they explain this share of the variance, or avoid this
#: share of errors. GOOD_ALONE is enough if there are three inputs or more and one of
#: them has the share ALONE of the importance of all. With fewer rows than FEWEST_GOOD
#: it may be chance.
TOO_GOOD = 0.99
GOOD_ALONE = 0.9
ALONE = 0.9
MOST_SUSPECTS = 3
FEWEST_GOOD = 50
#: If training on all rows had at most this share of the usual steps, the scores do not
#: describe the saved model.
LEAST_STEPS = 0.5
#: A class is called missed if it has at least this number of held-out rows, and most of
#: them are predicted to be in another class. If 80% of all its rows would be right,
#: this happens by chance in 6% of cases.
FEWEST_OF_CLASS = 5
#: An input matters if permuting it makes predictions worse by this number of standard
#: errors. At most MOST_NAMED of these inputs are listed.
SURE_ERRORS = 2.0
MOST_NAMED = 3
#: More parts are suggested if models are not told apart in fewer parts than these.
#: Student's t calls a difference clear above 12.7 standard errors in two parts, 4.3 in
#: three, and 2.8 in five.
ENOUGH_PARTS = 5


def summarise(comparison: Comparison) -> pd.DataFrame:
    """Summarise a comparison in a table with a row for each model, by its name.

    The columns are "alpha" (NaN for the default and baselines); the mean of each metric
    over parts, and in a column with "_se" its standard error (NaN for a single part);
    "difference" and "difference_se", the difference of the decisive metric to the saved
    model; "verdict", which is "saved", "unstable" if one part is far worse than others,
    "too little time" if the time limit ended a fit before its tenth step, or the result
    of :func:`verdict`; the mean "seconds" and "iterations" of a fit; and
    the numbers of fits that "converged" and "failed". With several targets, metrics are
    means over the targets, with errors divided by the standard deviation of each
    target; further columns such as "rmse(name)" have the errors of each target in its
    own units.

    :param comparison: The result of :func:`~gpflow_pep.compare.run.compare`.
    """
    rows = {name: _row(comparison, name) for name in comparison.candidates}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def _row(comparison: Comparison, name: str) -> dict[str, object]:
    fits = comparison.fits_of(name)
    failed = comparison.num_failed(name)
    scores = comparison.scores_of(name)
    row: dict[str, object] = {"alpha": comparison.candidates[name]}
    for metric in comparison.metrics:
        values = scores[metric.name]
        row[metric.name] = np.nan if failed else values.mean()
        row[f"{metric.name}_se"] = values.sem()
    change, word = _beside_saved(comparison, name)
    row |= {
        "difference": change.mean,
        "difference_se": change.error,
        "verdict": word,
        "seconds": np.mean([fit.seconds for fit in fits]),
        "iterations": np.mean([fit.iterations for fit in fits]),
        "fits": len(fits),
        "converged": sum(fit.converged for fit in fits),
        "failed": failed,
    }
    if len(comparison.data.targets) > 1 and not failed:
        row |= _scores_of_targets(comparison, name)
    return row


def _beside_saved(comparison: Comparison, name: str) -> tuple[Difference, str]:
    """Return the difference of a model to the saved model, and its verdict."""
    if comparison.best is None or comparison.num_failed(name):
        return Difference(np.nan, np.nan, 0.0), ""
    change = comparison.difference(name, comparison.best)
    if name == comparison.best:
        return change, SAVED
    if _unstable_part(comparison.fits_of(name)):
        return change, UNSTABLE
    if comparison.hardly_began(name):
        return change, STOPPED
    if name == DEFAULT and wins_each_window(comparison, comparison.best):
        return change, WORSE
    return change, verdict(change, *_beside_constant(comparison, name))


def _scores_of_targets(comparison: Comparison, name: str) -> dict[str, object]:
    """Average the scores of each of several targets over parts, in its own units."""
    row: dict[str, object] = {}
    tables = by_target(comparison.held_out[name], comparison.data.target_names)
    for target, rows in tables.items():
        parts = [of_rows.scores(part) for _, part in rows.groupby("part")]
        means = pd.DataFrame(parts).mean()
        row |= {f"{m.name}({target})": means[m.name] for m in comparison.metrics}
    return row


def verdict(change: Difference, small: float, is_beaten: bool) -> str:
    """Compare a model with the saved one.

    :param change: The loss of the model minus the loss of the saved model.
    :param small: The largest difference, and the largest standard error of it, at which
        two models are called about as good.
    :param is_beaten: Whether a constant is at least as good as the model.
    :return: "better" or "worse" if the difference is clear. Otherwise "about as good"
        if the difference and its standard error are small, unless a constant beats the
        model; and "not told apart" if the rows do not decide.
    """
    if change.clear:
        return BETTER if change.mean < 0.0 else WORSE
    is_small = change.error <= small and abs(change.mean) <= small
    return AS_GOOD if is_small and not is_beaten else NOT_TOLD_APART


def _beside_constant(comparison: Comparison, name: str) -> tuple[float, bool]:
    """Return the difference up to which a model is about as good as the saved model,
    and whether a constant is at least as good as the model.
    """
    metric = comparison.metrics[0]
    constant = TRIVIAL[comparison.data.kind]
    small = SMALL if metric.name == "nlpd" else np.inf
    if constant not in comparison.candidates:
        return small, False
    loss, of_best, of_constant = (
        float(comparison.losses_of(model).mean())
        for model in (name, str(comparison.best), constant)
    )
    gain = of_constant - of_best
    return min(small, SMALL_SHARE * gain), loss >= of_constant


def _unstable_part(fits: Sequence[Fit]) -> Fit | None:
    """Find the fit of the part that is far worse than all others, if there is such a
    part.
    """
    *usual, worst = sorted(fits, key=lambda fit: fit.scores["nlpd"])
    values = [fit.scores["nlpd"] for fit in usual]
    if len(values) < 2:
        return None
    least = np.median(values) + max(FAR, TIMES * np.ptp(values))
    return worst if worst.scores["nlpd"] > least else None


def _gain_over_trivial(
    comparison: Comparison, name: str
) -> tuple[float, float, str, str]:
    """Compare a model with the mean, or the frequencies of the classes.

    :return: By how much the NLPD of the model is lower; the fraction by which an error
        is smaller (RMSE or MAE, or error rate or 1 - AUC, whichever gains more); what
        predictions with this error can be used for; and both values of the error, in
        words.
    """
    pair = name, TRIVIAL[comparison.data.kind]
    # If one part is far off, the mean depends on that part alone.
    unstable = any(_unstable_part(comparison.fits_of(model)) for model in pair)
    scores = [
        comparison.scores_of(m).agg("median" if unstable else "mean") for m in pair
    ]
    smaller = {}
    for metric in METRICS[comparison.data.kind][1:3]:
        ours, constant = (
            abs(metric.higher_is_better - part[metric.name]) for part in scores
        )
        smaller[metric] = (
            float(np.nan_to_num(1.0 - ours / constant)) if constant else 0.0
        )
    most = max(smaller, key=smaller.__getitem__)
    shown = " instead of ".join(in_full(part[most.name], most.form) for part in scores)
    gain = float(scores[1]["nlpd"] - scores[0]["nlpd"])
    return gain, smaller[most], USES[most.name], f"{most.heading} is {shown}"


def _better_baselines(
    comparison: Comparison, metric: Metric | None = None
) -> list[str]:
    """List the baselines that have a clearly better score than the saved model and did
    not fail in any part.
    """
    best = str(comparison.best)
    failed = comparison.num_failed
    names = [
        n
        for n in comparison.candidates
        if n not in comparison.choices and not failed(n)
    ]
    changes = {name: comparison.difference(name, best, metric) for name in names}
    return [
        name for name, change in changes.items() if change.mean < 0.0 and change.clear
    ]


def findings(comparison: Comparison) -> list[tuple[str, str]]:
    """Return sentences about a comparison, each with its kind: "result", "warning",
    "advice", or "folder" about the rows in the folders of the model.
    """
    results = ["No model could be trained in every part; see the messages."]
    advice = []
    if comparison.best is not None:
        results = [_quality(comparison), _ranking(comparison)]
        advise = (
            _more_parts,
            _together_or_separate,
            _given_others,
            _counts,
            _inputs_that_matter,
            _more_rows,
        )
        advice = [find(comparison) for find in advise]
    warn = (_of_fits, _of_warnings, _too_good, _of_models)
    noted = chain(*(find(comparison) for find in warn))
    texts = {
        "result": map(_sentence, results),
        "warning": [*comparison.data.warnings, *map(_sentence, noted)],
        "advice": map(_sentence, advice),
        "folder": [_of_scorer(comparison)],
    }
    return [(kind, text) for kind, of_kind in texts.items() for text in of_kind if text]


def _list(names: Sequence[str]) -> str:
    """Join names as a sentence does: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _sentence(text: str) -> str:
    """Begin a sentence with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def named(model: str) -> str:
    """Name a model inside a sentence."""
    return "the default model" if model == DEFAULT else model


def _list_models(names: Sequence[str]) -> str:
    """Join the names of models as a sentence does."""
    return _list([named(name) for name in names])


def _they_are(names: Sequence[str], verbs: tuple[str, str] = ("is", "are")) -> str:
    """Write the names of models and the verb that follows. It is in the plural for
    "boosted trees", too.
    """
    return f"{_list_models(names)} {verbs[len(names) > 1 or names[0].endswith('s')]}"


def _change(metric: Metric, change: Difference) -> str:
    """Describe by how much a score is better or worse, and whether that is within
    noise.
    """
    size, noise = (
        in_full(abs(x), metric.form) for x in (change.mean, change.limit * change.error)
    )
    within = "" if change.clear else f" (noise alone gives up to {noise})"
    return f"{size} {'better' if change.mean < 0.0 else 'worse'}{within}"


def _quality(comparison: Comparison) -> str:
    """Describe how good the saved model's held-out predictions are, and what to use
    them for. If rows are held out in windows, the latest window comes first, because it
    is like a forecast by the saved model, and then all windows.
    """
    table = comparison.held_out_of_best
    if without_limits(table).empty:
        return ""
    sentences = _of_classes if comparison.data.kind == "classes" else _of_numbers
    model = named(str(comparison.best))
    fits = comparison.fits_of(str(comparison.best))
    rows, _ = comparison.settings.how_split()
    latest = without_limits(latest_rows(comparison))
    if comparison.settings.time_column is None or latest.empty:
        text = f"On {rows}, {model} {sentences(comparison, table, fits)}"
        return f"{text} {_usable_for(comparison)}"
    of_latest = [fit for fit in fits if fit.part == latest["part"].min()]
    text = f"Trained on all rows before {_began(comparison)}, {model}"
    text += f" {sentences(comparison, latest, of_latest)}"
    if len(fits) > 1:
        text += f" On {rows} (all {len(fits)} windows) it"
        text += f" {sentences(comparison, table, fits)}"
    return f"{text} {_usable_for(comparison)}"


def latest_rows(comparison: Comparison) -> pd.DataFrame:
    """Return the held-out rows of the saved model, with windows only of the latest
    one.
    """
    table = comparison.held_out_of_best
    is_in_windows = comparison.settings.time_column is not None
    return table[table["part"] == table["part"].min()] if is_in_windows else table


def _began(comparison: Comparison) -> str:
    """Describe when the latest window begins, as "June 2025" if all dates are the first
    day of a month.
    """
    blocks: pd.Series = comparison.data.blocks
    start = blocks.loc[latest_rows(comparison).index].min()
    if not isinstance(start, pd.Timestamp):
        return f"'{blocks.name}' {in_full(start, '.10g')}"
    days = blocks.dt.normalize()
    if (days != blocks).any():
        return f"{start:%Y-%m-%d %H:%M}"
    return f"{start:%B %Y}" if (days.dt.day == 1).all() else f"{start:%Y-%m-%d}"


def _mean_scores(fits: Sequence[Fit]) -> "pd.Series[float]":
    """Average scores over parts, as the table of scores does."""
    return pd.DataFrame([fit.scores for fit in fits]).mean()


def _of_numbers(
    comparison: Comparison, held_out: pd.DataFrame, fits: Sequence[Fit]
) -> str:
    """Describe how good predictions of numbers are.

    :param held_out: The predictions.
    :param fits: The fits that predicted them.
    """
    table = without_limits(held_out)
    logarithms = comparison.likelihood == LOGARITHMS
    means = _mean_scores(fits)
    share = f"its 90% intervals contain {means['coverage']:.0%} of the targets."
    error = ""
    variance = "of the variance of"
    if logarithms:
        variance += " the logarithm of"
    shares = [
        f"{max(s, 0.0):.0%} {variance} '{name}'"
        for name, s in _explained_of(comparison, table).items()
    ]
    if logarithms:
        factor = np.exp(np.abs(np.log(table["true"] / table["median"])).mean())
        error = f"its medians are off by a factor of {factor:.3g} on average, and "
    elif len(shares) == 1:
        error = f"its mean absolute error is {in_full(means['mae'], '.4g')}"
        if RELATIVE in comparison.metrics:
            error += f" (on average {means[RELATIVE.name]:.1%} of the target)"
        error += ", and "
    return f"explains {_list(shares)}; {error}{share}"


def _explained(comparison: Comparison) -> dict[str, float]:
    """Compute the fraction of the variance of each target that the saved model
    explains.
    """
    return _explained_of(comparison, without_limits(comparison.held_out_of_best))


def _explained_of(comparison: Comparison, table: pd.DataFrame) -> dict[str, float]:
    if comparison.likelihood == LOGARITHMS:
        table = table.assign(true=np.log(table["true"]), mean=np.log(table["median"]))
    shares = {}
    for name, rows in by_target(table, comparison.data.target_names).items():
        if len(rows):
            known = len(rows) > 1
            shares[name] = r2_score(rows["true"], rows["mean"]) if known else np.nan
    return shares


def _of_classes(
    comparison: Comparison, table: pd.DataFrame, fits: Sequence[Fit]
) -> str:
    """Describe how good predictions of classes are.

    :param table: The predictions.
    :param fits: The fits that predicted them.
    """
    means = _mean_scores(fits)
    frequent = table["true"].value_counts(normalize=True).iloc[0]
    text = (
        f"predicts the right class for {1.0 - means['error']:.0%} of the rows; always"
        f" predicting the most frequent class is right for {frequent:.0%}."
    )
    if comparison.data.num_classes == 2 and np.isfinite(means["auc"]):
        text += f" The area under its ROC curve is {means['auc']:.3f}."
    return text


def _usable_for(comparison: Comparison) -> str:
    """Describe what the saved model's predictions can be used for, by the first
    sentence that holds.
    """
    if ended := _cut_short(comparison):
        return ended
    if any(_too_good(comparison)):
        return "Read the warning about these scores before you use it."
    gain, smaller, use, _ = _gain_over_trivial(comparison, str(comparison.best))
    if gain < LEAST_GAIN and smaller < LEAST_SMALLER:
        return "Do not use it: it predicts no better than a constant."
    kind = comparison.data.kind
    better = _better_at_errors(comparison)
    if gain < LEAST_GAIN:
        sentences = [
            f"Use its {use} but not its {DENSITIES[kind]}: the {DENSITIES[kind]} of a"
            " constant are better."
        ]
    elif kind == "classes":
        sentences = [_use_of_classes(comparison, better)]
    else:
        sentences = _use_of_numbers(comparison, better)
    if better:
        errors = USES[METRICS[kind][1].name]
        sentences.append(f"For {errors}, use {better}.")
    return " ".join(sentences)


def _cut_short(comparison: Comparison) -> str:
    """Write a sentence if the time limit ended the training of the saved model early,
    on all rows or on the rows of a part; empty if it did not.
    """
    fits = comparison.fits_of(str(comparison.best))
    if stopped := [fit for fit in fits if fit.hardly_began]:
        word = comparison.settings.parts()[0]
        steps = counted(max(fit.iterations for fit in stopped), "step")
        return (
            f"Do not use it yet: in {len(stopped)} of {counted(len(fits), word)} the"
            f" time ran out after at most {steps} of its training. Raise --minutes."
        )
    final = comparison.final
    if final is None or not final.message.startswith(OVER):
        return ""
    usual = np.mean([fit.iterations for fit in fits])
    if final.iterations > LEAST_STEPS * usual:
        return ""
    end = "before it could be trained"
    if final.iterations:
        end = f"after {final.iterations} of about {usual:.0f} steps of its training"
    return f"Do not use it yet: the time ran out {end} on all rows. Raise --minutes."


def _use_of_classes(comparison: Comparison, better: str) -> str:
    """Describe what predictions of classes can be used for.

    :param better: The baseline that predicts classes better; empty if there is none.
    """
    if missed := _missed(comparison):
        return (
            f"Use its probabilities to rank rows; do not rely on it to find {missed}."
        )
    if better:
        return "Use its probabilities."
    return "Use its classes and its probabilities."


def _use_of_numbers(comparison: Comparison, better: str) -> list[str]:
    """Describe what predictions of numbers can be used for, and what is wrong with
    intervals.

    :param better: The baseline with better means; empty if there is none.
    """
    has_medians = comparison.likelihood == LOGARITHMS
    centre = "medians" if has_medians else "means"
    wrong = _width_of_intervals(comparison)
    shares = pd.DataFrame(
        _explained_of(comparison, without_limits(rows))
        for rows in (latest_rows(comparison), comparison.held_out_of_best)
    )
    unknown = [f"'{name}'" for name in shares if (shares[name] <= 0.0).any()]
    good = []
    if has_medians or not better:
        good.append(centre)
    if not wrong:
        good.append("intervals")
    sentences = []
    if unknown:
        sentences.append(
            f"Its {centre} of {_list(unknown)} are not better than a constant: look at"
            " the rows that it predicts worst."
        )
    elif good:
        sentences.append(f"Use its {' and its '.join(good)}.")
    if wrong:
        sentences.append(f"Its intervals are {wrong}.")
    return sentences


def _better_at_errors(comparison: Comparison) -> str:
    """Return the baseline with the smallest error, if this error is clearly smaller
    than the error of the saved model.
    """
    best = str(comparison.best)
    metric = METRICS[comparison.data.kind][1]
    names = best, *_better_baselines(comparison, metric)
    error = {
        name: float(comparison.scores_of(name)[metric.name].mean()) for name in names
    }
    least = min(error, key=error.__getitem__)
    shown = " instead of ".join(
        in_full(error[model], metric.form) for model in (least, best)
    )
    far = least != best and error[least] <= (1.0 - LEAST_SMALLER) * error[best]
    return f"{least} ({metric.heading} {shown})" if far else ""


def _width_of_intervals(comparison: Comparison) -> str:
    """Describe whether intervals of numbers are too narrow or too wide by more than
    chance. If rows are held out in windows, the latest window comes first, because it
    has the most training rows, and then all windows together.
    """
    if comparison.likelihood in COUNTS:
        return ""  # intervals of whole numbers cannot contain exactly 90%
    wrong = _width_on(inside(latest_rows(comparison)))
    if wrong:
        exact = comparison.likelihood in GAUSSIAN and comparison.data.blocks is None
        remedy = ", which predict_interval(calibrate='folds') corrects" if exact else ""
        return f"{wrong}{remedy}"
    hits = inside(comparison.held_out_of_best)
    wrong = _width_on(hits)
    word = comparison.settings.parts()[0]
    share = f"they contain {hits.mean():.0%} of the targets of all {word}s"
    return f"{wrong} in earlier {word}s ({share})" if wrong else ""


def _width_on(hits: "pd.Series[bool]") -> str:
    """Describe intervals by the rows whose target is inside: "too narrow" or "too
    wide"; empty if neither is true by more than chance.
    """
    if hits.empty:
        return ""
    chance = binomtest(int(hits.sum()), len(hits), 0.9).pvalue
    if abs(hits.mean() - 0.9) <= COVERAGE_OFF or chance >= LEAST_CHANCE:
        return ""
    return "too narrow" if hits.mean() < 0.9 else "too wide"


def _missed(comparison: Comparison) -> str:
    """List the classes with more wrong than right predictions of the saved model, with
    counts.
    """
    table = of_rows.class_report(comparison.held_out_of_best)
    table = table[(table["rows"] >= FEWEST_OF_CLASS) & (table["recall"] < 0.5)]
    shares = zip(table.index, table["recall"] * table["rows"], table["rows"])
    return _list(
        [f"'{name}' ({right:.0f} of {rows:.0f} rows)" for name, right, rows in shares]
    )


def _ranking(comparison: Comparison) -> str:
    """Describe which model has the best score, which is saved, and which are about as
    good.
    """
    best = str(comparison.best)
    metric = comparison.metrics[0]
    table = summarise(comparison).query("failed == 0")
    losses = table[metric.name].map(metric.loss).fillna(np.inf)
    lowest = best if losses[best] <= losses.min() else str(losses.idxmin())
    best_value, way = (
        ("highest", "above") if metric.higher_is_better else ("lowest", "below")
    )
    text = f"{_they_are([lowest], ('has', 'have'))} the {best_value} {metric.heading}"
    if lowest != best:
        clear = comparison.difference(lowest, best).clear
        text += (
            f", {'clearly' if clear else 'not clearly'} {way} {named(best)}, which is"
            " saved"
        )
    if best != DEFAULT and DEFAULT in comparison.losses:
        if lowest == best:
            text += ", and is saved"
        text += f" because {_why_saved(comparison, way)}"
    if behind := [
        str(n) for n in table.index[table["verdict"] == AS_GOOD] if n != lowest
    ]:
        text += f"; {_they_are(behind)} {AS_GOOD}"
        if lowest != best:
            text += f" as {named(best)}"
    better = [name for name in _better_baselines(comparison) if name != lowest]
    if not better:
        return f"{text}."
    return f"{text}. {_sentence(_they_are(better))} clearly better on these rows."


def _why_saved(comparison: Comparison, way: str) -> str:
    """Describe why a model is saved instead of the default.

    :param way: "below" or "above", whichever is better.
    """
    best = str(comparison.best)
    better = better_than_default(comparison)
    if not better:
        return f"{named(DEFAULT)} had too little time"
    # If another model is better than the default, the best one is saved, even if its
    # own difference is not clear.
    reason = best if best in better else better[0]
    change = comparison.difference(reason, DEFAULT)
    if reason != best:
        how = "clearly" if change.clear else "in every window"
        return f"{named(DEFAULT)} is {how} worse than {reason}"
    if change.clear:
        return f"it is clearly {way} {named(DEFAULT)}"
    by = in_full(-change.mean, comparison.metrics[0].form)
    return f"it is {way} {named(DEFAULT)} in every window, by {by} on average"


def _of_fits(comparison: Comparison) -> Iterator[str]:
    """Describe what the time was too short for, which fits failed or did not converge,
    and why.
    """
    if names := comparison.left_out:
        yield f"The time ran out before these began: {_list(names)}. Raise --minutes."
    if any(fit.hardly_began for fit in comparison.fits):
        yield _of_stopped_fits(comparison)
    yield from _of_bad_fits(comparison)
    final = comparison.final
    if final is not None and not (final.converged and comparison.model is not None):
        how = "failed" if comparison.model is None else "did not converge"
        yield f"{named(final.model)}, all rows: the fit {how}: {final.message}"


def _of_bad_fits(comparison: Comparison) -> Iterator[str]:
    """Describe which fits of parts failed or did not converge, and why."""
    alike: defaultdict[tuple[bool, str], list[Fit]] = defaultdict(list)
    for fit in comparison.fits:
        if (fit.failed or not fit.converged) and not fit.hardly_began:
            alike[fit.failed, fit.message].append(fit)
    for (failed, why), fits in alike.items():
        how = f"failed: {why}" if failed else f"did not converge: {why}"
        if not failed and "time" in why:
            how += " More minutes may help."
        names, count = _how_many(fits, comparison.fits)
        yield f"{names}: {count} {how}"


def _how_many(fits: Sequence[Fit], all_fits: Sequence[Fit]) -> tuple[str, str]:
    """Name the models of some fits, and write how many of all fits of these models they
    are.
    """
    names = list(dict.fromkeys(fit.model for fit in fits))
    count = counted(sum(fit.model in names for fit in all_fits), "fit")
    return _list_models(names), f"{len(fits)} of {count}"


def _of_stopped_fits(comparison: Comparison) -> str:
    """Describe which models had too little time."""
    stopped = [fit for fit in comparison.fits if fit.hardly_began]
    names, count = _how_many(stopped, comparison.fits)
    return (
        f"{names}: {count} had no time for step {FEWEST_STEPS}, so the scores say"
        " little. Raise --minutes."
    )


def _of_warnings(comparison: Comparison) -> Iterator[str]:
    """List the warnings of fits: each sentence once, with the models that it is
    about.
    """
    fits = [*comparison.fits, *([comparison.final] if comparison.final else [])]
    about: defaultdict[str, list[Fit]] = defaultdict(list)
    for fit in fits:
        for sentence in fit.warnings:
            about[sentence].append(fit)
    for sentence, warned in about.items():
        names, where = _how_many(warned, fits)
        if warned == [comparison.final]:
            where = "all rows"
        yield f"{names}, {where}: {sentence}"


def _of_models(comparison: Comparison) -> Iterator[str]:
    """List the models that are far worse in one part than in others, or not better than
    a constant.
    """
    (part, *_), kind = comparison.settings.parts(), comparison.data.kind
    for name in (
        name for name in comparison.choices if not comparison.num_failed(name)
    ):
        fits = comparison.fits_of(name)
        if worst := _unstable_part(fits):
            nlpd = worst.scores["nlpd"]
            median = np.median([fit.scores["nlpd"] for fit in fits])
            where = f"{part} {worst.part} and {median:.2f} in the median {part}"
            yield f"{named(name)} is unstable: the NLPD is {nlpd:.2f} in {where}."
        gain, smaller, _, values = _gain_over_trivial(comparison, name)
        size = f"{abs(gain):{'.3f' if abs(gain) < 10.0 else '.3g'}}"
        text = f"{named(name)} does not have a better NLPD than the baseline"
        text += f" '{TRIVIAL[kind]}' ({size} {'lower' if gain > 0.0 else 'higher'})"
        if gain < LEAST_GAIN and smaller < LEAST_SMALLER:
            yield (
                f"{text}: it learnt nothing from these inputs that is true of other"
                " rows."
            )
        elif gain < LEAST_GAIN:
            yield (f"{text}, but its {values}: it is too certain when it is wrong.")


def _too_good(comparison: Comparison) -> Iterator[str]:
    """Warn if predictions are better than predictions of new rows will be, with the
    inputs that may be the cause.
    """
    if comparison.best is None or without_limits(comparison.held_out_of_best).empty:
        return
    sizes = _sizes_of_inputs(comparison)
    least = TOO_GOOD
    if len(sizes) > 2 and sizes.max() > ALONE * sizes.sum():
        least = GOOD_ALONE
    suspects = [str(name) for name in sizes.index[sizes > 0.1 * sizes.max()]]
    for share, what, computed in _shares_explained(comparison):
        is_too_good = share > least and len(comparison.held_out_of_best) >= FEWEST_GOOD
        if not computed and not is_too_good:
            continue
        most_named = MOST_SUSPECTS if share > TOO_GOOD else 1
        names = _list([repr(name) for name in computed or suspects[:most_named]])
        by = f", nearly all by {names}" if names else ""
        yield (
            f"Too good to be true? {share:.1%} of the {what}{by}. Leave out (--drop)"
            " inputs that are computed from the target, or that are not known when a"
            " row is predicted. If there are none, trust the scores."
        )


def _sizes_of_inputs(comparison: Comparison) -> "pd.Series[float]":
    """Return how much each input matters, at least 0; empty if that is not known."""
    details = comparison.details
    if details is None or details.importance is None:
        return pd.Series(dtype=np.float64)
    return details.importance["mean"].clip(lower=0.0)


def _shares_explained(comparison: Comparison) -> Iterator[tuple[float, str, list[str]]]:
    """Return the share of the errors of a constant that is avoided, or the share of the
    variance of each target that is explained; the words for this share; and the inputs
    from which the target is computed.
    """
    if comparison.data.kind == "classes":
        rows = comparison.held_out_of_best
        constant = 1.0 - rows["true"].value_counts(normalize=True).iloc[0]
        wrong = (rows["predicted"] != rows["true"]).mean()
        share = 1.0 - wrong / max(constant, 1e-9)
        yield share, "errors of a constant are avoided", []
        return
    shares = _explained(comparison).values()
    for share, y in zip(shares, comparison.data.targets):
        what = f"variance of '{y.name}' is explained"
        yield share, what, formula(comparison.data.X, y)


def _more_parts(comparison: Comparison) -> str:
    """Describe how to tell models apart that a few parts do not tell apart."""
    word, wanted, _ = comparison.settings.parts()
    count = len({fit.part for fit in comparison.fits})
    verdicts = summarise(comparison)["verdict"]
    unclear = [str(name) for name in verdicts.index[verdicts == NOT_TOLD_APART]]
    if not unclear or not 1 < count < ENOUGH_PARTS:
        return ""
    option = "splits" if comparison.settings.splits else "folds"
    remedy = f"--{option} {ENOUGH_PARTS} (in Python {option}={ENOUGH_PARTS})"
    if wanted > count:  # the table is too short for the windows that were wanted
        remedy = "A longer table"
        if comparison.left_out:
            remedy = f"More {word}s, for which --minutes was too short,"
    best = str(comparison.best)
    limit = comparison.difference(unclear[0], best).limit
    return (
        f"{counted(count, word)} are few to tell the models marked ? apart from"
        f" {named(best)}: a difference is clear only above {limit:.1f} standard"
        f" errors. {remedy} or more rows would show more differences."
    )


def _together_or_separate(comparison: Comparison) -> str:
    """Describe whether it is better to model several targets together."""
    names = sorted(comparison.losses, key=comparison.losses.__getitem__)
    best = {is_separate(name): name for name in names[::-1] if name != DEFAULT}
    if len(best) < 2:
        return ""
    metric = comparison.metrics[0]
    change = comparison.difference(best[False], best[True])
    pays = "changes little"
    if change.clear:
        pays = "pays" if change.mean < 0.0 else "does not pay"
    return (
        f"Modelling the targets together {pays}: the {metric.heading} of {best[False]}"
        f" is {_change(metric, change)} than the {metric.heading} of {best[True]}."
    )


def _given_others(comparison: Comparison) -> str:
    """Describe by how much errors are smaller if the other targets of a row are
    known.
    """
    if not comparison.details or not comparison.details.given_others:
        return ""
    errors = [
        f"{given:.4g} instead of {alone:.4g} for '{name}'"
        for name, (alone, given) in comparison.details.given_others.items()
    ]
    return (
        "If the other targets of a row are known, the saved model of all targets has"
        f" an RMSE of {_list(errors)} (held-out rows of the first"
        f" {comparison.settings.parts()[0]})."
    )


def _counts(comparison: Comparison) -> str:
    """Suggest likelihoods of counts if the targets are small whole numbers and the
    likelihood is Gaussian.
    """
    y, *more = comparison.data.targets
    gaussian = comparison.likelihood in GAUSSIAN and comparison.data.kind == "numbers"
    if (
        more
        or not gaussian
        or y.mean() >= MOST_COUNTED
        or (y < 0.0).any()
        or (y % 1.0).any()
    ):
        return ""
    options = " or ".join(f"--likelihood {name}" for name in COUNTS)
    return (
        f"The targets are counts, {y.min():g} to {y.max():g}: try {options}. Compare"
        " their errors with these, but not their NLPD, because they predict"
        " probabilities and not densities."
    )


def _inputs_that_matter(comparison: Comparison) -> str:
    """Describe which inputs matter most for predictions of held-out rows, and how
    much.
    """
    table = comparison.details.importance if comparison.details else None
    if table is None or len(table) < 2:
        return ""
    metric = comparison.metrics[0]
    known = table[table["mean"] > SURE_ERRORS * table["error"]]
    matters = [
        f"'{name}' ({in_full(size, metric.form)})"
        for name, size in known["mean"].items()
    ]
    if not matters:
        return (
            "No input matters by itself: permuting the values of any single input"
            f" does not make the {metric.heading} worse than chance does."
        )
    return (
        f"The most important of {counted(len(table), 'input')}:"
        f" {_list(matters[:MOST_NAMED])}. The number in brackets shows how much worse"
        f" the {metric.heading} is if the values of the input are permuted."
    )


def _more_rows(comparison: Comparison) -> str:
    """Describe whether twice the rows made predictions better."""
    learning = comparison.details.learning if comparison.details else {}
    if comparison.details is None or len(learning) < 2:
        return ""
    metric, (half, all_rows) = comparison.metrics[0], list(learning)[-2:]
    if unfinished := {half, all_rows} & {*comparison.details.unfinished}:
        sizes = _list([str(size) for size in sorted(unfinished)])
        return (
            "It is not known whether more rows would help, because training on"
            f" {sizes} rows did not converge."
        )
    change = of_rows.difference_over_rows(metric, learning[half], learning[all_rows])
    if np.isnan(change.error):
        return ""
    advice = _advice_on_rows(change, comparison.settings.time_column is not None)
    return (
        f"With {half} instead of {all_rows} training rows, the {metric.heading} is"
        f" {_change(metric, change)}: {advice}."
    )


def _advice_on_rows(change: Difference, are_in_time: bool) -> str:
    """Write advice from the comparison with half of the training rows.

    :param change: The loss with half of the rows minus the loss with all rows.
    """
    if not change.clear:
        return "no sign that more rows like these would help"
    if change.mean > 0.0:
        return "more rows would probably help"
    if are_in_time:
        return (
            "the latest rows are worth more than older rows, which may be out of date"
        )
    return "look for wrong entries among the rows that are predicted worst"


def _of_scorer(comparison: Comparison) -> str:
    """Describe how many training rows the folders contain, or why there is no folder
    for predictions with NumPy.
    """
    if comparison.model is None:
        return ""
    held = comparison.model[-1].rows_held_
    in_model = held.in_model("the folder model")
    text = f"{in_model}: keep it as private as the rows."
    reason = why_no_scorer(comparison.model)
    if reason:
        return (
            f"{text} There is no folder scorer for predictions without TensorFlow:"
            f" {reason}"
        )
    text = f"{text} {held.in_scorer('the folder scorer')}"
    if held.scorer == 0:
        return f"{text}."
    return f"{text}: keep it as private, too."
