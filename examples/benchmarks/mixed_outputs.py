"""Print what outputs that are mixtures cost, and what they gain, beside GPflow's SVGP.

    python -m examples mixed_outputs               # minutes
    python -m examples mixed_outputs 4x8 --alpha 0.5

Q latent functions and P outputs, as QxP; every target is observed, because SVGP takes
no others. There are N = 2000 rows of two inputs, and M = 50 inducing inputs that all
latent functions share. Gaussian noise, and labels with the probit. SVGP is whitened,
with all rows in its batch and with the same ``LinearCoregionalization``; its q has a
block for each latent function.

``ms`` is value and gradient of the loss in all hyperparameters and inducing inputs (and
SVGP's q), in processor time: the median over steps of Adam, where sites follow each to
their new fixed point, of the shortest time of each evaluation, the models taking turns.
``bound`` is log Z before these steps, with the W that the data were drawn with; SVGP
has its best q, by natural gradients, so that at alpha 0 it is the same bound, and
models differ by the kind of q. The floor of the closed form is the time of its matrix
products alone at the rate of large ones, for value and gradient.

``seconds`` is the processor time until log Z is within a nat of the best bound of SVGP,
from ``coregionalization``. SVGP is trained by a natural-gradient step of q and one of
Adam for all else in turns, at several rates of Adam of which the fastest counts; PEP by
``maximise``. Compilation is not in it. ``trained`` is log Z in the end.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from examples.common import arguments, seconds, seconds_by_turns, value_and_gradient
from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import maximise
from gpflow_pep.training.starts import coregionalization, kmeans

NUM_INDUCING = 50
NOISE = 0.1
PATH_LENGTH = 8
TURNS = 3
#: Adam's, of the path.
PATH_RATE = 0.02
SIZES = ("2x4", "4x8", "4x16", "6x12")
ADAM_RATES = (0.1, 0.03)
NATURAL_RATE = 0.5
#: Of natural gradients, for the best q of SVGP.
BEST_Q_STEPS = 60
#: How far from SVGP's best bound counts as there.
NATS = 1.0


class Problem(NamedTuple):
    """Data, and how many latent functions they are modelled with."""

    X: tf.Tensor
    Y: tf.Tensor
    mixing: np.ndarray
    """Of the functions that they were drawn from."""

    gaussian: bool

    def parts(self) -> tuple[Any, ...]:
        """Kernel, likelihood and inducing variable of a new model."""
        kernel = coregionalization((self.X, self.Y), self.mixing.shape[1])
        gaussian = gpflow.likelihoods.Gaussian(NOISE)
        likelihood = gaussian if self.gaussian else gpflow.likelihoods.Bernoulli()
        points = kmeans(self.X.numpy(), NUM_INDUCING, seed=0)
        return (
            kernel,
            likelihood,
            gpflow.inducing_variables.SharedIndependentInducingVariables(points),
        )

    def svgp(self) -> gpflow.models.SVGP:
        """GPflow's model."""
        return gpflow.models.SVGP(*self.parts(), num_latent_gps=self.mixing.shape[1])

    def models(self, alpha: float) -> dict[str, Any]:
        """Those of this package."""
        data = self.X, self.Y
        models: dict[str, Any] = {"PEP": PEP(data, *self.parts(), alpha=alpha)}
        if self.gaussian:
            kernel, likelihood, points = self.parts()
            models["PEPRegression"] = PEPRegression(
                data, kernel, points, alpha=alpha, likelihood=likelihood
            )
        return models


def draw(num_latent: int, num_outputs: int, num_rows: int, gaussian: bool) -> Problem:
    """Mixtures of waves, with noise, or the signs of these."""
    rng = np.random.default_rng(num_outputs)
    X = rng.uniform(-2.0, 2.0, (num_rows, 2))
    directions = rng.standard_normal((2, num_latent)) * np.linspace(
        1.0, 3.0, num_latent
    )
    waves = np.sin(X @ directions + np.arange(num_latent))
    W = rng.standard_normal((num_outputs, num_latent)) / np.sqrt(num_latent)
    Y = waves @ W.T + np.sqrt(NOISE) * rng.standard_normal((num_rows, num_outputs))
    Y = Y if gaussian else (Y > 0.0).astype(float)
    return Problem(tf.constant(X), tf.constant(Y), W, gaussian)


def path_of(model: Any, compiled: Callable[[], Any], length: int) -> list[list[Any]]:
    """What Adam makes of the variables, one step after the other."""
    adam = tf.optimizers.Adam(PATH_RATE)
    path = []
    for _ in range(length):
        path.append([variable.numpy() for variable in model.trainable_variables])
        _, gradients = compiled()
        adam.apply_gradients(zip(gradients, model.trainable_variables))
    return path


def step_times(
    models: dict[str, Any], losses: dict[str, Any], length: int
) -> dict[str, float]:
    """Milliseconds of an evaluation of each."""
    compiled = {
        name: value_and_gradient(losses[name], model.trainable_variables)
        for name, model in models.items()
    }
    paths = {
        name: path_of(model, compiled[name], length) for name, model in models.items()
    }
    times: dict[str, list[list[float]]] = {name: [] for name in models}
    for _ in range(TURNS):
        for name, model in models.items():
            visit = []
            for values in paths[name]:
                for variable, value in zip(
                    model.trainable_variables, values, strict=True
                ):
                    variable.assign(value)
                visit.append(seconds(compiled[name], time.process_time))
            times[name].append(visit[1:])  # the first goes back to the start
    return {
        name: 1e3 * float(np.median(np.min(some, axis=0)))
        for name, some in times.items()
    }


def floor(problem: Problem) -> float:
    """Milliseconds of the products of the closed form's value and gradient."""
    Q = problem.mixing.shape[1]
    M = NUM_INDUCING
    N = len(problem.X)
    B = tf.random.normal([4 * M, 4 * M], dtype=tf.float64)
    A = tf.random.normal([4 * M, N], dtype=tf.float64)
    largest = tf.function(lambda: tf.matmul(B, A))
    rate = (
        2.0
        * (4 * M) ** 2
        * N
        / min(seconds_by_turns({"": largest}, 8, time.process_time)[""])
    )
    # Of A and its gradient, of B, and of B's gradient.
    products = 3 * Q + Q * (Q + 1) / 2 + Q**2
    return 1e3 * products * 2.0 * M**2 * N / rate


def best_q(model: gpflow.models.SVGP, data: Any, num_steps: int) -> float:
    """The bound of SVGP at the best q."""
    loss = model.training_loss_closure(data)
    natural = gpflow.optimizers.NaturalGradient(0.3)
    for _ in range(num_steps):
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
    return float(model.elbo(data))


def train_svgp(
    problem: Problem, rate: float, num_steps: int
) -> list[tuple[float, float]]:
    """Processor time and bound after each step."""
    model = problem.svgp()
    data = (problem.X, problem.Y)
    for parameter in (model.q_mu, model.q_sqrt):
        gpflow.set_trainable(parameter, False)
    natural = gpflow.optimizers.NaturalGradient(NATURAL_RATE)
    adam = tf.optimizers.Adam(rate)
    evaluate = value_and_gradient(
        model.training_loss_closure(data, compile=False), model.trainable_variables
    )
    adam.build(model.trainable_variables)
    of_q = [(model.q_mu, model.q_sqrt)]
    loss = model.training_loss_closure(data, compile=False)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        natural.minimize(loss, of_q)
        value, gradients = evaluate()
        adam.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    trace = []
    spent = 0.0
    for k in range(num_steps):
        start = time.process_time()
        value = -float(step())
        spent += (time.process_time() - start) * (k > 0)
        trace.append((spent, value))
    return trace


def train_pep(model: Any, num_steps: int) -> list[tuple[float, float]]:
    """Processor time and log Z after each step."""
    trace: list[tuple[float, float]] = []
    clock: list[float] = []

    def note(step: Any) -> None:
        clock.append(time.process_time())
        trace.append((clock[-1] - clock[0], float(step.objective)))

    maximise(model, max_iterations=num_steps, progress=False, callback=note)
    mean_step = trace[-1][0] / max(len(trace) - 1, 1)  # the first one, which compiles
    return [(when + mean_step, value) for when, value in trace]


def first_time(trace: list[tuple[float, float]], level: float) -> float:
    """When a trace first comes to a level; NaN if it never does."""
    return next((when for when, value in trace if value >= level), np.nan)


def evaluations(problem: Problem, args: Any) -> dict[str, tuple[float, float]]:
    """Milliseconds and bound of each model."""
    data = problem.X, problem.Y
    svgp = problem.svgp()
    models = problem.models(args.alpha)
    for model in (svgp, *models.values()):
        model.kernel.W.assign(problem.mixing)
    bounds = {"SVGP": best_q(svgp, data, BEST_Q_STEPS)}
    bounds |= {name: -float(model.training_loss()) for name, model in models.items()}
    losses = {"SVGP": svgp.training_loss_closure(data, compile=False)}
    losses |= {name: model.training_loss for name, model in models.items()}
    times = step_times({"SVGP": svgp, **models}, losses, args.path)
    return {name: (times[name], bounds[name]) for name in times}


def trainings(problem: Problem, args: Any) -> dict[str, tuple[float, float]]:
    """Seconds until the bound is nearly SVGP's best, and the bound in the end, of each
    model.
    """
    traces = [train_svgp(problem, rate, args.steps) for rate in ADAM_RATES]
    best = max(value for trace in traces for _, value in trace)
    seconds_of_svgp = np.nanmin([first_time(trace, best - NATS) for trace in traces])
    ends = {"SVGP": (float(seconds_of_svgp), best)}
    for name, model in problem.models(args.alpha).items():
        trace = train_pep(model, args.steps)
        ends[name] = first_time(trace, best - NATS), trace[-1][1]
    return ends


def print_table(
    heads: tuple[str, ...], rows: dict[str, tuple[float, float]], digits: int
) -> None:
    """Of each model two numbers, and what they are beside SVGP's."""
    print(" " * 14 + "".join(f"{head:>10}" for head in heads))
    one, other = rows["SVGP"]
    for name, (first, second) in rows.items():
        print(
            f"{name:14}{first:10.{digits}f}{first / one:10.2f}{second:10.1f}{second - other:10.1f}",
            flush=True,
        )


def main() -> None:
    args = arguments(
        __doc__,
        names=SIZES,
        alpha=0.0,
        rows=2000,
        path=PATH_LENGTH,
        steps=300,
        no_training=False,
        likelihood=("both", "gaussian", "labels"),
        quick={"names": ["2x4"], "rows": 100, "path": 4, "steps": 40},
    )
    for size in args.names:
        for gaussian in (True, False):
            if args.likelihood == ("labels" if gaussian else "gaussian"):
                continue
            problem = draw(*map(int, size.split("x")), args.rows, gaussian)
            name = "Gaussian noise" if gaussian else "labels"
            print(
                f"\nQ x P = {size}, {name}, N = {args.rows}, alpha = {args.alpha:g}",
                end="",
            )
            print(
                f"; floor of the closed form {floor(problem):.1f} ms"
                if gaussian
                else ""
            )
            print_table(
                ("ms", "/ SVGP", "bound", "- SVGP"), evaluations(problem, args), 1
            )
            if not args.no_training:
                heads = "seconds", "/ SVGP", "trained", "- SVGP"
                print_table(heads, trainings(problem, args), 2)


if __name__ == "__main__":
    main()
