"""The methods of the benchmark of quality: each trains, and adds points to a curve on
its way.
"""

import contextlib
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras
from gpflow.base import AnyNDArray
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from examples.benchmarks.quality_curve import LONGER, Curve, Over
from examples.common import squared_exponential
from examples.data_sets import Problem
from examples.papers.runner import Cell
from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.estimators.single.model import MOST_ROWS
from gpflow_pep.models import ARPEP, PEP, PEPRegression
from gpflow_pep.training import (
    Ensemble,
    ensemble_with_near_rows,
    fit,
    maximise,
    maximise_on_subset,
    shuffled_batches,
)
from gpflow_pep.training.fitting.points import leave_rows_out
from gpflow_pep.training.starts import kmeans

NOISE_VARIANCE = 0.1
NEIGHBOURS = 10
#: Of labels, which say less than numbers; and how they are trained.
NEAR_LABELS = 20
NEAR_RATE = 0.3
NEAR_STEPS = 500
BATCH_SIZE = 1000
#: Rows that k-means chooses inducing inputs from.
MOST_FOR_CENTRES = 10_000
#: Length of natural steps.
NATURAL = 0.1
#: Minibatches between two looks at the clock.
LOOK_EVERY = 10
#: Gradient boosting keeps this part of the rows, for its variance and to know when to
#: stop.
HELD_OUT = 0.1
MOST_TREES = 10_000


class Setting(NamedTuple):
    """What a method is given."""

    problem: Problem
    classes: bool
    """Two, 0 and 1; or numbers."""

    cell: Cell
    curve: Curve
    python: str
    """The interpreter that has GPJax."""

    @property
    def Xnew(self) -> AnyNDArray:
        return self.problem.test[0]

    def centres(self) -> AnyNDArray:
        """Inducing inputs that all methods start from, which choose none themselves."""
        X = self.problem.train[0]
        if len(X) > MOST_FOR_CENTRES:
            X = X[
                np.random.default_rng(0).choice(len(X), MOST_FOR_CENTRES, replace=False)
            ]
        return kmeans(X, self.cell.M, seed=0).Z.numpy()

    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        if self.classes:
            return gpflow.likelihoods.Bernoulli()
        return gpflow.likelihoods.Gaussian(NOISE_VARIANCE)

    def batches(self) -> Callable[[int], tf.data.Dataset]:
        size = min(BATCH_SIZE, len(self.problem.train[0]))
        return shuffled_batches(self.problem.train, size, seed=0)

    @property
    def kernel(self) -> gpflow.kernels.Kernel:
        return squared_exponential(self.Xnew.shape[1])


def skipped(cell: Cell, python: str) -> str:
    """Give the reason why a method cannot run here; nothing if it can."""
    library = cell.method.split()[0].lower()
    if library == "gpboost" and find_spec("gpboost") is None:
        return "gpboost is not installed: pip install gpboost"
    if library == "gpjax":
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if subprocess.run([python, "-c", "import gpjax"], **quiet).returncode:
            return (
                f"{python} has no gpjax: name an interpreter that has it with"
                " --gpjax-python"
            )
    return ""


def moments(model: Any, Xnew: AnyNDArray, **options: Any) -> tuple[AnyNDArray, ...]:
    """Mean and variance of y."""
    posterior = model.posterior(**options)  # once for all parts
    parts = [
        model.likelihood.predict_mean_and_var(part, *posterior.predict_f(part))
        for part in np.array_split(Xnew, max(1, len(Xnew) // 1000))
    ]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def sgpr(setting: Setting) -> None:
    """GPflow's SGPR by GPflow's L-BFGS."""
    model = gpflow.models.SGPR(
        setting.problem.train,
        setting.kernel,
        setting.centres(),
        noise_variance=NOISE_VARIANCE,
    )
    scipy = gpflow.optimizers.Scipy()
    scores = partial(moments, model, setting.Xnew)

    def call_back(step: int, variables: Any, values: Any) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        setting.curve.look(u=scores)

    with contextlib.suppress(Over):
        scipy.minimize(
            model.training_loss,
            model.trainable_variables,
            step_callback=call_back,
            options={"maxiter": 1000},
        )


def svgp(setting: Setting) -> None:
    """GPflow's SVGP: natural gradients for q and Adam for all else, as GPflow's
    notebooks do.
    """
    rate = float(setting.cell.method.split()[-1])
    model = gpflow.models.SVGP(
        setting.kernel,
        setting.likelihood(),
        setting.centres(),
        num_data=len(setting.problem.train[0]),
    )
    for parameter in (model.q_mu, model.q_sqrt):
        gpflow.set_trainable(parameter, False)
    adam = tf_keras.optimizers.Adam(rate)
    natural = gpflow.optimizers.NaturalGradient(NATURAL)

    @tf.function(autograph=False)
    def step(batch: Any) -> None:
        def loss() -> tf.Tensor:
            return model.training_loss(batch)

        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        adam.minimize(loss, model.trainable_variables)

    number = 0
    epochs = setting.batches()
    try:
        for epoch in range(10**6):
            for batch in epochs(epoch).prefetch(2):
                step(batch)
                number += 1
                if number % LOOK_EVERY == 0:
                    setting.curve.look(u=partial(moments, model, setting.Xnew))
    except Over:
        pass


def gpjax(setting: Setting) -> None:
    """GPJax, in its own interpreter."""
    (X, Y), cell, curve = setting.problem.train, setting.cell, setting.curve
    with tempfile.TemporaryDirectory() as folder:
        began = curve.processor
        Z = setting.centres()
        before = curve.processor - began
        rate = 0.0 if cell.method == "GPJax SGPR" else float(cell.method.split()[-1])
        path = Path(folder, "problem.npz")
        parts = {"X": X, "Y": Y, "Xnew": setting.Xnew, "Z": Z}
        np.savez(path, **parts, limit=curve.limit, rate=rate, classes=setting.classes)
        command = [setting.python, "-m", "examples.benchmarks.quality_gpjax", str(path)]
        root = Path(__file__).parents[2]
        ended = subprocess.run(
            command,
            cwd=root,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )
        if ended.returncode:
            raise RuntimeError(f"GPJax ended with {ended.stderr[-300:]}")
        with np.load(Path(folder, "problem.out.npz")) as found:
            for processor, wall, prediction in zip(
                found["processor"], found["wall"], found["predictions"], strict=True
            ):
                curve.add(lambda prediction=prediction: prediction, "u")
                times = {"processor": processor + before, "wall": wall + before}
                curve.points[-1] = curve.points[-1]._replace(**times)


def gpboost(setting: Setting) -> None:
    """GPBoost, which starts and stops by its own rules; runs of growing length."""
    import gpboost

    (X, Y), cell = setting.problem.train, setting.cell
    approximation = {"fitc": "fitc", "vif": "full_scale_vecchia", "vecchia": "vecchia"}[
        cell.method.split()[1]
    ]
    options = {"num_ind_points": cell.M} if approximation != "vecchia" else {}
    num_steps = 1
    while setting.curve.permits_longer():
        setting.curve.begin()
        model = gpboost.GPModel(
            gp_coords=X,
            cov_function="gaussian_ard",
            gp_approx=approximation,
            likelihood="bernoulli_probit" if setting.classes else "gaussian",
            num_parallel_threads=1,
            **options,
        )
        model.fit(y=Y[:, 0], params={"maxit": num_steps})

        def predict(model: Any = model) -> tuple[AnyNDArray, ...]:
            found = model.predict(gp_coords_pred=setting.Xnew, predict_var=True)
            return found["mu"][:, None], found["var"][:, None]

        setting.curve.add(predict, "u")
        if model._get_num_optim_iter() < num_steps:
            return  # converged
        num_steps *= LONGER


def boosting(setting: Setting) -> None:
    """
    Gradient boosting of scikit-learn: more and more trees, while its held-out rows gain
    by that.

    Its density is Gaussian around the prediction, with the variance of its own held-out
    rows.
    """
    X, Y = setting.problem.train
    y = Y[:, 0]
    rate = float(setting.cell.method.split()[-1])
    kept = np.random.default_rng(0).random(len(X)) >= HELD_OUT
    kind = (
        HistGradientBoostingClassifier
        if setting.classes
        else HistGradientBoostingRegressor
    )
    model = kind(
        learning_rate=rate, warm_start=True, early_stopping=False, random_state=0
    )
    best = None
    best_loss = np.inf
    num_trees = 10
    while num_trees <= MOST_TREES and not setting.curve.is_over:
        model.set_params(max_iter=num_trees).fit(X[kept], y[kept])
        if setting.classes:
            p = model.predict_proba(X[~kept])
            loss = -np.mean(
                np.log(np.take_along_axis(p, y[~kept, None].astype(int), axis=1))
            )
        else:
            loss = np.mean((y[~kept] - model.predict(X[~kept])) ** 2)
        if loss < best_loss:
            best_loss = loss
            with setting.curve.pause():
                if setting.classes:
                    best = (model.predict_proba(setting.Xnew)[:, 1:],) * 2
                else:
                    mean = model.predict(setting.Xnew)[:, None]
                    best = mean, np.full_like(mean, loss)
        setting.curve.add(lambda best=best: best, "u")
        num_trees = int(1.5 * num_trees)


def pep(setting: Setting) -> None:
    """
    Our regression at one power; predicted from u alone, and with near rows as well.

    If named so, it is trained on some rows first, and then predicts from all of them,
    and with near rows whose number and noise rows that are left out choose: once, as a
    part of training.
    """
    cell = setting.cell
    curve = setting.curve
    model = PEPRegression(
        setting.problem.train,
        setting.kernel,
        setting.centres(),
        noise_variance=NOISE_VARIANCE,
        alpha=cell.alpha,
    )
    kinds = {
        "near": partial(moments_near, model, setting.Xnew),
        "u": partial(moments, model, setting.Xnew),
    }
    with contextlib.suppress(Over):
        if cell.method == "PEP subset":
            some, rows = leave_rows_out(model, seed=0)  # of the same parameters
            maximise_on_subset(some, callback=lambda step: curve.look(), progress=False)
            model.posterior()  # what a user waits for before predictions
            for kind, predict in kinds.items():
                curve.add(predict, kind)
            held = tuple(part[rows] for part in setting.problem.train)
            mixed = ensemble_with_near_rows(Ensemble([some]), held)
            if mixed is not None:
                some.data = setting.problem.train
                kinds["chosen"] = partial(mixed_moments, mixed, setting.Xnew)
                curve.add(kinds["chosen"], "chosen")
        maximise(model, callback=lambda step: curve.look(**kinds), progress=False)


def moments_near(model: Any, Xnew: AnyNDArray) -> tuple[AnyNDArray, ...]:
    """Mean and variance of y, where near training rows are known too."""
    return moments(model, Xnew, near=NEIGHBOURS)


def mixed_moments(mixed: Ensemble, Xnew: AnyNDArray) -> tuple[AnyNDArray, ...]:
    """Mean and variance of y; of a mixture, which is not quite Gaussian."""
    posterior = mixed.posterior()
    parts = [
        posterior.predict_y(part)
        for part in np.array_split(Xnew, max(1, len(Xnew) // 1000))
    ]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def estimator(setting: Setting) -> None:
    """Our estimators, with defaults, or with mixed powers and so many points; growing
    runs.
    """
    (X, Y), cell, curve = setting.problem.train, setting.cell, setting.curve
    mix = {"alpha": "mix", "num_inducing": cell.M, "standardize": False}
    options = mix if cell.method == "mix" else {}
    kind = PEPClassifier if setting.classes else PEPRegressor
    # Minibatches have no limit of time: one run, with all of it for what has one.
    seconds = 1.0 if len(X) <= MOST_ROWS else 0.99 * curve.limit
    while seconds < curve.limit and curve.permits_longer():
        curve.begin()
        model = kind(max_seconds=seconds, random_state=0, **options)
        # What is compiled belongs to a thread: in a new one, nothing is. Its limit is
        # of processor time, as those of the others.
        clock = patch.object(time, "perf_counter", time.process_time)
        with warnings.catch_warnings(), ThreadPoolExecutor(1) as pool, clock:
            warnings.simplefilter("ignore")  # that training was ended
            pool.submit(
                model.fit, X, Y[:, 0].astype(int) if setting.classes else Y[:, 0]
            ).result()
        if setting.classes:
            curve.add(
                lambda model=model: (model.predict_proba(setting.Xnew)[:, 1:],) * 2, "u"
            )
        else:
            curve.add(lambda model=model: mean_and_variance(model, setting.Xnew), "u")
        record = model.record_
        if record is None or record.converged:
            return
        seconds *= LONGER


def mean_and_variance(model: PEPRegressor, Xnew: AnyNDArray) -> tuple[AnyNDArray, ...]:
    mean, deviation = model.predict(Xnew, return_std=True)
    return mean[:, None], deviation[:, None] ** 2


def tied(setting: Setting) -> None:
    """Our tied sites by minibatches and Adam, and by natural gradients for them too if
    named so.
    """
    cell = setting.cell
    _, *natural, rate = cell.method.split()
    model = ARPEP(
        setting.kernel,
        setting.likelihood(),
        setting.centres(),
        alpha=cell.alpha,
        num_data=len(setting.problem.train[0]),
    )
    predict = partial(moments, model, setting.Xnew)

    def evaluate(_: Any) -> dict[str, float]:
        setting.curve.look(u=predict)
        return {}

    with contextlib.suppress(Over):
        fit(
            model,
            setting.batches(),
            num_steps=10**6,
            optimizer=tf_keras.optimizers.Adam(float(rate)),
            natural_gradient=NATURAL if natural else None,
            evaluate=evaluate,
            evaluate_every=LOOK_EVERY,
            progress=False,
        )


def near_rows(setting: Setting) -> None:
    """
    Our predictions from near rows alone, and training for these, for labels.

    Lengthscales may change by orders of magnitude, so that logarithms of parameters are
    trained.
    """
    X, Y = setting.problem.train
    kernel = gpflow.kernels.Matern32(lengthscales=np.ones(X.shape[1]))
    for name in ("variance", "lengthscales"):
        value = getattr(kernel, name).numpy()
        setattr(kernel, name, gpflow.Parameter(value, transform=tfp.bijectors.Exp()))
    model = PEP(
        (X, Y),
        kernel,
        setting.likelihood(),
        setting.centres(),
        alpha=setting.cell.alpha,
        mean_function=gpflow.functions.Constant(),
    )

    predict = partial(moments, model, setting.Xnew, near=NEAR_LABELS)

    def evaluate(_: Any) -> dict[str, float]:
        setting.curve.look(near=predict)
        return {}

    setting.curve.look(near=predict)  # near rows need no training
    rate = tf_keras.optimizers.schedules.ExponentialDecay(NEAR_RATE, 100, 0.5)
    with contextlib.suppress(Over):
        fit(
            model,
            model.near_row_training_loss_closure(NEAR_LABELS),
            num_steps=NEAR_STEPS,
            optimizer=tf_keras.optimizers.Adam(rate),
            evaluate=evaluate,
            evaluate_every=LOOK_EVERY // 2,
            progress=False,
        )


#: By the first word of a method's name, or all of it.
METHODS: dict[str, Callable[[Setting], None]] = {
    "GPflow SGPR": sgpr,
    "GPflow SVGP": svgp,
    "GPJax": gpjax,
    "GPBoost": gpboost,
    "HistGB": boosting,
    "PEP": pep,
    "near": pep,
    "PEP near": near_rows,
    "mix": estimator,
    "PEPRegressor": estimator,
    "PEPClassifier": estimator,
    "ARPEP": tied,
}


def train(setting: Setting) -> None:
    """Train by the method of the cell."""
    words = setting.cell.method.split()
    METHODS.get(" ".join(words[:2]), METHODS.get(words[0]))(setting)
