"""Draw the pictures of the gallery, docs/interpreting.rst.

    python -m examples gallery [--out DIRECTORY] [--only NAME ...]

Each function draws one, into ``gallery_NAME.png``. Data are scikit-learn's or
generated.
"""

from functools import cache
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from PIL import Image
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_digits, make_moons
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_score, train_test_split

import gpflow_pep as pep
from examples.common import arguments
from gpflow_pep import plotting
from gpflow_pep.estimators import PEPClassifier, PEPRegressor

#: Pixels for each inch: sharp enough, and small files.
DPI = 90
NUM_COLORS = 128


@cache
def diabetes() -> Any:
    """A table of 442 rows, split, and a model of it."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
    model = PEPRegressor(num_inducing=30, random_state=0).fit(X, y)
    return model, X_test, y_test


@cache
def many_rows() -> Any:
    """40 000 rows, and a model that saw 1000 others."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (41_000, 2))
    y = 2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_t(4, len(X))
    model = PEPRegressor(num_inducing=60, random_state=0, max_iterations=200)
    model.fit(X[40_000:], y[40_000:])
    return model, X[:40_000], y[:40_000]


@cache
def moons() -> Any:
    """Two classes in the plane, and a model with blurred inducing points."""
    X, y = make_moons(300, noise=0.25, random_state=0)
    model = pep.training.starts.saspa(
        (X, y[:, None].astype(float)),
        gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
        gpflow.likelihoods.Bernoulli(),
        8,
        seed=0,
    )
    infos: list[Any] = []
    record = pep.training.maximise(
        model,
        max_iterations=80,
        progress=False,
        callback=lambda step: infos.append(model.last_inference),
    )
    return model, X, y, record, infos


@cache
def digits() -> Any:
    """Handwritten digits from nought to four, and a model that saw few of them."""
    X, y = load_digits(n_class=5, return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, train_size=100, random_state=0)
    model = PEPClassifier(
        num_inducing=15, likelihood="softmax", random_state=0, max_iterations=12
    )
    return model.fit(X, y), X_test, y_test


@cache
def snake() -> Any:
    """A curve with noise, its rows in two groups with a gap between."""
    rng = np.random.default_rng(3)
    X = np.sort(
        np.concatenate([rng.uniform(0.0, 4.0, 70), rng.uniform(6.0, 10.0, 70)])
    )[:, None]
    Y = np.sin(1.6 * X) + 0.25 * X + 0.2 * rng.standard_normal(X.shape)
    return X, Y


def few(ax: Any) -> None:
    model, X, y = diabetes()
    mean, std = model.predict(X, return_std=True)
    plotting.predicted_against_actual(y, mean, std, ax=ax)


def many(ax: Any) -> None:
    model, X, y = many_rows()
    mean, std = model.predict(X, return_std=True)
    plotting.predicted_against_actual(y, mean, std, ax=ax)


def pit(ax: Any) -> None:
    model, X, y = many_rows()
    mean, std = model.predict(X, return_std=True)
    plotting.pit_histogram(norm.cdf(y, mean, std), ax=ax)


def regression(ax: Any) -> None:
    X, Y = snake()
    Z = pep.training.starts.kmeans(X, 9, seed=0)
    model = pep.PEPRegression((X, Y), gpflow.kernels.SquaredExponential(), Z, alpha=0.5)
    pep.training.maximise(model, progress=False)
    x = np.linspace(-0.5, 10.5, 300)
    mean, variance = model.predict_y(x[:, None])
    plotting.regression_1d(
        x,
        mean,
        np.sqrt(variance),
        data={"training rows": (X, Y)},
        inducing=plotting.inducing_points_of(model)[0],
        ax=ax,
    )


def boundary(ax: Any) -> None:
    model, X, y, _, _ = moons()
    plotting.decision_boundary(X, y, model, names=["upper moon", "lower moon"], ax=ax)


def boundary_of_three(ax: Any) -> None:
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [2.5, 0.5], [1.0, 2.4]])
    labels = np.repeat(["ash", "birch", "cedar"], 60)
    X = np.repeat(centres, 60, axis=0) + 0.7 * rng.standard_normal((180, 2))
    model = PEPClassifier(num_inducing=12, likelihood="softmax", random_state=0).fit(
        X, labels
    )
    plotting.decision_boundary(X, labels, model, ax=ax)


def reliability(ax: Any) -> None:
    model, X, y = digits()
    plotting.reliability(y, model.predict_proba(X), ax=ax)


def confusion(ax: Any) -> None:
    model, X, y = digits()
    names = ["nought", "one", "two", "three", "four"]
    plotting.confusion_matrix(y, model.predict(X), names, ax=ax)


def alphas(ax: Any) -> None:
    powers = (0.0, 0.5, 1.0)
    X, y = load_diabetes(return_X_y=True)

    def score(model: Any) -> tuple[float, float]:
        found = cross_val_score(model, X, y, cv=3)
        return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))

    scores = [
        score(PEPRegressor(alpha=alpha, num_inducing=10, random_state=0))
        for alpha in powers
    ]
    means, errors = np.transpose(scores)
    plotting.alpha_sweep(
        powers,
        means,
        errors,
        best=powers[int(np.argmax(means))],
        baselines={"ridge": score(RidgeCV()), "mean": score(DummyRegressor())},
        label="R², three folds",
        ax=ax,
    )


#: Width and height in inches of each picture.
PICTURES = {
    few: (5.0, 5.0),
    many: (5.0, 5.0),
    pit: (6.0, 4.2),
    regression: (7.0, 4.0),
    boundary: (5.6, 5.0),
    boundary_of_three: (5.6, 5.0),
    reliability: (5.0, 5.0),
    confusion: (5.0, 4.6),
    alphas: (6.0, 4.0),
}


def main() -> None:
    args = arguments(
        __doc__,
        out=Path("docs/figures"),
        only=[draw.__name__ for draw in PICTURES],
        quick={"only": ["pit", "reliability"]},
    )
    args.out.mkdir(parents=True, exist_ok=True)
    for draw, size in PICTURES.items():
        if draw.__name__ in args.only:
            figure = plotting.figure(*size)
            draw(figure.subplots())
            path = args.out / f"gallery_{draw.__name__}.png"
            figure.savefig(path, dpi=DPI)
            Image.open(path).convert("RGB").quantize(
                NUM_COLORS, dither=Image.Dither.NONE
            ).save(path, optimize=True)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
