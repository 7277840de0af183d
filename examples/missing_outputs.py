"""Outputs that are missing: mixtures of common functions against a model for each output.

    python -m examples missing_outputs --data DIRECTORY [--out missing_outputs.csv]

Tables, with a fifth of the rows held out as new ones: ``generated`` (four outputs drawn from two
latent functions, one input), ``diabetes`` (scikit-learn: six measurements of a blood sample and the
progression of the disease; inputs are age, sex, weight and pressure), ``plant`` (ccpp: vacuum and
power, from the weather), ``satellite`` (satimage: the four bands of a pixel, from the means of
those around it), ``wine`` (wine_red: acids, density and sulphur, from five other measurements), and
``counted`` (generated: a number, a label and a count). The last three of the real ones are files of
DIRECTORY, which may also be the environment variable GPFLOW_PEP_DATA.

Outputs are removed at random (40% of all entries), or one sensor fails: one output is missing where
an input is largest, in 40% of the rows. Models are trained at alpha 0, 0.5 and 1 from the same
start, k-means centres; their mixture is weighted by leave-one-out densities of entries. Beside them
are scikit-learn's ``IterativeImputer`` (linear) and boosted trees for each output, which take the
other outputs as inputs; their variance is that of errors on a fifth of what was observed, hidden.

Prints the mean negative log density (NLPD) and the root mean squared error of what was removed, in
standardised units (of generated tables in their own), and then how much it matters what of a row is
used. Each method's scores are added to the file as it ends, and a method that is there is not run
again.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
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
from examples.output_tables import PATTERNS, TABLES, Incomplete, incomplete, truth
from gpflow_pep import selection
from gpflow_pep.likelihoods import PerOutput
from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import maximise, mixture_weights
from gpflow_pep.training.whole_loss import WholeLoss

ALPHAS = (0.0, 0.5, 1.0)
POWERS = (*(f"{alpha:g}" for alpha in ALPHAS), "mixed")
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
    rows, base = (table.X, data.Y), base_kernel(table.X.shape[1])
    start: dict[str, Any] = {"kernel": base}
    most = min(3, table.Y.shape[1])
    if table.counted:
        start["scales"] = np.ones(table.Y.shape[1])

    def mixture(number: int) -> gpflow.kernels.LinearCoregionalization:
        return selection.coregionalization(rows, number, **start)

    by_name: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
        "one kernel": lambda: base,
        "intrinsic, rank 1": lambda: selection.intrinsic_coregionalization(rows, 1, **start),
        "mixture, Q = 1": lambda: mixture(1),
        "mixture, Q = 2": lambda: mixture(2),
        "Q = 2, shared noise": lambda: shared_noise(mixture(2), 0.5 * mixture(most).W.numpy()),
        "mixture, Q = 3": lambda: mixture(most),
    }
    if table.Y.shape[1] < 3 or table.counted:
        del by_name["mixture, Q = 3"]
    if table.counted:
        del by_name["one kernel"], by_name["Q = 2, shared noise"]
    return by_name


def create(kernel: Any, X: AnyNDArray, Y: AnyNDArray, likelihoods: list[Any], Z: AnyNDArray) -> Any:
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


def of_targets(model: Any, X: AnyNDArray, moments: Any, Y: AnyNDArray) -> Any:
    """Log densities and means of the targets, from the moments of f."""
    parts = getattr(model.likelihood, "likelihoods", [model.likelihood] * Y.shape[1])
    pairs = []
    for p, part in enumerate(parts):
        mean, variance = (np.asarray(each)[:, p : p + 1] for each in moments)
        density = part.predict_log_density(X, mean, variance, Y[:, p : p + 1])
        pairs.append((density, part.predict_mean_and_var(X, mean, variance)[0][:, 0]))
    log_density, mean = (np.stack(each, axis=1) for each in zip(*pairs))
    return log_density, mean


def predict(model: Any, data: Incomplete) -> Predictions:
    """Predict the rows of the data and new ones, in each way that the model knows."""
    (X, Y, *_), new = data.table, data.new
    moments = {"q": model.predict_f(X)}
    of_new = {"alone": model.predict_f(new.X)}
    if hasattr(model, "impute_f"):
        moments["twice"] = model.predict_f(X, given=data.Y)
        moments["imputed"] = model.impute_f()
        of_new["given"] = model.predict_f(new.X, given=data.new_Y)
    else:
        moments["imputed"], of_new["given"] = moments["q"], of_new["alone"]
    predicted = {way: of_targets(model, X, each, Y) for way, each in moments.items()}
    predicted.update({way: of_targets(model, new.X, each, new.Y) for way, each in of_new.items()})
    return predicted


def left_out(model: Any) -> AnyNDArray:
    """Log densities of observed entries given all others; NaN where nothing was observed."""
    if hasattr(model, "loo_log_density_of_entries"):
        return model.loo_log_density_of_entries(whole_rows=False).numpy()
    if hasattr(model, "loo_moments"):
        Y = model.data[1].numpy()
        mean, variance = (part.numpy() for part in model.loo_moments())
        return norm.logpdf(Y, mean, np.sqrt(variance))
    return model.loo_log_density().numpy()[:, None]


def mixed(by_power: list[Predictions], densities: list[AnyNDArray]) -> Predictions:
    """The mixture of what models of several powers predict."""
    entries = np.stack(densities).reshape(len(densities), -1)
    weights = mixture_weights(entries[:, np.isfinite(entries).all(axis=0)])
    by_way = {}
    for way in by_power[0]:
        log_densities, means = (np.stack(each) for each in zip(*(p[way] for p in by_power)))
        log_density = logsumexp(log_densities, axis=0, b=weights[:, None, None])
        by_way[way] = log_density, np.tensordot(weights, means, 1)
    return by_way


def all_outputs(kernel: Any, data: Incomplete, Z: AnyNDArray, steps: int) -> dict[str, Predictions]:
    """Train one model of all outputs at each power, and mix them."""
    table = data.table
    model = create(kernel, table.X, data.Y, table.likelihoods, Z)
    by_power, densities = {}, []
    for alpha in at_each_power(model, steps):
        by_power[f"{alpha:g}"] = predict(model, data)
        densities.append(left_out(model))
    return {**by_power, "mixed": mixed(list(by_power.values()), densities)}


def separate(data: Incomplete, Z: AnyNDArray, steps: int) -> dict[str, Predictions]:
    """A model for each output, trained on the rows that have it."""
    table, outputs = data.table, []
    for p, likelihood in enumerate(table.likelihoods):
        there, column = ~data.removed[:, p], slice(p, p + 1)
        X, Y = table.X[there], table.Y[there, column]
        model = create(base_kernel(X.shape[1]), X, Y, [likelihood], Z)
        alone = data._replace(
            table=table._replace(Y=table.Y[:, column]),
            new=data.new._replace(Y=data.new.Y[:, column]),
        )
        by_power, densities = {}, []
        for alpha in at_each_power(model, steps):
            by_power[f"{alpha:g}"] = predict(model, alone)
            densities.append(left_out(model))
        outputs.append({**by_power, "mixed": mixed(list(by_power.values()), densities)})
    return {
        power: {
            way: tuple(np.hstack(each) for each in zip(*(output[power][way] for output in outputs)))
            for way in outputs[0][power]
        }
        for power in outputs[0]
    }


Impute = Callable[[AnyNDArray, AnyNDArray, AnyNDArray, AnyNDArray], tuple[AnyNDArray, AnyNDArray]]


def linear(X: AnyNDArray, Y: AnyNDArray, new_X: AnyNDArray, new_Y: AnyNDArray) -> Any:
    """Fill in by a regression of each column on all others, in turns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        imputer = IterativeImputer(max_iter=30, random_state=0).fit(np.hstack([X, Y]))
        pairs = ((X, Y), (new_X, new_Y))
        return tuple(imputer.transform(np.hstack(pair))[:, X.shape[1] :] for pair in pairs)


def trees(X: AnyNDArray, Y: AnyNDArray, new_X: AnyNDArray, new_Y: AnyNDArray) -> Any:
    """Fill in by boosted trees, for which a missing input is one more value."""
    filled = Y.copy(), new_Y.copy()
    for p, column in enumerate(Y.T):
        there = np.isfinite(column)
        others = [np.delete(each, p, axis=1) for each in (Y, new_Y)]
        inputs, new_inputs = np.hstack([X, others[0]]), np.hstack([new_X, others[1]])
        model = HistGradientBoostingRegressor(random_state=0).fit(inputs[there], column[there])
        filled[0][:, p], filled[1][:, p] = model.predict(inputs), model.predict(new_inputs)
    return filled


def baseline(impute: Impute, data: Incomplete) -> dict[str, Predictions]:
    """What an imputer predicts; its variances are those of errors at entries hidden from it."""
    X, Y, new = data.table.X, data.Y, data.new
    hidden = np.random.default_rng(0).uniform(size=Y.shape) < HIDDEN
    guess, _ = impute(X, np.where(hidden, np.nan, Y), new.X, data.new_Y)
    error = np.where(hidden, guess - Y, np.nan)
    deviation = np.sqrt(np.nanmean(np.square(error), axis=0))
    mean, new_mean = impute(X, Y, new.X, data.new_Y)
    return {
        "mixed": {
            "imputed": (norm.logpdf(data.table.Y, mean, deviation), mean),
            "given": (norm.logpdf(new.Y, new_mean, deviation), new_mean),
        }
    }


def methods(
    name: str, data: Incomplete, num_inducing: int, steps: int
) -> dict[str, Callable[[], dict[str, Predictions]]]:
    """Each of them by its name: a function that trains and predicts."""
    Z = selection.kmeans(data.table.X, num_inducing, seed=0).Z.numpy()
    by_name: dict[str, Any] = {"separate": lambda: separate(data, Z, steps)}
    for method, kernel in kernels(data).items():
        by_name[method] = lambda kernel=kernel: all_outputs(kernel(), data, Z, steps)
    if not data.table.counted:
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
            table, removed = (data.new, data.new_removed) if new else (data.table, data.removed)
            error = (mean - table.Y)[removed]
            line = {"power": power, "way": way, "nlpd": -float(np.mean(log_density[removed]))}
            lines.append({**line, "rmse": float(np.sqrt(np.mean(np.square(error))))})
    return lines


def run(args: Any) -> pd.DataFrame:
    """Run what the file does not have yet, and add it."""
    have = pd.read_csv(args.out, dtype={"power": str}) if args.out.is_file() else pd.DataFrame()
    columns = ["table", "pattern", "split", "method"]
    done = set(have[columns].itertuples(index=False, name=None)) if len(have) else set()
    for split in range(args.splits):
        for name in args.names:
            for pattern in args.patterns:
                data = incomplete(name, pattern, split, args.rows, args.data)
                for method, train in methods(name, data, args.inducing, args.steps).items():
                    if (name, pattern, split, method) in done:
                        continue
                    if sys.stderr.isatty():
                        print(name, pattern, split, method, file=sys.stderr)
                    key = {"table": name, "pattern": pattern, "split": split, "method": method}
                    lines = pd.DataFrame([{**key, **line} for line in scores(train(), data)])
                    lines.to_csv(args.out, mode="a", header=not args.out.is_file(), index=False)
    return pd.read_csv(args.out, dtype={"power": str})


def report(results: pd.DataFrame) -> None:
    """Print the scores of all methods, what they gain over separate models, and the ways."""
    order = list(dict.fromkeys(results["method"]))
    imputed = results[results["way"] == "imputed"]
    for pattern, some in imputed.groupby("pattern", sort=False):
        print(f"{TITLES[pattern]}: NLPD (RMSE), mean over {some['split'].nunique()} splits")
        print(_heading(31, 16))
        for name, of_table in some.groupby("table", sort=False):
            means = of_table.groupby(["method", "power"])[["nlpd", "rmse"]].mean()
            for method in filter(set(of_table["method"]).__contains__, order):
                cells = (_pair(means, (method, power), "{:.3f} ({:.3f})") for power in POWERS)
                print(f"{name:11}{method:20}" + "".join(f"{cell:>16}" for cell in cells))
        print(flush=True)
    _report_gains(imputed, order)
    _report_ways(results)


def _heading(indent: int, width: int) -> str:
    return " " * indent + "".join(f"{power:>{width}}" for power in POWERS)


def _pair(table: pd.DataFrame, key: Any, form: str) -> str:
    return form.format(*table.loc[key]) if key in table.index else ""


def _report_gains(imputed: pd.DataFrame, order: list[str]) -> None:
    """By how much each method is better than separate models at the same power, in pairs."""
    problem = ["pattern", "table", "split", "power"]
    nlpd = imputed.pivot_table(index=problem, columns="method", values="nlpd")
    gain = nlpd.rsub(nlpd["separate"], axis=0)
    for pattern in dict.fromkeys(imputed["pattern"]):
        print(f"{TITLES[pattern]}: NLPD below that of separate models, mean and standard error")
        print(_heading(20, 16))
        by_power = gain.loc[pattern].groupby("power")
        mean, error = by_power.mean(), by_power.sem()
        for method in filter(lambda each: each not in ("separate", "the truth"), order):
            pairs = pd.concat([mean[method], error[method]], axis=1).dropna()
            cells = (_pair(pairs, power, "{:.3f} +- {:.3f}") for power in POWERS)
            print(f"{method:20}" + "".join(f"{cell:>16}" for cell in cells))
        print()


def _report_ways(results: pd.DataFrame) -> None:
    """How much it matters what of a row a prediction is given."""
    chosen = (results["method"] == "mixture, Q = 2") & (results["pattern"] == "random")
    real = ~results["table"].isin(["generated", "counted"])
    print("What of a row is used: mixture, Q = 2, removed at random, NLPD, mean over real tables")
    print(_heading(37, 8))
    means = results[chosen & real].groupby(["way", "power"])["nlpd"].mean()
    for way, text in WAYS.items():
        print(f"{text:37}" + "".join(f"{means.get((way, p), np.nan):8.3f}" for p in POWERS))


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
            "names": ["generated", "diabetes"],
            "splits": 1,
            "rows": 80,
            "inducing": 8,
            "steps": 5,
        },
    )
    report(run(args))
