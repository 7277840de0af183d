"""What a comparison comes to: a table of scores, and findings in words.

The terminal, the report and the card of the model show the same findings. Each is a small function
of a comparison, or of one of its models, and returns a sentence or two, or nothing.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.metrics import precision_recall_fscore_support, r2_score

from ..estimators.exporting_numpy import why_no_scorer
from ..tables.suspicions import formula
from ..training.fitting.full_batch import OVER
from . import scores as of_rows
from .candidates import DEFAULT, LOGARITHMS, TRIVIAL, is_separate
from .run import Comparison
from .scores import METRICS, Difference, Metric, in_full, without_limits
from .settings import COUNTS, KERNELS, has_gaussian_noise, is_counts
from .trials import Fit

SAVED, WITHIN, UNSTABLE = "saved", "within noise", "unstable"
#: A model is unstable where one part's score is so many nats worse than the median of the others,
#: and so many times as far from it as they are from each other: of five Gaussian scores one is in
#: 0.5% of cases, and a nat is no noise.
FAR, TIMES = 1.0, 5.0
#: A model learnt nothing whose NLPD is not lower than that of a constant by so many nats, 2% more
#: probability for each row, unless an error is smaller by this fraction.
LEAST_GAIN, LEAST_SMALLER = 0.02, 0.1
#: What predictions are good for whose errors are small, and whose densities are high.
USES = {"rmse": "means", "mae": "means", "error": "classes", "auc": "order of rows"}
DENSITIES = {"numbers": "intervals", "classes": "probabilities"}
#: Whole numbers of a larger mean are nearly as well described by Gaussians as by counts: the
#: distribution functions of a Poisson and its Gaussian differ by 0.009.
MOST_COUNTED = 50.0
#: Intervals are called wrong where so many rows more or fewer than 90% are inside, two standard
#: errors of 400 rows, and the chance of that would be below LEAST_CHANCE if they were right.
COVERAGE_OFF, LEAST_CHANCE = 0.03, 0.01
#: Predictions are too good that explain this share of the variance, or avoid this share of errors;
#: less is enough where one of three inputs or more has this share of what inputs matter. Of fewer
#: rows it may be chance.
TOO_GOOD, GOOD_ALONE, ALONE, MOST_SUSPECTS, FEWEST_GOOD = 0.99, 0.9, 0.9, 3, 50
#: Over fewer parts Student's t makes differences clear only above 4 standard errors.
FEWEST_PARTS = 4
#: A class is called missed where it has at least so many held-out rows, and most of them get
#: another one: by chance in 6% of cases where 80% of all rows of it would be right.
FEWEST_OF_CLASS = 5


def summarise(comparison: Comparison) -> pd.DataFrame:
    """Sum a comparison up: a row for each model, by its name.

    Columns are "alpha" (NaN for the default and baselines); for each metric its mean over parts
    and, as "_se", the standard error of that mean (NaN for a single part); "difference",
    "difference_se" of the decisive metric to the saved model; "verdict": "saved", "within noise" of
    it, "unstable" where one part is far worse than the others, or nothing; the mean "seconds" and
    "iterations" of a fit; and how many fits "converged" and "failed". Of several targets metrics
    are the mean over these, of errors divided by the standard deviation of each target; and there
    are columns for each, as "rmse(name)", in its own units.

    :param comparison: What :func:`~gpflow_pep.compare.run.compare` returned.
    """
    rows = {name: _row(comparison, name) for name in comparison.candidates}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def _row(comparison: Comparison, name: str) -> dict[str, object]:
    fits, failed = comparison.fits_of(name), comparison.num_failed(name)
    scores, row = comparison.scores_of(name), {"alpha": comparison.candidates[name]}
    for metric in comparison.metrics:
        values = scores[metric.name]
        row |= {metric.name: np.nan if failed else values.mean(), f"{metric.name}_se": values.sem()}
    change = Difference(np.nan, np.nan, 0.0)
    verdict = ""
    if comparison.best is not None and not failed:
        change = comparison.difference(name, comparison.best)
        verdict = UNSTABLE if _unstable_part(fits) is not None else "" if change.clear else WITHIN
    return row | {
        "difference": change.mean,
        "difference_se": change.error,
        "verdict": SAVED if name == comparison.best else verdict,
        "seconds": np.mean([fit.seconds for fit in fits]),
        "iterations": np.mean([fit.iterations for fit in fits]),
        "fits": len(fits),
        "converged": sum(fit.converged for fit in fits),
        "failed": failed,
        **_by_target(comparison, name),
    }


def _by_target(comparison: Comparison, name: str) -> dict[str, float]:
    """Give the mean scores of each of several targets; of a model that failed none."""
    table = comparison.held_out.get(name, pd.DataFrame())
    if "target" not in table or comparison.num_failed(name):
        return {}
    groups = table.groupby(["target", "part"], sort=False)
    parts = [
        {"target": t, **of_rows.scores(part.drop(columns="target"))} for (t, _), part in groups
    ]
    means, metrics = pd.DataFrame(parts).groupby("target").mean(), comparison.metrics
    targets = [column.name for column in comparison.data.targets]
    return {f"{m.name}({t})": float(means.loc[t, m.name]) for t in targets for m in metrics}


def _unstable_part(fits: Sequence[Fit]) -> Fit | None:
    """Find the fit of the one part that is far worse than the others, if there is one."""
    *others, worst = sorted(fits, key=lambda fit: fit.scores["nlpd"])
    if len(others) < 2:
        return None
    values = [fit.scores["nlpd"] for fit in others]
    spread = max(values) - min(values)
    return worst if worst.scores["nlpd"] - np.median(values) > max(FAR, TIMES * spread) else None


def gain_over_trivial(comparison: Comparison, name: str) -> tuple[float, float, str, str]:
    """Compare a model with the mean, or the frequencies of the classes.

    :return: By how much its NLPD is lower. By which fraction an error is smaller: of RMSE and MAE,
        or of the error rate and 1 - AUC, the one that gains more; what such predictions are good
        for; and the values of that error.
    """
    pair = name, TRIVIAL[comparison.data.kind]
    # Where one part is far off, the mean depends on that part alone.
    unstable = any(_unstable_part(comparison.fits_of(model)) for model in pair)
    ours, constant = (
        comparison.scores_of(model).agg("median" if unstable else "mean") for model in pair
    )
    smaller = {}
    for metric in METRICS[comparison.data.kind][1:3]:
        errors = [abs(metric.higher_is_better - scores[metric.name]) for scores in (ours, constant)]
        smaller[metric] = 1.0 - errors[0] / errors[1] if errors[1] else 0.0
    most = max(smaller, key=lambda metric: np.nan_to_num(smaller[metric]))
    shown = " instead of ".join(in_full(s[most.name], most.form) for s in (ours, constant))
    gain = float(constant["nlpd"] - ours["nlpd"])
    return gain, smaller[most], USES[most.name], f"{most.heading} is {shown}"


def baselines(comparison: Comparison) -> list[str]:
    """Name the baselines that failed in no part."""
    names = (name for name in comparison.candidates if name not in comparison.choices)
    return [name for name in names if not comparison.num_failed(name)]


def _better_baselines(comparison: Comparison) -> list[str]:
    """Name the baselines whose decisive score is clearly better than that of the saved model."""
    changes = {n: comparison.difference(n, str(comparison.best)) for n in baselines(comparison)}
    return [name for name, change in changes.items() if change.mean < 0.0 and change.clear]


class Finding(NamedTuple):
    """The kind of a sentence: a "result", a "warning" or "advice"."""

    kind: str
    text: str


def findings(comparison: Comparison) -> list[Finding]:
    """List the sentences about a comparison: results, warnings, and what to try next."""
    has_best = comparison.best is not None
    texts = {
        "result": [find(comparison) for find in RESULTS if has_best] or [NONE_TRAINED],
        "warning": [text for find in WARNINGS for text in find(comparison)],
        "advice": [find(comparison) for find in ADVICE if has_best],
    }
    return [Finding(kind, text) for kind, each in texts.items() for text in each if text]


NONE_TRAINED = "No model could be trained in every part: see the messages."


def _list(names: Sequence[str]) -> str:
    """Join names as a sentence does: "a", "a and b", "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _they_are(names: Sequence[str], verbs: tuple[str, str] = ("is", "are")) -> str:
    """Write names and the verb that follows: of "boosted trees" too it is the plural."""
    return f"{_list(names)} {verbs[len(names) > 1 or names[0].endswith('s')]}"


def _change(metric: Metric, change: Difference) -> str:
    """Word by how much a score is better or worse, and whether that is within noise."""
    size, noise = (in_full(abs(x), metric.form) for x in (change.mean, change.limit * change.error))
    within = "" if change.clear else f" (within noise, {noise})"
    return f"{size} {'better' if change.mean < 0.0 else 'worse'}{within}"


def _held_out(comparison: Comparison) -> pd.DataFrame:
    return comparison.held_out[str(comparison.best)]


def quality(comparison: Comparison) -> str:
    """Word how good the saved model's held-out predictions are, and for what to use them."""
    if without_limits(_held_out(comparison)).empty:
        return ""
    words = (_of_classes if comparison.data.kind == "classes" else _of_numbers)(comparison)
    rows, _ = comparison.settings.how_split()
    return f"On {rows}, {comparison.best} {words} {usable_for(comparison)}"


def _of_numbers(comparison: Comparison) -> str:
    shares = [f"{max(s, 0.0):.0%} of that of '{n}'" for n, s in explained(comparison).items()]
    shares[0] = shares[0].replace("that", "the variance", 1)
    table, error = without_limits(_held_out(comparison)), ""
    if comparison.likelihood == LOGARITHMS:
        shares[0] = shares[0].replace("of '", "of the logarithm of '")
        factor = np.exp(np.abs(np.log(table["true"] / table["median"])).mean())
        error = f"its medians are off by a factor of {factor:.3g} on average, and "
    elif len(comparison.data.targets) == 1:
        size = (table["true"] - table["mean"]).abs().mean()
        error = f"its mean absolute error is {in_full(size, '.3g')}, and "
    share = of_rows.inside(table).mean()
    return f"explains {_list(shares)}; {error}its 90% intervals hold {share:.0%} of the targets."


def explained(comparison: Comparison) -> dict[str, float]:
    """Compute the fraction of the variance of each target that the saved model explains."""
    table = without_limits(_held_out(comparison))
    if "target" not in table:
        table = table.assign(target=str(comparison.data.y.name))
    pairs = {
        name: (part["true"], part["mean"]) for name, part in table.groupby("target", sort=False)
    }
    if comparison.likelihood == LOGARITHMS:
        pairs = {name: (np.log(table["true"]), np.log(table["median"])) for name in pairs}
    return {n: float(r2_score(*pair)) if len(pair[0]) > 1 else np.nan for n, pair in pairs.items()}


def _of_classes(comparison: Comparison) -> str:
    table = _held_out(comparison)
    labels, probability = of_rows.class_indices(table)
    right = (table["predicted"] == table["true"]).mean()
    frequent = table["true"].value_counts(normalize=True).iloc[0]
    text = f"names the right class for {right:.0%} of the rows; always naming the most frequent"
    text += f" one is right for {frequent:.0%}."
    area = of_rows.area_under_curve(labels, probability)
    if probability.shape[1] == 2 and np.isfinite(area):
        text += f" The area under its ROC curve is {area:.2f}."
    return text


def usable_for(comparison: Comparison) -> str:
    """Word what the saved model's predictions can be used for, and what not."""
    final = comparison.final
    if final is not None and final.message.startswith(OVER):
        steps = f"after {final.iterations} steps of its training on all rows"
        return f"Do not use it yet: the time was over {steps}. Raise --minutes."
    if [*_too_good(comparison)]:
        return "Read the warning of such scores before you use it."
    gain, smaller, use, _ = gain_over_trivial(comparison, str(comparison.best))
    densities, wrong = DENSITIES[comparison.data.kind], ""
    if gain < LEAST_GAIN and smaller < LEAST_SMALLER:
        return "Do not use it: it predicts no better than a constant."
    errors = "classes" if comparison.data.kind == "classes" else "means"
    better = better_at_errors(comparison)
    instead = better and f" For {errors}, take {better}."
    if gain < LEAST_GAIN:
        only = f"Use its {use} but not its {densities}: a constant has a better NLPD."
        return f"{only}{instead}"
    if errors == "classes":
        report = class_report(comparison)
        rows, right = report["rows"], report["rows"] * report["recall"]
        missed = report.index[(rows >= FEWEST_OF_CLASS) & (report["recall"] < 0.5)]
        if len(missed):
            names = [f"'{name}' ({right[name]:.0f} of {rows[name]:.0f} rows)" for name in missed]
            only = "Use its probabilities to rank rows; do not rely on it to name"
            return f"{only} {_list(names)}.{instead}"
    else:
        unknown = [f"'{name}'" for name, share in explained(comparison).items() if share <= 0.0]
        if unknown:
            worst = "look at the rows that it predicts worst"
            centre = "medians" if comparison.likelihood == LOGARITHMS else errors
            only = f"Its {centre} of {_list(unknown)} are no better than a constant: {worst}."
            return f"{only}{instead}"
        wrong = width_of_intervals(comparison)
    medians = comparison.likelihood == LOGARITHMS
    start = f"Use its {'medians' if medians else errors}"
    if better and not medians:
        start, instead = f"For {errors}, take {better}", ""
    if wrong:
        return f"{start}; its {densities} are {wrong}.{instead}"
    return f"{start}{' and' if start.startswith('Use') else '; use'} its {densities}.{instead}"


def better_at_errors(comparison: Comparison) -> str:
    """Name the baseline with the smallest error, where that is clearly smaller than the best's."""
    best, metric = str(comparison.best), METRICS[comparison.data.kind][1]
    names = (best, *baselines(comparison))
    means = {name: float(comparison.scores_of(name)[metric.name].mean()) for name in names}
    name = min(means, key=means.__getitem__)
    if means[name] > (1.0 - LEAST_SMALLER) * means[best]:
        return ""
    if not comparison.difference(name, best, metric).clear:
        return ""
    shown = " instead of ".join(in_full(means[model], metric.form) for model in (name, best))
    return f"{name} ({metric.heading} {shown})"


def width_of_intervals(comparison: Comparison) -> str:
    """Word that intervals of numbers are too narrow or too wide, by more than chance."""
    hits = of_rows.inside(_held_out(comparison))
    if is_counts(comparison.likelihood) or hits.empty:
        return ""  # of whole numbers no interval holds exactly 90%
    chance = binomtest(int(hits.sum()), len(hits), 0.9).pvalue
    if abs(hits.mean() - 0.9) <= COVERAGE_OFF or chance >= LEAST_CHANCE:
        return ""
    exact = has_gaussian_noise(comparison.likelihood) and comparison.data.blocks is None
    remedy = ", which predict_interval(calibrate='folds') corrects" if exact else ""
    return f"{'too narrow' if hits.mean() < 0.9 else 'too wide'}{remedy}"


def class_report(comparison: Comparison) -> pd.DataFrame:
    """Count how the saved model names the held-out rows of each class.

    Columns are "rows", "recall" (the fraction of these rows that it predicts to be of the class)
    and "precision" (the fraction of its predictions of the class that are right), by class.
    """
    true, predicted = (_held_out(comparison)[name].astype(str) for name in ("true", "predicted"))
    names = pd.Index(sorted({*true, *predicted}), name="class")
    precision, recall, _, rows = precision_recall_fscore_support(
        true, predicted, labels=names, zero_division=np.nan
    )
    return pd.DataFrame({"rows": rows, "recall": recall, "precision": precision}, index=names)


def ranking(comparison: Comparison) -> str:
    """Word which row of the table has the best score, which is saved, and what is close to it."""
    best, metric = str(comparison.best), comparison.metrics[0]
    table = summarise(comparison).query("failed == 0")
    losses = table[metric.name].map(metric.loss).fillna(np.inf)
    lowest = best if losses[best] <= losses.min() else str(losses.idxmin())
    text = f"{_they_are([lowest], ('has', 'have'))} the {metric.best} {metric.heading}"
    way = f"clearly {'above' if metric.higher_is_better else 'below'}"
    if lowest != best:
        near = way if comparison.difference(lowest, best).clear else "within noise of"
        text += f", {near} {best}, which is saved"
    elif best != DEFAULT and DEFAULT in comparison.losses:
        text += f", {way} {DEFAULT}, and is saved"
    within = table.index[(table["verdict"] == WITHIN) & (table.index != lowest)]
    if len(within):
        text += f"; {_they_are(within)} within noise of {'it' if lowest == best else best}"
    better = [name for name in _better_baselines(comparison) if name != lowest]
    text += f". {_they_are(better)} clearly better on these rows." if better else "."
    (kind, *_), count = comparison.settings.parts(), len({fit.part for fit in comparison.fits})
    few = f" {count} {kind}s show large differences alone; more {kind}s show smaller ones."
    return text + few * (1 < count < FEWEST_PARTS)


RESULTS = (quality, ranking)


def _fits_that_ended_badly(comparison: Comparison) -> Iterator[str]:
    """Word which fits failed or did not converge, of each model and of the fit to all rows."""
    for name in comparison.candidates:
        fits = comparison.fits_of(name)
        bad = [fit for fit in fits if fit.failed]
        late = [fit for fit in fits if not fit.converged and not fit.failed]
        if bad:
            yield f"{name}: {len(bad)} of {len(fits)} fits failed: {bad[0].message}"
        if late:
            more = " More minutes may help." * any("time" in fit.message for fit in late)
            count = f"{len(late)} of {len(fits)} fits"
            yield f"{name}: {count} did not converge: {late[0].message}{more}"
    final = comparison.final
    if final is not None and not (final.converged and comparison.model is not None):
        how = "failed" if comparison.model is None else "did not converge"
        yield f"{final.model}, all rows: the fit {how}: {final.message}"


def unstable(comparison: Comparison) -> Iterator[str]:
    """Word which models are far worse in one part than in the others."""
    part, *_ = comparison.settings.parts()
    for name in comparison.choices:
        fits = comparison.fits_of(name)
        worst = None if comparison.num_failed(name) else _unstable_part(fits)
        if worst is not None:
            median = np.median([fit.scores["nlpd"] for fit in fits])
            yield (
                f"{_they_are([name])} unstable: the NLPD is {worst.scores['nlpd']:.2f} in {part}"
                f" {worst.part} and {median:.2f} in the median {part}."
            )


def _learnt_nothing(comparison: Comparison) -> Iterator[str]:
    """Word which models are no better than a constant."""
    trivial, densities = (names[comparison.data.kind] for names in (TRIVIAL, DENSITIES))
    for name in comparison.choices:
        if comparison.num_failed(name):
            continue
        gain, smaller, use, values = gain_over_trivial(comparison, name)
        text = f"{name} has no better NLPD than the baseline '{trivial}' ({gain:+.3f} nats)"
        if gain < LEAST_GAIN and smaller < LEAST_SMALLER:
            yield f"{text}: it learnt nothing from these inputs that holds for other rows."
        elif gain < LEAST_GAIN:
            sure = "it is too sure of itself where it is wrong"
            yield f"{text}, but its {values}: {sure}. Use its {use}, not its {densities}."


def left_out(comparison: Comparison) -> Iterator[str]:
    """Word what did not begin before the time was over."""
    if names := comparison.left_out:
        yield f"The time was over before these began: {_list(names)}. Raise --minutes."


def _too_good(comparison: Comparison) -> Iterator[str]:
    """Word that predictions are better than most of new rows are, and which inputs they are from:
    of a target that is computed from inputs, or where one input does nearly all.
    """
    if comparison.best is None or without_limits(rows := _held_out(comparison)).empty:
        return
    table = comparison.details.importance if comparison.details else None
    means = pd.Series(dtype=np.float64) if table is None else table["mean"].clip(lower=0.0)
    alone = len(means) > 2 and means.max() > ALONE * means.sum()
    most = [str(name) for name in means.index[means > 0.1 * means.max()][:MOST_SUSPECTS]]
    cases: list[tuple[float, str, list[str]]]
    if comparison.data.kind == "classes":
        constant = 1.0 - rows["true"].value_counts(normalize=True).iloc[0]
        wrong = (rows["predicted"] != rows["true"]).mean()
        cases = [(1.0 - wrong / max(constant, 1e-9), "of the errors of a constant are avoided", [])]
    else:
        cases = [
            (explained(comparison)[y.name], f"of the variance of '{y.name}' is explained",
             formula(comparison.data.X, y)) for y in comparison.data.targets
        ]  # fmt: skip
    for share, words, computed in cases:
        least = GOOD_ALONE if alone else TOO_GOOD
        if computed or (share > least and len(rows) >= FEWEST_GOOD):
            names = computed or most[: 1 if share <= TOO_GOOD else None]
            by = f", nearly all by {_list([f'{name!r}' for name in names])}" if names else ""
            yield (
                f"Too good to be true? {share:.1%} {words}{by}. Leave out (--drop) what is computed"
                " from the target, or is not known when a row is predicted; else trust the scores."
            )


WARNINGS = (left_out, _too_good, _fits_that_ended_badly, unstable, _learnt_nothing)


def together_or_separate(comparison: Comparison) -> str:
    """Word whether it pays to model several targets together."""
    names = sorted(comparison.losses, key=comparison.losses.__getitem__)
    together = next((name for name in names if not is_separate(name)), None)
    separate = next(filter(is_separate, names), None)
    if together is None or separate is None:
        return ""
    metric, change = comparison.metrics[0], comparison.difference(together, separate)
    pays = "pays" if change.mean < 0.0 else "does not pay"
    values = (
        f"the {metric.heading} of {together} is {_change(metric, change)} than that of {separate}"
    )
    return f"Modelling the targets together {pays if change.clear else 'changes little'}: {values}."


def given_others(comparison: Comparison) -> str:
    """Word by how much errors are smaller where the other targets of a row are known."""
    errors = comparison.details and comparison.details.given_others
    if not errors:
        return ""
    shown = {n: [in_full(error, ".4g") for error in both] for n, both in errors.items()}
    parts = [f"{known} instead of {alone} for '{name}'" for name, (alone, known) in shown.items()]
    return (
        "Where the other targets of a row are known, the saved model of all targets has an RMSE of"
        f" {_list(parts)} (held-out rows of the first {comparison.settings.parts()[0]})."
    )


def counts(comparison: Comparison) -> str:
    """Word which likelihoods suit small whole numbers that a Gaussian one was compared on."""
    data = comparison.data
    if len(data.targets) > 1 or not has_gaussian_noise(comparison.likelihood):
        return ""
    if data.kind == "classes" or data.y.mean() >= MOST_COUNTED:
        return ""
    if (data.y < 0.0).any() or (data.y % 1.0 != 0.0).any():
        return ""
    options = _list([f"--likelihood {name}" for name in COUNTS])
    return (
        f"The targets are counts, {data.y.min():g} to {data.y.max():g}: try {options}. Compare"
        " their errors with these, not their NLPD: they predict probabilities, not densities."
    )


def _what_to_try(comparison: Comparison) -> str:
    """Word what may help where a baseline is better."""
    better = _better_baselines(comparison)
    if not better or isinstance(comparison.settings.kernel, tuple):
        return ""
    others = ",".join(name for name in KERNELS if name != "matern12")
    return f"{_they_are(better)} better: try --kernels {others}, for functions less smooth."


def more_rows(comparison: Comparison) -> str:
    """Word whether twice the rows made predictions better."""
    learning = comparison.details.learning if comparison.details else {}
    if len(learning) < 2:
        return ""
    metric, (half, whole) = comparison.metrics[0], list(learning)[-2:]
    change = of_rows.difference_over_rows(metric, learning[half], learning[whole])
    if np.isnan(change.error):
        return ""
    text = f"With {half} instead of {whole} training rows, the {metric.heading}"
    text += f" is {_change(metric, change)}:"
    if not change.clear:
        return f"{text} no sign that more rows like these would help."
    if change.mean < 0.0 and comparison.settings.time_column is not None:
        return f"{text} the latest rows are worth more than older ones, which may not hold now."
    if change.mean < 0.0:
        return f"{text} look for wrong entries among the rows that are predicted worst."
    return f"{text} more rows would probably help."


def _no_scorer(comparison: Comparison) -> str:
    """Word why there is no folder with the predictions of NumPy."""
    reason = why_no_scorer(comparison.model) if comparison.model is not None else ""
    return reason and f"No folder scorer, for predictions without TensorFlow: {reason}"


ADVICE = (*(together_or_separate, given_others, counts, _what_to_try, more_rows, _no_scorer),)
