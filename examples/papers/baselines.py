"""Power EP and what the papers compare it with, by one function: :func:`fit`.

Every method starts from the same kernel and inducing inputs, is trained by
:func:`gpflow_pep.training.maximise` with the same rule to stop, and gives predictions
of held-out rows, its objective and the seconds that training took. :data:`METHODS` says
what each is.

Models are compiled once for each method and shape of data, and then given other rows:
that is most of the time of a small fit.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from examples.common import squared_exponential
from examples.ivm import ivm
from examples.papers import gibbs
from examples.papers.baseline_models import DTC, Laplace, OnAllRows, sgpmc
from examples.papers.tasks import (
    NOISE_VARIANCE,
    Budget,
    Fitted,
    MakeKernel,
    Task,
)
from examples.streaming import Filter
from gpflow_pep.likelihoods import log_power_expectation
from gpflow_pep.models import APEP, ARPEP, PEP, RPAPEP, PEPClassification, PEPRegression
from gpflow_pep.training import maximise
from gpflow_pep.training.starts import random_subset

TIED = {"APEP": APEP, "ARPEP": ARPEP, "RPAPEP": RPAPEP}
#: Rows that train what a single pass over all rows then keeps.
FIRST_ROWS = 200
#: How often the informative vector machine chooses rows and trains on them.
IVM_ROUNDS = 2
BURN_IN = 150
SAMPLES = 150
THIN = 5
LEAPFROG_STEPS = 10


class Model(NamedTuple):
    """A model whose data are variables, what compiles it, and its values before
    training.
    """

    model: gpflow.models.GPModel
    optimizer: gpflow.optimizers.Scipy
    start: dict[str, AnyNDArray]


def _model_of(name: str, data: Any, kernel: Any, task: Task, Z: AnyNDArray) -> Any:
    """A model by its name, untrained."""
    L = task.num_latent
    if name == "PEP" and task.num_classes == 0:
        return PEPRegression(data, kernel, Z, noise_variance=NOISE_VARIANCE)
    if name == "PEP":
        return PEPClassification(data, kernel, task.likelihood, Z)
    if name == "sites":  # for Gaussian noise as well
        return PEP(data, kernel, task.likelihood, Z, alpha=1.0)
    if name == "GPR":
        return gpflow.models.GPR(data, kernel, noise_variance=NOISE_VARIANCE)
    if name in ("SGPR", "FITC", "DTC"):
        kind = {"SGPR": gpflow.models.SGPR, "FITC": gpflow.models.GPRFITC, "DTC": DTC}[
            name
        ]
        return kind(data, kernel, Z, noise_variance=NOISE_VARIANCE)
    if name == "SVGP":
        inner = gpflow.models.SVGP(kernel, task.likelihood, Z, num_latent_gps=L)
        return OnAllRows(data, inner)
    if name in TIED:
        options = {"num_latent_gps": L, "num_data": len(task.X)}
        return OnAllRows(data, TIED[name](kernel, task.likelihood, Z, **options))
    if name == "SGPMC":
        return sgpmc(data, kernel, task.likelihood, Z, L)
    if task.num_classes == 2:
        return Laplace(
            data, kernel, gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid), L
        )
    return Laplace(data, kernel, gpflow.likelihoods.Softmax(task.num_classes), L)


@lru_cache(maxsize=4)
def _compiled(
    name: str, shapes: tuple[tuple[int, ...], ...], num_classes: int, kernel: MakeKernel
) -> Model:
    """The model of these shapes of X, Y and Z, with rows to be assigned."""
    X, Y, Z = (np.zeros(shape) for shape in shapes)
    if num_classes:  # all are needed where their number is looked for
        Y[:num_classes] = np.arange(num_classes)[: len(Y), None]
    data = tuple(tf.Variable(part, trainable=False) for part in (X, Y))
    Z += np.arange(len(Z))[:, None]  # until there are others, they differ
    model = _model_of(name, data, kernel(X.shape[1]), Task(X, Y, X, Z, num_classes), Z)
    return Model(model, gpflow.optimizers.Scipy(), gpflow.utilities.read_values(model))


def started(
    name: str, task: Task, alpha: float | None, kernel: MakeKernel, train_Z: bool = True
) -> Model:
    """The compiled model with the rows, the inducing inputs and the start of the task."""
    shapes = task.X.shape, task.Y.shape, task.Z.shape
    compiled = _compiled(name, shapes, task.num_classes, kernel)
    model = compiled.model
    gpflow.utilities.multiple_assign(model, compiled.start)  # of the data too
    for variable, value in zip(model.data, (task.X, task.Y)):
        variable.assign(value)
    inducing = getattr(getattr(model, "inner", model), "inducing_variable", None)
    if inducing is not None:
        inducing.Z.assign(task.Z)
        if name != "SGPMC":
            gpflow.set_trainable(inducing, train_Z)
    if alpha is not None and hasattr(model, "alpha"):
        model.alpha.assign(alpha)
    return compiled


def _train(compiled: Model, budget: Budget) -> tuple[float, float, int]:
    """Objective, seconds and steps."""
    record = maximise(
        compiled.model, **budget._asdict(), progress=False, optimizer=compiled.optimizer
    )
    return record.objective, record.seconds, record.iterations


def predict(
    model: Any, likelihood: Any, task: Task
) -> tuple[AnyNDArray, AnyNDArray | None]:
    """Mean and variance of y, or the probability of each class by accurate quadrature."""
    F = model.predict_f(task.Xnew)
    if task.num_classes == 0:
        mean, variance = likelihood.predict_mean_and_var(task.Xnew, *F)
        return mean.numpy(), variance.numpy()
    one = tf.ones_like(F[0][:, 0])
    columns = [
        log_power_expectation(
            likelihood, task.Xnew, *F, label * one[:, None], one
        ).numpy()
        for label in range(task.num_classes)
    ]
    return np.exp(np.stack(columns, axis=1)), None


def _finish(compiled: Model, task: Task, trained: tuple[float, float, int]) -> Fitted:
    model = compiled.model
    return Fitted(*predict(model, model.likelihood, task), *trained, model)


def _sparse(name: str) -> Any:
    """A method that is a model with inducing inputs, or of all rows."""

    def method(
        task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
    ) -> Fitted:
        compiled = started(name, task, alpha, kernel)
        return _finish(compiled, task, _train(compiled, budget))

    return method


def _on_rows(task: Task, budget: Budget, kernel: MakeKernel) -> tuple[Model, Fitted]:
    """Full expectation propagation, or exact regression, on the rows that the task has."""
    # A column that is constant in few rows is zero then: no rounding moves its
    # lengthscale.
    centre = np.mean(task.X, axis=0)
    task = task._replace(X=task.X - centre, Z=task.X - centre, Xnew=task.Xnew - centre)
    name = "PEP" if task.num_classes else "GPR"
    compiled = started(name, task, 1.0, kernel, train_Z=False)
    return compiled, _finish(compiled, task, _train(compiled, budget))


def _laplace_of_ep(
    task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
) -> Fitted:
    """Laplace with the hyperparameters of sparse expectation propagation (VH20,
    appendix C).
    """
    trained = fit("PEP", task, 1.0, budget, kernel)
    compiled = started("Laplace", task, None, kernel)
    gpflow.utilities.multiple_assign(
        compiled.model.kernel, gpflow.utilities.read_values(trained.model.kernel)
    )
    began = time.perf_counter()
    objective = float(compiled.model.maximum_log_likelihood_objective())
    seconds = trained.seconds + time.perf_counter() - began
    return _finish(compiled, task, (objective, seconds, trained.iterations))


def _gibbs_of_ep(
    task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
) -> Fitted:
    """Gibbs sampling in the same way: the posterior that expectation propagation
    approximates.
    """
    trained = fit("PEP", task, 1.0, budget, kernel)
    model = trained.model
    began = time.perf_counter()
    sparse = model.kernel, task.likelihood, model.inducing_variable
    draws = gibbs.sample(*sparse, (task.X, task.Y), task.seed)
    seconds = trained.seconds + time.perf_counter() - began
    found = gibbs.probabilities(*sparse, draws, task.Xnew)
    return trained._replace(mean=found, seconds=seconds)


def _full(
    task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
) -> Fitted:
    return _on_rows(task, budget, kernel)[1]


def _subset(
    task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
) -> Fitted:
    chosen = random_subset(task.X, len(task.Z), seed=task.seed).Z.numpy()
    return _on_rows(_rows(task, chosen), budget, kernel)[1]


def _rows(task: Task, chosen: AnyNDArray) -> Task:
    """The task of some of its rows, the first of equal ones."""
    place = {row.tobytes(): n for n, row in reversed(list(enumerate(task.X)))}
    rows = [place[row.tobytes()] for row in chosen]
    return task._replace(X=task.X[rows], Y=task.Y[rows])


def _ivm(task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel) -> Fitted:
    own = kernel(task.X.shape[1])
    seconds = 0.0
    for _ in range(IVM_ROUNDS):
        began = time.perf_counter()
        chosen = ivm(
            (task.X, task.Y),
            len(task.Z),
            kernel=own,
            likelihood=task.likelihood,
            seed=task.seed,
        )
        seconds += time.perf_counter() - began
        compiled, fitted = _on_rows(_rows(task, chosen.Z.numpy()), budget, kernel)
        own = gpflow.utilities.deepcopy(compiled.model.kernel)
        seconds = seconds + fitted.seconds
    return fitted._replace(seconds=seconds)


def _online(
    task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
) -> Fitted:
    first = task._replace(X=task.X[:FIRST_ROWS], Y=task.Y[:FIRST_ROWS])
    compiled = started("sites", first, 1.0, kernel)
    objective, seconds, iterations = _train(compiled, budget)
    began = time.perf_counter()
    once = Filter(compiled.model)
    once.update((task.X, task.Y))
    model = once.posterior()
    seconds += time.perf_counter() - began
    return _finish(
        compiled._replace(model=model), task, (objective, seconds, iterations)
    )


def _label_regression(
    task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
) -> Fitted:
    """Labels as numbers ±1, a column for each of several classes; the largest is the
    class.
    """
    L = task.num_latent
    labels = task.Y[:, 0].astype(int)
    targets = 2.0 * np.eye(task.num_classes)[labels] - 1.0
    numbers = task._replace(Y=targets if L > 1 else targets[:, 1:], num_classes=0)
    compiled = started("PEP", numbers, alpha or 0.0, kernel)
    trained = _train(compiled, budget)
    F = compiled.model.predict_y(task.Xnew)
    if L > 1:
        largest = gpflow.likelihoods.RobustMax(task.num_classes)
        one = tf.ones([len(task.Xnew), 1], tf.int64)
        columns = [largest.prob_is_largest(k * one, *F, *_nodes()) for k in range(L)]
        probability = np.concatenate([column.numpy() for column in columns], axis=1)
    else:
        right = (
            tfp.distributions.Normal(*map(np.float64, (0, 1)))
            .cdf(F[0] / tf.sqrt(F[1]))
            .numpy()
        )
        probability = np.concatenate([1.0 - right, right], axis=1)
    probability = np.clip(probability, 1e-3, None)  # as sure as Bernoulli's link can be
    probability /= probability.sum(axis=1, keepdims=True)
    return Fitted(probability, None, *trained, compiled.model)


def _nodes() -> tuple[AnyNDArray, AnyNDArray]:
    return gpflow.quadrature.hermgauss(50)


def _mcmc(
    task: Task, alpha: float | None, budget: Budget, kernel: MakeKernel
) -> Fitted:
    """Hamiltonian Monte Carlo over u and hyperparameters, from the maximum a
    posteriori.
    """
    compiled = started("SGPMC", task, None, kernel)
    objective, seconds, iterations = _train(compiled, budget)
    model = compiled.model
    began = time.perf_counter()
    helper = gpflow.optimizers.SamplingHelper(
        model.log_posterior_density, model.trainable_parameters
    )
    step = tfp.mcmc.HamiltonianMonteCarlo(
        helper.target_log_prob_fn,
        num_leapfrog_steps=LEAPFROG_STEPS,
        step_size=np.float64(0.01),
    )
    adaptive = tfp.mcmc.SimpleStepSizeAdaptation(
        step,
        num_adaptation_steps=int(0.8 * BURN_IN),
        target_accept_prob=np.float64(0.8),
    )

    @tf.function(autograph=False)
    def sample() -> Any:
        return tfp.mcmc.sample_chain(
            SAMPLES,
            helper.current_state,
            kernel=adaptive,
            num_burnin_steps=BURN_IN,
            trace_fn=None,
            seed=task.seed % 2**31,
        )

    states = [values.numpy()[::THIN] for values in sample()]
    seconds += time.perf_counter() - began
    found = []
    for values in zip(*states):
        for variable, value in zip(helper.current_state, values):
            variable.assign(value)
        found.append(predict(model, model.likelihood, task))
    means = np.array([mean for mean, _ in found])
    variance = None
    if task.num_classes == 0:
        variance = np.mean([v for _, v in found], axis=0) + np.var(means, axis=0)
    return Fitted(means.mean(axis=0), variance, objective, seconds, iterations, model)


Method = Callable[[Task, float | None, Budget, MakeKernel], Fitted]
#: By their names in tables. Those of the first group take regression, of the second
#: classification.
METHODS: dict[str, Method] = {
    "PEP": _sparse("PEP"),  # ours, both
    **{name: _sparse(name) for name in TIED},  # ours, both
    "SVGP": _sparse("SVGP"),  # GPflow's, both
    "full": _full,  # exact regression; full expectation propagation
    "SoD": _subset,  # the same on M random rows
    "MCMC": _mcmc,  # GPflow's SGPMC, both
    "online": _online,  # expectation propagation in a single pass (Csató & Opper), both
    "SGPR": _sparse("SGPR"),  # GPflow's, regression
    "FITC": _sparse("FITC"),
    "DTC": _sparse("DTC"),  # projected process
    "Laplace": _sparse("Laplace"),  # a full GP, logit and softmax, classification
    "Laplace of EP": _laplace_of_ep,  # the same, which does not choose hyperparameters
    "Gibbs of EP": _gibbs_of_ep,  # several classes
    "labels": _label_regression,  # PEPRegression of labels
    "IVM": _ivm,  # full expectation propagation on M informative rows, two classes
}
REGRESSION = ("PEP", "SGPR", "SVGP", "FITC", "DTC", "SoD", "full", "MCMC", "online")
CLASSIFICATION = (
    "PEP",
    "SVGP",
    "labels",
    "Laplace",
    "SoD",
    "full",
    "MCMC",
    "online",
    "IVM",
)


def fit(
    method: str,
    task: Task,
    alpha: float | None = None,
    budget: Budget = Budget(),  # noqa: B008 (it is immutable)
    kernel: MakeKernel = squared_exponential,
) -> Fitted:
    """
    Train by a method and predict the new inputs.

    :param method: A key of :data:`METHODS`.
    :param task: The rows.
    :param alpha: The power, of PEP and label regression.
    :param budget: When to stop.
    :param kernel: Makes the kernel that training starts from, for a number of inputs.
    """
    return METHODS[method](task, alpha, budget, kernel)
