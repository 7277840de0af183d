"""Exact estimators do not load TensorFlow until an object of GPflow is asked for."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import pickle
import sys
import warnings

import numpy as np
import scipy
import sklearn
from sklearn.base import clone

from gpflow_pep.estimators import (
    PEPClassifier,
    PEPRegressor,
    SeparateRegressors,
    export_numpy,
    load_estimator,
    save_estimator,
)
from gpflow_pep.estimators.single.defaults_of_gpflow import (
    default_float,
    default_jitter,
)


def check_light():
    assert not {"gpflow", "tensorflow", "check_shapes"} & sys.modules.keys()


defaults = default_float(), default_jitter()
random = np.random.default_rng(0)
X = random.normal(size=[80, 3])
y = np.sin(X[:, 0]) + 0.1 * random.normal(size=80)
model = PEPRegressor(random_state=0).fit(X, y)
check_light()
mean, std = model.predict(X[:7], return_std=True)
model.predict_quantiles(X[:7])
model.log_score(X, y)
model.far_rows(X)
model.summary()
again = pickle.loads(pickle.dumps(model))
assert np.array_equal(again.predict(X[:7]), mean)
check_light()
few = X[:30]
quick = {"random_state": 0, "max_iterations": 2}
PEPRegressor(likelihood="log_normal", time=1, **quick).fit(few, np.exp(y[:30]))
clone(model).set_params(kernel="rbf", ard=False, **quick).fit(few, y[:30])
both = SeparateRegressors(PEPRegressor(**quick)).fit(few, few[:, :2])
both.predict(few)
clone(PEPClassifier(**quick))
check_light()

# A user may turn warnings into errors, and TensorFlow warns while it loads.
warnings.simplefilter("error")
kernel = model.kernel_
warnings.simplefilter("ignore")

import gpflow
import tensorflow

assert defaults == (gpflow.default_float(), gpflow.default_jitter())
assert isinstance(kernel, gpflow.kernels.Kernel)
tensorflow.config.run_functions_eagerly(True)
sparse = PEPRegressor(num_inducing=5, **quick).fit(few, y[:30])
assert np.isfinite(sparse.predict(few)).all()
assert np.array_equal(model.predict(X[:7]), mean)
"""

#: GPflow reads these when it is imported.
OTHER_DEFAULTS = {"GPFLOW_FLOAT": "float32", "GPFLOW_JITTER": "1e-3"}
PROGRAM_OF_DEFAULTS = """
import numpy as np
from gpflow_pep.estimators.single import defaults_of_gpflow as defaults

assert defaults.default_float() is np.float32
assert defaults.default_jitter() == 1e-3
"""

#: Threads that come to TensorFlow and GPflow by different modules.
PROGRAM_OF_THREADS = """
import threading

from gpflow_pep.estimators.single import when_used

names = [name for name in when_used.__all__ if name != "load_tensorflow"]
begin = threading.Barrier(len(names))
loaded = []


def load(name):
    begin.wait()
    loaded.append(getattr(when_used, name).__file__)


threads = [threading.Thread(target=load, args=[name]) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(loaded) == len(names)
"""


def run(program: str, **variables: str) -> str:
    """Run a program in a process of its own, and return its errors."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    return ended.stderr if ended.returncode else ""


def test_exact_estimators_do_not_load_it() -> None:
    assert run(PROGRAM) == ""


@pytest.mark.slow
def test_defaults_of_gpflow_from_the_environment() -> None:
    assert run(PROGRAM_OF_DEFAULTS, **OTHER_DEFAULTS) == ""


@pytest.mark.slow
def test_threads_load_it_together() -> None:
    assert run(PROGRAM_OF_THREADS) == ""
