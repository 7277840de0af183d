"""5 Concurrency and memory: threads do not disturb each other, and only graphs stay."""

import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import gpflow
import numpy as np
import psutil
import reproducible_worker as worker
import tensorflow as tf
from campaign import Size, Trial
from helpers import assert_all_close
from reproducible_worker import XNEW, X, Y, arpep, probit, regression
from threadpoolctl import threadpool_info

import gpflow_pep as pep

THREADS = 8
#: Megabytes that the process may be larger after many calls than after a few.
GROWTH = 30.0
#: Of predictions that other threads may nudge in the last bits, such as those from
#: sites.
CLOSE = 1e-6

MODELS: dict[str, Callable[[], Any]] = {
    "PEPRegression": regression,
    "PEP": probit,
    "ARPEP": arpep,
}


def _in_threads(call: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, range(count)))


def _all_the_same(trial: Trial, label: str, found: list[Any], expected: Any) -> None:
    for number, result in enumerate(found):
        with trial.case(f"{label} {number}"):
            assert_all_close(result, expected(number), rtol=CLOSE, scale=1.0)


def test_predictions(trial: Trial, size: Size) -> None:
    """Predictions from 8 threads on one model, its posterior, a compiled function"""
    count = size(quick=8, full=100, long=1000)
    for name, create in MODELS.items():
        model = create()
        expected = model.predict_f(XNEW)
        spec = tf.TensorSpec([None, 2], tf.float64)
        compiled = tf.function(
            lambda x, model=model: model.predict_f(x), input_signature=[spec]
        )
        ways: dict[str, Callable[[Any], Any]] = {
            "predict_f": model.predict_f,
            "predict_y": lambda x, m=model, v=expected[1]: (m.predict_y(x)[0], v),
            "posterior": model.posterior().predict_f,
            "compiled": compiled,
        }
        for way, predict in ways.items():
            if way == "predict_y" and name == "PEP":
                continue  # a probability
            found = _in_threads(lambda k, predict=predict: predict(XNEW), count)
            _all_the_same(trial, f"{name}, {way}, call", found, lambda number: expected)  # noqa: B023


def test_several_models(trial: Trial, size: Size) -> None:
    """Models built, trained and used in 8 threads: the numbers of one thread"""

    def trained(number: int) -> Any:
        model = pep.models.PEPRegression(
            (X, Y),
            gpflow.kernels.Matern52(),
            worker.Z + 0.01 * number,
            noise_variance=0.1,
        )
        record = pep.training.maximise(model, max_iterations=5, progress=False)
        return np.array([record.objective]), *model.predict_f(XNEW)

    count = size(quick=4, full=40)
    blas = [pool["num_threads"] for pool in threadpool_info()]
    found = _in_threads(trained, count)
    _all_the_same(trial, "model", found, trained)
    with trial.case("threads of linear algebra are as many as before"):
        assert [pool["num_threads"] for pool in threadpool_info()] == blas


def test_fit_in_threads(trial: Trial, size: Size) -> None:
    """Minibatch training in 8 threads: the numbers of one thread"""
    fit = worker.TRAINED["fit"]
    alone = fit()
    found = _in_threads(lambda k: fit(), size(quick=2, full=16))
    _all_the_same(trial, "run", found, lambda number: alone)


def _megabytes() -> float:
    gc.collect()
    return float(psutil.Process(os.getpid()).memory_info().rss) / 2**20


def _num_graphs() -> int:
    return sum(isinstance(one, tf.Graph) for one in gc.get_objects())


def _steady(
    trial: Trial,
    name: str,
    call: Callable[[], Any],
    count: int,
    *,
    per_graph: float = 0.0,
) -> None:
    """Memory after some calls, and after many more, each of which may keep the MB of a
    graph.
    """
    with trial.case(name):
        for _ in range(max(count // 5, 2)):
            call()
        before = _megabytes()
        graphs = _num_graphs()
        for _ in range(count):
            call()
        growth = _megabytes() - before
        graphs = _num_graphs() - graphs
        trial.note(f"{name}, {count} times: {growth:+.1f} MB, {graphs:+d} graphs")
        assert growth < GROWTH + per_graph * count, (
            f"the process grew by {growth:.0f} MB"
        )
        assert graphs == 0 or per_graph, f"there are {graphs} graphs more"


def test_memory(trial: Trial, size: Size) -> None:
    """Losses, predictions, posteriors, models built, many times: no growth; models
    trained: no growth but for the graphs, which TensorFlow keeps
    """
    calls = size(quick=20, full=1000)
    builds = size(quick=5, full=200)
    for name, create in MODELS.items():
        model = create()
        data = getattr(model, "data", (tf.constant(X), tf.constant(Y)))
        loss = gpflow.models.training_loss_closure(model, data, compile=True)
        eager = gpflow.models.training_loss_closure(model, data, compile=False)
        # Each of PEP's takes long without a graph.
        few = calls // 10 if name == "PEP" else calls
        _steady(trial, f"{name}, compiled losses", loss, calls)
        _steady(trial, f"{name}, losses", eager, few)
        _steady(trial, f"{name}, predictions", lambda m=model: m.predict_f(XNEW), few)
        _steady(trial, f"{name}, models", create, builds)
    choose = partial(
        pep.training.starts.greedy_variance, X, 5, kernel=gpflow.kernels.Matern32()
    )
    options = {"max_iterations": 1, "progress": False}

    def train():
        return pep.training.maximise(regression(), **options)

    _steady(trial, "posteriors", regression().posterior, builds)
    _steady(trial, "selections", choose, builds, per_graph=1.5)
    _steady(trial, "models trained by maximise", train, builds // 4, per_graph=10.0)
    fit = worker.TRAINED["fit"]
    _steady(trial, "models trained by fit", fit, max(builds // 10, 1), per_graph=10.0)
