"""Data that come with scikit-learn, and generated data."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets


def _bundle(load: Any, target: str) -> tuple[pd.DataFrame, str]:
    bunch = load(as_frame=True)
    y = bunch.target
    if "target_names" in bunch:
        y = y.map(dict(enumerate(map(str, bunch.target_names))))
    return bunch.data.assign(**{target: y}), target


def _chirp() -> tuple[pd.DataFrame, str]:
    rng = np.random.default_rng(0)
    time = rng.uniform(0.0, 3.0, 500)
    signal = np.sin(2.0 * time**2.2) + 0.1 * rng.standard_normal(len(time))
    return pd.DataFrame({"time": time, "signal": signal}), "signal"


#: Makes each table and names its target.
EXAMPLES: dict[str, Callable[[], tuple[pd.DataFrame, str]]] = {
    "diabetes": partial(_bundle, partial(datasets.load_diabetes, scaled=False), "progression"),
    "chirp": _chirp,
    "breast-cancer": partial(_bundle, datasets.load_breast_cancer, "diagnosis"),
    "wine": partial(_bundle, datasets.load_wine, "cultivar"),
}


def load_example(name: str) -> tuple[pd.DataFrame, str]:
    """
    Load a table, of which scikit-learn's pages tell where it is from, and the name of its target.

    :param name: "diabetes" (442 patients, 10 inputs, the progression of the disease a year later),
        "chirp" (500 generated rows of one input: waves that get shorter, soon too short for few
        inducing points), "breast-cancer" (569 tumours, 30 inputs, 2 classes) or "wine" (178 wines,
        13 inputs, 3).
    """
    return EXAMPLES[name]()
