"""1 Bad input: an error that says what to do, or a result that is finite."""

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from campaign import Size, Trial, drawing
from cases.refusals import X, Y, Z
from check_shapes.exceptions import CheckShapesError
from gpflow.kernels import SquaredExponential
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gpflow_pep as pep

#: What a user may see: errors of ours, of scikit-learn (all ValueErrors), of sample
#: weights, and GPflow's own of shapes, which name the function, the argument, and both
#: shapes.
CLEAR = (ValueError, CheckShapesError)
#: What says that TensorFlow, NumPy or Python said no, and not a check.
INSIDES = ("{{", "node ", "unsupported operand", "object has no attribute", "Traceback")


def outcome(call: Callable[[], Any]) -> str:
    """What comes of a call: "refused", or "finite"; all else is a failure."""
    try:
        found = call()
    except CLEAR as error:
        assert not any(part in str(error) for part in INSIDES), str(error)
        return "refused"
    numbers = [np.asarray(part) for part in tf.nest.flatten(found)]
    assert all(
        np.isfinite(part).all() for part in numbers if part.dtype.kind in "fc"
    ), found
    return "finite"


ODD_NUMBERS = [0.0, 1.0, -1.0, 2.0, 1e-300, 1e6, -1e9, 1e300, np.nan, np.inf]
NUMBER = st.floats(-3.0, 3.0) | st.sampled_from(ODD_NUMBERS)
DTYPES = st.sampled_from([np.float32, np.int64, bool, object, "U3", complex])
ODD_SHAPES = st.sampled_from([(), (4,), (4, 1, 1)])


def matrices(num_rows: int | None = None, num_columns: int | None = None) -> Any:
    """Mostly matrices of floats; now and then of another rank or type."""
    rows = st.integers(0, 6) if num_rows is None else st.just(num_rows)
    columns = st.integers(0, 3) if num_columns is None else st.just(num_columns)
    shape = st.tuples(rows, columns)
    benign = arrays.arrays(np.float64, shape, elements=st.floats(-3.0, 3.0))
    other = [
        arrays.arrays(np.float64, shape, elements=NUMBER),
        arrays.arrays(np.float64, ODD_SHAPES, elements=st.floats(-3.0, 3.0)),
        st.tuples(benign, DTYPES).map(lambda pair: pair[0].astype(pair[1])),
        st.none() | st.just([[1.0], [2.0, 3.0]]),
    ]
    return st.one_of(*[benign] * 12, *other)


ROWS = st.integers(1, 5).flatmap(lambda n: st.tuples(matrices(n, 2), matrices(n, 1)))
OPTIONAL = {
    "alpha": NUMBER | st.sampled_from([None, "half", [0.5], [0.0, 1.0], 0.3]),
    "noise_variance": NUMBER | st.just("loud"),
    "blocks": arrays.arrays(np.int64, st.integers(0, 5), elements=st.integers(-3, 9)),
    "chunk_size": st.integers(-1, 9) | st.just(2.5),
    "num_latent_gps": st.integers(0, 2),
}
OPTIONS = st.fixed_dictionaries({}, optional=OPTIONAL)


def _regression(data: Any, Zs: Any, options: Any, Xnew: Any) -> Any:
    model = pep.models.PEPRegression(data, SquaredExponential(), Zs, **options)
    return model.training_loss(), model.predict_y(Xnew)


def _point(data: Any, Zs: Any, options: Any, Xnew: Any) -> Any:
    known = {
        k: v
        for k, v in options.items()
        if k in ("alpha", "chunk_size", "num_latent_gps")
    }
    X, Y = data
    if isinstance(Y, np.ndarray) and Y.dtype == np.float64:
        Y = (Y > 0).astype(float)
    parts = SquaredExponential(), gpflow.likelihoods.Bernoulli()
    model = pep.models.PEP((X, Y), *parts, Zs, max_sweeps=20, **known)
    return model.training_loss(), model.predict_y(Xnew)


def _tied(data: Any, Zs: Any, options: Any, Xnew: Any) -> Any:
    known = {k: v for k, v in options.items() if k == "alpha"}
    known["num_data"] = options.get("num_latent_gps", 5)
    model = pep.models.ARPEP(
        SquaredExponential(), gpflow.likelihoods.Gaussian(), Zs, **known
    )
    return model.training_loss(data), model.predict_y(Xnew)


def _selection(data: Any, Zs: Any, options: Any, Xnew: Any) -> Any:
    M = options.get("num_latent_gps", 2)
    seed = options.get("chunk_size", 0)
    kernel = SquaredExponential()
    starts = pep.training.starts
    chosen = [
        starts.kmeans(data[0], M, seed=seed),
        starts.greedy_variance(data[0], M, kernel=kernel, seed=seed),
        starts.greedy_variational(
            data, M, kernel=kernel, noise_variance=0.1, seed=seed
        ),
    ]
    return [np.asarray(one.Z) for one in chosen]


def _metrics(data: Any, Zs: Any, options: Any, Xnew: Any) -> Any:
    Y, mean = data
    return pep.metrics.smse(Y, mean), pep.metrics.coverage(Y, mean, Zs, 0.9)


DRAWN = {"PEPRegression": _regression, "PEP": _point, "ARPEP": _tied}
DRAWN |= {"selection": _selection, "metrics": _metrics}


def test_drawn(trial: Trial, size: Size) -> None:
    """Arguments drawn by hypothesis: data, Z, Xnew and options"""
    for name, call in DRAWN.items():
        outcomes = Counter[str]()
        before = trial.tried

        @drawing(size(quick=20, full=400, long=4000))
        @given(
            ROWS,
            st.just(Z) | matrices(None, 2),
            st.just({}) | OPTIONS,
            st.just(X) | matrices(),
        )
        def try_one(data: Any, Zs: Any, options: Any, Xnew: Any) -> None:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcomes[outcome(lambda: call(data, Zs, options, Xnew))] += 1  # noqa: B023

        with trial.case(name):
            try_one()
        trial.tried = before + max(sum(outcomes.values()), 1)
        trial.note(
            f"{name}: {outcomes['refused']} refused, {outcomes['finite']} finite"
        )


def _fitted(estimator: Any, X: Any, y: Any) -> Any:
    model = estimator(num_inducing=3, max_iterations=2, random_state=0)
    predicted = model.fit(X, y).predict(X)
    return predicted if predicted.dtype.kind == "f" else np.zeros(1)


def test_estimators(trial: Trial, size: Size) -> None:
    """Tables drawn for estimators: fitted and predicted, or refused"""
    random = np.random.default_rng(0)
    spoil: dict[str, Callable[[Any], Any]] = {
        "as it is": lambda table: table,
        "NaN": lambda table: np.where(random.random(table.shape) < 0.02, np.nan, table),
        "infinite": lambda table: np.where(
            random.random(table.shape) < 0.02, np.inf, table
        ),
        "constant column": lambda table: np.c_[table, np.ones(len(table))],
        "column twice": lambda table: np.c_[table, table[:, :1]],
        "rows twice": lambda table: np.r_[table[:3], table[:3], table[:3]],
        "one row": lambda table: table[:1],
        "no row": lambda table: table[:0],
        **{f"scale of {s:g}": lambda table, s=s: s * table for s in (1e6, 1e-6, 1e200)},
        "offset of 1e9": lambda table: table + 1e9,
        "outlier": lambda table: (
            table + 1e4 * (np.arange(table.size) == 5).reshape(table.shape)
        ),
        "integers": lambda table: np.round(5 * table).astype(int),
        "booleans": lambda table: table > 0,
        "text": lambda table: np.char.add(table.astype(str), "x"),
        "single precision": lambda table: table.astype(np.float32),
        "one axis": lambda table: table[:, 0],
        "three axes": lambda table: table[:, :, None],
    }
    targets: dict[str, Callable[[Any], Any]] = {
        "numbers": lambda y: y,
        "all equal": lambda y: 0.0 * y + 3.0,
        "NaN": lambda y: np.where(np.arange(len(y)) == 1, np.nan, y),
        "two columns": lambda y: np.c_[y, y],
        "too few": lambda y: y[:-1],
        "text": lambda y: np.where(y > 0, "yes", "no"),
        "whole numbers": lambda y: np.round(y).astype(int),
        "huge": lambda y: 1e250 * y,
    }
    every = [
        (a, b)
        for a in spoil
        for b in targets
        if "as it is" in a or b in ("numbers", "text")
    ]
    found: Counter[str] = Counter()
    for of_X, of_y in every[:: size(quick=6, full=1)]:
        table = random.standard_normal((9, 2))
        y = np.sin(table[:, 0]) + table[:, 1]
        for estimator in (pep.estimators.PEPRegressor, pep.estimators.PEPClassifier):
            with trial.case(f"{estimator.__name__}, X {of_X}, y {of_y}"):
                X_bad = spoil[of_X](table)
                y_bad = targets[of_y](y[: len(X_bad)])
                found[outcome(partial(_fitted, estimator, X_bad, y_bad))] += 1
    trial.note(f"{found['refused']} refused, {found['finite']} fitted and predicted")


def test_unusual(trial: Trial) -> None:
    """What is unusual and accepted: finite log Z and predictions"""
    random = np.random.default_rng(1)
    unusual: dict[str, dict[str, Any]] = {
        "more inducing points than rows": {
            "inducing_variable": random.standard_normal((20, 2))
        },
        "duplicate inducing points": {"inducing_variable": np.r_[Z, Z, Z]},
        "constant columns": {"data": (np.ones_like(X), Y)},
        "constant targets": {"data": (X, 0.0 * Y)},
        "blocks with gaps": {"blocks": [0, 0, 5, 5, 9, 9, 9]},
        "negative block labels": {"blocks": [-1, -1, 5, 5, 9, 9, 9]},
        "integers for Z": {"inducing_variable": np.array([[0, 1], [1, 0]])},
    }
    for name, changes in unusual.items():
        with trial.case(name):
            arguments = {"data": (X, Y), "inducing_variable": Z, **changes}
            model = pep.models.PEPRegression(kernel=SquaredExponential(), **arguments)
            assert (
                outcome(lambda m=model: (m.training_loss(), m.predict_y(X))) == "finite"
            )
