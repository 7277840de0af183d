"""Train APEP, ARPEP, RPAPEP and SVGP on large data; error and log density against time.

    python -m examples large_scale                                    # generated data, a minute
    python -m examples large_scale --data DIRECTORY mnist --out mnist.png
    python -m examples large_scale --data DIRECTORY airline --out airline.png
    python -m examples large_scale --data DIRECTORY parity --natural

The experiments of Villacampa-Calvo & Hernández-Lobato (2020), sections 5.4 and 5.5:
several classes with RobustMax, M = 200 inducing inputs, batches of 200 rows, Adam.
``mnist`` is mnist.npz of the directory, with its own test rows; ``airline`` is
airline_nyc13.npz, flights that came late, early or on time, of which 10 000 rows chosen
at random are held out. All latent functions share a squared exponential with additive
noise and the inducing inputs; these start from k-means centres of 5000 rows, and all of
it is trained. Each run takes the same steps, with batches of the same rows in the same
order, and a learning rate that falls to 0. RobustMax's rate of wrong labels stays at
GPflow's 0.001; ``--train-epsilon`` trains it. ``parity`` and ``late`` are two classes
of the same data with a probit: even and odd digits; flights that came late, and the
others.

``--natural`` trains each run by Adam alone and, as "natural", by natural gradients for
q beside Adam for all else; "VB gpflow" is with GPflow's optimiser. With
``--target NLPD`` the table says how many steps and seconds a run needed to get there,
on the 2000 rows.

Prints for each run the steps, the seconds, and the error and mean negative log density
(NLPD) of all test rows. Seconds are processor time of training, all threads together
and evaluations left out. With ``--out`` (needs matplotlib) draws both scores on 2000
test rows along the run, and writes the same numbers beside the figure as .csv.
DIRECTORY may also be the environment variable GPFLOW_PEP_DATA.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray

from examples.common import arguments
from examples.data_sets import DIRECTORY, Labelled, file, labelled, random_rows
from gpflow_pep import models
from gpflow_pep.likelihoods import log_power_expectation
from gpflow_pep.metrics import error_rate, mean_nlpd
from gpflow_pep.training import fit, shuffled_batches, starts

SEED = 0
NUM_FOR_CENTRES = 5000
NUM_ALONG_THE_RUN = 2000
FLIGHTS_HELD_OUT = 10_000
LATE = 1
EVALUATIONS = 20
NATURAL = 0.1
VB = "VB"
RUNS = (
    VB,
    "ARPEP:0.5",
    "ARPEP:1",
    "RPAPEP:0.5",
    "RPAPEP:1",
    "APEP:0.5",
    "APEP:1",
    "APEP:0",
)


class Evaluated(NamedTuple):
    """The scores of a run after some of its steps; ``rows`` is how many test rows they
    are of.
    """

    run: str
    step: int
    seconds: float
    error: float
    nlpd: float
    rows: int


class Training(NamedTuple):
    """How a run is trained."""

    steps: int
    batch_size: int
    rate: float
    """Of Adam, in the beginning."""

    natural: float
    """Length of natural steps."""

    natural_rate: float
    """Of Adam beside them."""

    evaluations: int


class Subject(NamedTuple):
    """A problem, and how to train on it."""

    load: Callable[[Path], Labelled]
    steps: int
    rate: float
    each_input: bool
    noise_variance: float


def shuffled(rows: AnyNDArray) -> AnyNDArray:
    """In an order that says nothing about them, so that the first of them stand for
    all.
    """
    return np.random.default_rng(SEED).permutation(rows)


def split(X: AnyNDArray, labels: AnyNDArray, fraction: float) -> Labelled:
    """Hold out rows at random, and standardise."""
    train, test = random_rows(X, fraction, SEED, labels)
    return labelled(X, labels, (train, shuffled(test)))


def mnist(directory: Path) -> Labelled:
    """Pixels from 0 to 1, and digits."""
    with np.load(file(directory, "mnist.npz")) as arrays:
        X, X_test = (
            arrays[name].reshape(-1, 784) / 255.0 for name in ("x_train", "x_test")
        )
        Y = arrays["y_train"][:, None]
        Y_test = arrays["y_test"][:, None]
    order = shuffled(np.arange(len(X_test)))
    return Labelled(X, Y, X_test[order], Y_test[order])


def airline(directory: Path) -> Labelled:
    """Eight numbers about a flight; whether it came on time, late or early."""
    with np.load(file(directory, "airline_nyc13.npz")) as arrays:
        X = arrays["X"].astype(float)
        labels = arrays["y"]
    return split(X, labels, FLIGHTS_HELD_OUT / len(X))


def parity(directory: Path) -> Labelled:
    """Pixels, and whether the digit is odd."""
    problem = mnist(directory)
    return problem._replace(Y=problem.Y % 2, Y_test=problem.Y_test % 2)


def late(directory: Path) -> Labelled:
    """Flights, and whether they came late."""
    problem = airline(directory)
    return problem._replace(
        Y=1 * (problem.Y == LATE), Y_test=1 * (problem.Y_test == LATE)
    )


def generated(directory: Path) -> Labelled:
    """Three classes in the plane that overlap."""
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-3.0, 3.0, (4000, 2))
    labels = np.digitize(
        np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=4000), [-0.5, 0.5]
    )
    return split(X, labels, 0.25)


SUBJECTS = {
    "generated": Subject(generated, 300, 0.02, True, 0.1),
    "mnist": Subject(mnist, 2000, 0.03, False, 0.01),
    "airline": Subject(airline, 3000, 0.02, True, 0.1),
    "parity": Subject(parity, 1000, 0.03, False, 0.01),
    "late": Subject(late, 1000, 0.02, True, 0.1),
}


def load(name: str, directory: Path) -> Labelled:
    """The data of a subject, in GPflow's float."""
    problem = SUBJECTS[name].load(directory)
    return Labelled(*(part.astype(gpflow.default_float()) for part in problem))


def centres(problem: Labelled, num_inducing: int) -> AnyNDArray:
    """Inducing inputs that all runs start from."""
    rows = shuffled(np.arange(len(problem.X)))[:NUM_FOR_CENTRES]
    return starts.kmeans(problem.X[rows], num_inducing, seed=SEED).Z.numpy()


def create(
    run: str,
    problem: Labelled,
    Z: AnyNDArray,
    subject: Subject,
    train_epsilon: bool = False,
) -> Any:
    """The model of a run, "VB" or "METHOD:ALPHA", without how it is trained."""
    D = problem.X.shape[1]
    # Two rows are about as far apart as the lengthscale.
    scale = np.sqrt(2.0 * problem.X.var(axis=0).sum())
    smooth = gpflow.kernels.SquaredExponential(
        lengthscales=np.full(D, scale) if subject.each_input else scale
    )
    several = problem.num_classes > 2
    likelihood = (
        gpflow.likelihoods.MultiClass(problem.num_classes)
        if several
        else gpflow.likelihoods.Bernoulli()
    )
    if several:
        gpflow.set_trainable(likelihood.invlink.epsilon, train_epsilon)
    options = {
        "kernel": smooth + gpflow.kernels.White(subject.noise_variance),
        "likelihood": likelihood,
        "inducing_variable": Z.copy(),
        "num_latent_gps": problem.num_classes if several else 1,
        "num_data": len(problem.X),
    }
    if run == VB:
        return gpflow.models.SVGP(**options)
    method, alpha = run.split(":")
    return getattr(models, method)(**options, alpha=float(alpha))


def scorer(
    model: Any, num_classes: int
) -> Callable[[AnyNDArray, AnyNDArray], tuple[float, float]]:
    """Error rate and mean negative log density of rows, by the exact integral of each
    class.
    """

    @tf.function(autograph=False)
    def log_probabilities(X: tf.Tensor) -> tf.Tensor:
        mean, variance = model.predict_f(X)
        one = tf.ones_like(mean[:, :1])
        classes = [
            log_power_expectation(model.likelihood, X, mean, variance, label * one, 1.0)
            for label in range(num_classes)
        ]
        return tf.stack(classes, axis=1)

    def scores(X: AnyNDArray, Y: AnyNDArray) -> tuple[float, float]:
        parts = range(0, len(X), NUM_ALONG_THE_RUN)
        found = [
            log_probabilities(X[start : start + NUM_ALONG_THE_RUN]) for start in parts
        ]
        log_p = np.concatenate([part.numpy() for part in found])
        log_density = np.take_along_axis(log_p, Y.astype(int), axis=1)[:, 0]
        return error_rate(Y[:, 0], log_p.argmax(axis=1)), mean_nlpd(log_density)

    return scores


def natural_gradient(way: str, length: float) -> Any:
    """What trains q of a run: "natural", "gpflow", or Adam too."""
    ways = {"natural": length, "gpflow": gpflow.optimizers.NaturalGradient(length)}
    return ways.get(way)


def train(
    run: str, model: Any, problem: Labelled, training: Training
) -> list[Evaluated]:
    """Scores along the run on some test rows, and at its end on all of them."""
    scores = scorer(model, problem.num_classes)
    steps = training.steps
    way = run.partition(" ")[2]
    rate = training.natural_rate if way else training.rate
    schedule = tf_keras.optimizers.schedules.CosineDecay(rate, steps)
    spent_on_scores = 0.0
    start = time.process_time()

    def evaluate(_: Any) -> Mapping[str, float]:
        nonlocal spent_on_scores
        began = time.process_time()
        error, nlpd = scores(
            problem.X_test[:NUM_ALONG_THE_RUN], problem.Y_test[:NUM_ALONG_THE_RUN]
        )
        seconds = began - start - spent_on_scores
        spent_on_scores += time.process_time() - began
        return {"seconds": seconds, "error": error, "nlpd": nlpd}

    record = fit(
        model,
        shuffled_batches((problem.X, problem.Y), training.batch_size, seed=SEED),
        num_steps=steps,
        optimizer=tf_keras.optimizers.Adam(schedule),
        natural_gradient=natural_gradient(way, training.natural),
        evaluate=evaluate,
        evaluate_every=max(1, steps // training.evaluations),
    )
    seconds = time.process_time() - start - spent_on_scores
    along = min(NUM_ALONG_THE_RUN, len(problem.X_test))
    found = [
        Evaluated(run, e.step, **e.metrics, rows=along) for e in record.evaluations
    ]
    final = scores(problem.X_test, problem.Y_test)
    return [*found, Evaluated(run, steps, seconds, *final, rows=len(problem.X_test))]


def reached(found: Sequence[Evaluated], target: float) -> str:
    """After how many steps and seconds a run had this NLPD."""
    for e in found[:-1]:  # the last is of other test rows
        if e.nlpd <= target:
            return f"{e.step:9}{e.seconds:9.1f}"
    return f"{'-':>9}{'-':>9}"


def write(found: Sequence[Evaluated], path: Path) -> None:
    digits = {"seconds": 1, "error": 4, "nlpd": 4}
    pd.DataFrame(found, columns=Evaluated._fields).round(digits).to_csv(
        path, index=False
    )


def draw(found: Sequence[Evaluated], title: str, path: Path) -> None:
    """Both scores along the runs, against seconds and against steps."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(11, 7), dpi=90, layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    colours = {VB: "black", "ARPEP": "#1f5a99", "RPAPEP": "#c8442e", "APEP": "#3a8f4d"}
    styles = {"": "-", "0": ":", "0.5": "--", "1": "-"}
    for run in dict.fromkeys(e.run for e in found):
        name, _, way = run.partition(" ")
        method, _, alpha = name.partition(":")
        # The last is of other test rows.
        curve = [e for e in found if e.run == run][:-1]
        for row, score in enumerate(("error", "nlpd")):
            for column, elapsed in enumerate(("seconds", "step")):
                panels[row, column].plot(
                    [getattr(e, elapsed) for e in curve],
                    [getattr(e, score) for e in curve],
                    color=colours[method],
                    linestyle=styles.get(alpha, "-."),
                    marker={"": "", "natural": "o", "gpflow": "x"}[way],
                    label=run.replace(":", ", α = "),
                )
    for axes in panels.flat:
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 0].set(ylabel="test error", title=title)
    panels[1, 0].set(ylabel="test NLPD", xlabel="seconds of training")
    panels[1, 1].set(xlabel="steps")
    panels[0, 1].legend(frameon=False, ncols=2)
    figure.savefig(path)


def main() -> None:
    args = arguments(
        __doc__,
        name=SUBJECTS,
        data=DIRECTORY,
        runs=list(RUNS),
        steps=int,
        rate=float,
        inducing=200,
        batch_size=200,
        natural={"nargs": "?", "type": float, "const": NATURAL},
        natural_rate=float,
        target=float,
        evaluations=EVALUATIONS,
        train_epsilon=False,
        float32=False,
        out=Path,
        quick={"steps": 20, "inducing": 20, "evaluations": 2},
    )
    if args.float32:
        gpflow.config.set_default_float(np.float32)
    subject = SUBJECTS[args.name]
    training = Training(
        args.steps or subject.steps,
        args.batch_size,
        args.rate or subject.rate,
        args.natural or NATURAL,
        args.natural_rate or args.rate or subject.rate,
        args.evaluations,
    )
    runs = list(args.runs)
    if args.natural and not any(" " in run for run in runs):
        ways = {
            run: ("gpflow", "natural") if run == VB else ("natural",) for run in runs
        }
        runs = [
            each
            for run in runs
            for each in (run, *(f"{run} {way}" for way in ways[run]))
        ]
    problem = load(args.name, args.data)
    Z = centres(problem, args.inducing)
    title = (
        f"{args.name}: {len(problem.X)} rows, {len(problem.X_test)} held out, D ="
        f" {problem.X.shape[1]}, {problem.num_classes} classes, M = {args.inducing},"
        f" batches of {args.batch_size}"
    )
    width = max(12, *(len(run) + 2 for run in runs))
    heading = f"{'':{width}}{'steps':>7}{'seconds':>9}{'error':>9}{'NLPD':>9}"
    if args.target:
        heading += f"   to {args.target:g} in steps, seconds"
    print(f"{title}\n{heading}", flush=True)
    found: list[Evaluated] = []
    for run in runs:
        model = create(run.partition(" ")[0], problem, Z, subject, args.train_epsilon)
        try:
            along = train(run, model, problem, training)
        # GPflow's natural gradients, where q became improper.
        except ValueError as error:
            print(f"{run:{width}}{str(error).partition('. ')[0]}", flush=True)
            continue
        found += along
        end = along[-1]
        line = f"{run:{width}}{end.step:7}{end.seconds:9.1f}{end.error:9.4f}{end.nlpd:9.4f}"
        print(line + (reached(along, args.target) if args.target else ""), flush=True)
        if args.out:
            write(found, args.out.with_suffix(".csv"))
            draw(found, args.name, args.out)
