"""Outputs that are missing: mixtures of common functions against a model for each
output.

    python -m examples missing_outputs --data DIRECTORY [--out missing_outputs.csv]

Tables, with a fifth of the rows held out as new ones: ``generated`` (four outputs drawn
from two latent functions, one input), ``diabetes`` (scikit-learn: six measurements of a
blood sample and the progression of the disease; inputs are age, sex, weight and
pressure), ``plant`` (ccpp: vacuum and power, from the weather), ``satellite``
(satimage: the four bands of a pixel, from the means of those around it), ``wine``
(wine_red: acids, density and sulphur, from five other measurements), and ``counted``
(generated: a number, a label and a count). The last three of the real ones are files of
DIRECTORY, which may also be the environment variable GPFLOW_PEP_DATA.

Outputs are removed at random (40% of all entries), or one sensor fails: one output is
missing where an input is largest, in 40% of the rows. Models are trained at alpha 0,
0.5 and 1 from the same start, k-means centres; their mixture is weighted by
leave-one-out densities of entries. Beside them are scikit-learn's ``IterativeImputer``
(linear) and boosted trees for each output, which take the other outputs as inputs;
their variance is that of errors on a fifth of what was observed, hidden.

Prints the mean negative log density (NLPD) and the root mean squared error of what was
removed, in standardised units (of generated tables in their own), and then how much it
matters what of a row is used. Each method's scores are added to the file as it ends,
and a method that is there is not run again.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from examples.common import arguments
from examples.data_sets import DIRECTORY
from examples.output_tables import (
    PATTERNS,
    TABLES,
    Incomplete,
    Table,
    incomplete,
    truth,
)
from gpflow_pep.likelihoods import PerOutput
from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import ensemble_weights, maximise, starts
from gpflow_pep.training.fitting.objectives import WholeLoss

ALPHAS = (0.0, 0.5, 1.0)
POWERS = (*(f"{alpha:g}" for alpha in ALPHAS), "mixed")
#: The power at which separate models do best, by and large: what others are compared
#: with.
BEST_OF_SEPARATE = "0.5"
#: The method whose predictions are compared by what they use of a row.
IN_EVERY_WAY = "mixture, Q = 2"
TITLES = {"random": "Removed at random", "failure": "One sensor fails"}
#: The part of what was observed that is hidden from an imputer, for its variances.
HIDDEN = 0.2
WAYS = {
    "imputed": "rows of the data, impute_y",
    "q": "rows of the data, predict_y",
    "twice": "rows of the data, predict_y(given=)",
    "given": "new rows, predict_y(given=)",
    "alone": "new rows, predict_y",
}
#: Log densities and means of all entries, by the way in which they were predicted.
Predictions = dict[str, tuple[AnyNDArray, AnyNDArray]]
Rows = list[dict[str, Any]]


def base_kernel(num_inputs: int) -> gpflow.kernels.Kernel:
    """Where lengthscales of all models start."""
    return gpflow.kernels.SquaredExponential(
        lengthscales=np.full(num_inputs, 0.5 * num_inputs**0.5)
    )


def shared_noise(
    kernel: gpflow.kernels.LinearCoregionalization, weights: AnyNDArray
) -> gpflow.kernels.LinearCoregionalization:
    """Add latent functions that are white noise: noise that the outputs of a row share."""
    noises = [gpflow.kernels.White() for _ in weights.T]
    for noise in noises:
        gpflow.set_trainable(noise.variance, False)
    W = np.column_stack([kernel.W.numpy(), weights])
    return gpflow.kernels.LinearCoregionalization([*kernel.kernels, *noises], W)


def kernels(data: Incomplete) -> dict[str, Callable[[], gpflow.kernels.Kernel]]:
    """The kernels of models of all outputs; they are started from what was observed."""
    table = data.table
    rows = (table.X, data.Y)
    base = base_kernel(table.X.shape[1])
    start: dict[str, Any] = {"kernel": base}
    most = min(3, table.Y.shape[1])
    if table.counted:
        start["scales"] = np.ones(table.Y.shape[1])

    def mixture(number: int) -> gpflow.kernels.LinearCoregionalization:
        return starts.coregionalization(rows, number, **start)

    by_name: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
        "one kernel": lambda: base,
        "mixture, Q = 1": lambda: mixture(1),
        "mixture, Q = 2": lambda: mixture(2),
        "Q = 2, shared noise": lambda: shared_noise(
            mixture(2), 0.5 * mixture(most).W.numpy()
        ),
        "mixture, Q = 3": lambda: mixture(most),
    }
    if table.Y.shape[1] < 3 or table.counted:
        del by_name["mixture, Q = 3"]
    if table.counted:
        del by_name["one kernel"], by_name["Q = 2, shared noise"]
    return by_name


def create(
    kernel: Any, X: AnyNDArray, Y: AnyNDArray, likelihoods: list[Any], Z: AnyNDArray
) -> Any:
    """Regression in closed form where noise is Gaussian, otherwise sites."""
    mixed = isinstance(kernel, gpflow.kernels.LinearCoregionalization)
    likelihood = PerOutput(likelihoods) if mixed else likelihoods[0]
    if all(isinstance(part, gpflow.likelihoods.Gaussian) for part in likelihoods):
        return PEPRegression((X, Y), kernel, Z.copy(), likelihood=likelihood)
    return PEP((X, Y), kernel, likelihood, Z.copy())


def at_each_power(model: Any, steps: int) -> Iterator[float]:
    """Train a model at each power from the same start; the loss is compiled once."""
    loss = WholeLoss(model)
    start = [variable.numpy() for variable in loss.variables]
    for alpha in ALPHAS:
        for variable, value in zip(loss.variables, start):
            variable.assign(value)
        model.alpha = alpha
        maximise(loss, tolerance=1e-4, window=10, max_iterations=steps, progress=False)
        yield alpha


def of_targets(model: Any, table: Table, moments: Any) -> tuple[AnyNDArray, AnyNDArray]:
    """Log densities and means of the targets, from the moments of f."""
    X, Y, *_ = table
    parts = getattr(model.likelihood, "likelihoods", [model.likelihood] * Y.shape[1])
    pairs = []
    for p, part in enumerate(parts):
        mean, variance = (np.asarray(each)[:, p : p + 1] for each in moments)
        density = part.predict_log_density(X, mean, variance, Y[:, p : p + 1])
        pairs.append((density, part.predict_mean_and_var(X, mean, variance)[0][:, 0]))
    log_density, mean = (np.stack(each, axis=1) for each in zip(*pairs))
    return log_density, mean


def is_mixed(model: Any) -> bool:
    """Whether outputs are mixed from latent functions."""
    return isinstance(model.kernel, gpflow.kernels.LinearCoregionalization)


def predict(model: Any, data: Incomplete, every_way: bool = False) -> Predictions:
    """Predict what was removed, in the way that is right, or in all ways that mixtures
    know.
    """
    table = data.table
    new = data.new
    if not is_mixed(model):  # one output, or independent ones
        return {"imputed": of_targets(model, table, model.predict_f(table.X))}
    predicted = {"imputed": of_targets(model, table, model.impute_f())}
    if every_way:
        for way, rows, given in (("twice", table, data.Y), ("given", new, data.new_Y)):
            predicted[way] = of_targets(
                model, rows, model.predict_f(rows.X, given=given)
            )
        for way, rows in (("q", table), ("alone", new)):
            predicted[way] = of_targets(model, rows, model.predict_f(rows.X))
    return predicted


def left_out(model: Any) -> AnyNDArray:
    """Log densities of entries given all others that were observed; -inf where they
    fail.
    """
    try:
        if is_mixed(model):
            return model.loo_log_density_of_entries(whole_rows=False).numpy()
        if hasattr(model, "loo_moments"):
            mean, variance = (part.numpy() for part in model.loo_moments())
            return norm.logpdf(model.data[1].numpy(), mean, np.sqrt(variance))
        return model.loo_log_density().numpy()[:, None]
    except ValueError as error:
        print(error, file=sys.stderr)
        return np.full(model.data[1].shape, -np.inf)


def mixed(
    by_power: list[Predictions], densities: list[AnyNDArray], Y: AnyNDArray
) -> Predictions:
    """The mixture of what models of several powers predict; Y is what was observed."""
    weights = ensemble_weights(
        np.stack([density[np.isfinite(Y)] for density in densities])
    )
    by_way = {}
    for way in by_power[0]:
        log_densities, means = (
            np.stack(each) for each in zip(*(p[way] for p in by_power))
        )
        log_density = logsumexp(log_densities, axis=0, b=weights[:, None, None])
        by_way[way] = log_density, np.tensordot(weights, means, 1)
    return by_way


def of_powers(
    model: Any, data: Incomplete, steps: int, every_way: bool = False
) -> dict[str, Predictions]:
    """Train a model at each power, and mix the results."""
    by_power = {}
    densities = []
    for alpha in at_each_power(model, steps):
        by_power[f"{alpha:g}"] = predict(model, data, every_way)
        densities.append(left_out(model))
    return {
        **by_power,
        "mixed": mixed(list(by_power.values()), densities, model.data[1].numpy()),
    }


def separate(data: Incomplete, Z: AnyNDArray, steps: int) -> dict[str, Predictions]:
    """A model for each output, trained on the rows that have it."""
    table = data.table
    outputs = []
    for p, likelihood in enumerate(table.likelihoods):
        there = ~data.removed[:, p]
        column = slice(p, p + 1)
        X = table.X[there]
        Y = table.Y[there, column]
        model = create(base_kernel(X.shape[1]), X, Y, [likelihood], Z)
        alone = data._replace(table=table._replace(Y=table.Y[:, column]))
        outputs.append(of_powers(model, alone, steps))
    return {
        power: {
            way: tuple(
                np.hstack(each)
                for each in zip(*(output[power][way] for output in outputs))
            )
            for way in outputs[0][power]
        }
        for power in outputs[0]
    }


def linear(X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """Fill in by a linear regression of each column on all others, in turns."""
    imputer = IterativeImputer(max_iter=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        return imputer.fit_transform(np.hstack([X, Y]))[:, X.shape[1] :]


def trees(X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """Fill in by boosted trees, for which a missing input is one more value."""
    filled = Y.copy()
    for p, column in enumerate(Y.T):
        there = np.isfinite(column)
        inputs = np.hstack([X, np.delete(Y, p, axis=1)])
        model = HistGradientBoostingRegressor(random_state=0).fit(
            inputs[there], column[there]
        )
        filled[:, p] = model.predict(inputs)
    return filled


def baseline(
    impute: Callable[[AnyNDArray, AnyNDArray], AnyNDArray], data: Incomplete
) -> dict[str, Predictions]:
    """What an imputer predicts; its variances are those of errors at entries hidden
    from it.
    """
    X = data.table.X
    Y = data.Y
    hidden = np.random.default_rng(0).uniform(size=Y.shape) < HIDDEN
    error = impute(X, np.where(hidden, np.nan, Y)) - Y
    deviation = np.sqrt(np.nanmean(np.square(np.where(hidden, error, np.nan)), axis=0))
    mean = impute(X, Y)
    return {"mixed": {"imputed": (norm.logpdf(data.table.Y, mean, deviation), mean)}}


def methods(
    name: str, data: Incomplete, num_inducing: int, steps: int
) -> dict[str, Callable[[], dict[str, Predictions]]]:
    """Each of them by its name: a function that trains and predicts."""
    Z = starts.kmeans(data.table.X, num_inducing, seed=0).Z.numpy()
    table = data.table
    by_name: dict[str, Any] = {"separate": lambda: separate(data, Z, steps)}

    def train(method: str, kernel: Callable[[], Any]) -> dict[str, Predictions]:
        model = create(kernel(), table.X, data.Y, table.likelihoods, Z)
        return of_powers(model, data, steps, every_way=method == IN_EVERY_WAY)

    for method, kernel in kernels(data).items():
        by_name[method] = partial(train, method, kernel)
    if not table.counted:
        by_name["linear imputer"] = lambda: baseline(linear, data)
        by_name["boosted trees"] = lambda: baseline(trees, data)
    if name == "generated":
        by_name["the truth"] = lambda: {"mixed": {"imputed": truth(data)}}
    return by_name


def scores(predicted: dict[str, Predictions], data: Incomplete) -> Rows:
    """NLPD and root mean squared error of what was removed, of each power and way."""
    lines = []
    for power, by_way in predicted.items():
        for way, (log_density, mean) in by_way.items():
            new = way in ("given", "alone")
            table, removed = (
                (data.new, data.new_removed) if new else (data.table, data.removed)
            )
            error = (mean - table.Y)[removed]
            line = {
                "power": power,
                "way": way,
                "nlpd": -float(np.mean(log_density[removed])),
            }
            lines.append({**line, "rmse": float(np.sqrt(np.mean(np.square(error))))})
    return lines


def run(args: Any) -> pd.DataFrame:
    """Run what the file does not have yet, and add it."""
    have = (
        pd.read_csv(args.out, dtype={"power": str})
        if args.out.is_file()
        else pd.DataFrame()
    )
    columns = ["table", "pattern", "split", "method"]
    done = set(have[columns].itertuples(index=False, name=None)) if len(have) else set()
    for split in range(args.splits):
        for name in args.names:
            for pattern in args.patterns:
                data = incomplete(name, pattern, split, args.rows, args.data)
                for method, train in methods(
                    name, data, args.inducing, args.steps
                ).items():
                    if (name, pattern, split, method) in done:
                        continue
                    if sys.stderr.isatty():
                        print(name, pattern, split, method, file=sys.stderr)
                    key = {
                        "table": name,
                        "pattern": pattern,
                        "split": split,
                        "method": method,
                    }
                    lines = pd.DataFrame(
                        [{**key, **line} for line in scores(train(), data)]
                    )
                    lines.to_csv(
                        args.out, mode="a", header=not args.out.is_file(), index=False
                    )
    return pd.read_csv(args.out, dtype={"power": str})


def report(results: pd.DataFrame) -> None:
    """Print the scores of all methods, what they gain over separate models, and the
    ways.
    """
    order = list(dict.fromkeys(results["method"]))
    imputed = results[results["way"] == "imputed"]
    for pattern, some in imputed.groupby("pattern", sort=False):
        print(f"{TITLES[pattern]}: NLPD (RMSE), mean over splits")
        print(_heading(31, 16))
        for name, of_table in some.groupby("table", sort=False):
            means = of_table.groupby(["method", "power"])[["nlpd", "rmse"]].mean()
            for method in filter(set(of_table["method"]).__contains__, order):
                cells = (
                    _pair(means, (method, power), "{:.3f} ({:.3f})") for power in POWERS
                )
                print(
                    f"{name:11}{method:20}" + "".join(f"{cell:>16}" for cell in cells)
                )
        print(flush=True)
    _report_gains(imputed, order)
    _report_ways(results)


def _heading(indent: int, width: int) -> str:
    return " " * indent + "".join(f"{power:>{width}}" for power in POWERS)


def _pair(table: pd.DataFrame, key: Any, form: str) -> str:
    return form.format(*table.loc[key]) if key in table.index else ""


def _report_gains(imputed: pd.DataFrame, order: list[str]) -> None:
    """By how much each method is better than separate models at their best power, in
    pairs.
    """
    problem = ["pattern", "table", "split"]
    nlpd = imputed.pivot_table(
        index=problem, columns=["method", "power"], values="nlpd"
    )
    gain = nlpd.rsub(nlpd["separate", BEST_OF_SEPARATE], axis=0)
    for pattern in dict.fromkeys(imputed["pattern"]):
        some = gain.loc[pattern]
        moments = pd.concat([some.mean(), some.sem()], axis=1).dropna()
        print(
            f"{TITLES[pattern]}: NLPD below that of separate models at alpha"
            f" {BEST_OF_SEPARATE},"
        )
        print("mean and standard error over tables and splits")
        print(_heading(20, 17))
        for method in filter("the truth".__ne__, order):
            cells = (
                _pair(moments, (method, power), "{:.3f} +- {:.3f}") for power in POWERS
            )
            print(f"{method:20}" + "".join(f"{cell:>17}" for cell in cells))
        print()


def _report_ways(results: pd.DataFrame) -> None:
    """How much it matters what of a row a prediction is given."""
    chosen = (results["method"] == IN_EVERY_WAY) & (results["pattern"] == "random")
    real = ~results["table"].isin(["generated", "counted"])
    print(
        f"What of a row is used: {IN_EVERY_WAY}, removed at random, NLPD, mean over"
        " real tables"
    )
    print(_heading(37, 8))
    means = results[chosen & real].groupby(["way", "power"])["nlpd"].mean()
    for way, text in WAYS.items():
        print(
            f"{text:37}"
            + "".join(f"{means.get((way, p), np.nan):8.3f}" for p in POWERS)
        )


def main() -> None:
    args = arguments(
        __doc__,
        names=TABLES,
        data=DIRECTORY,
        out=Path("missing_outputs.csv"),
        patterns=list(PATTERNS),
        splits=2,
        rows=400,
        inducing=30,
        steps=80,
        quick={
            "names": ["generated"],
            "splits": 1,
            "rows": 60,
            "inducing": 6,
            "steps": 3,
        },
    )
    report(run(args))
