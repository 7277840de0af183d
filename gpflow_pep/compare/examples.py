"""Data that come with scikit-learn, or that it generates."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
from sklearn import datasets


def _bundle(load: Any, target: str) -> tuple[pd.DataFrame, str]:
    bunch = load(as_frame=True)
    y = bunch.target
    if "target_names" in bunch:
        y = y.map(dict(enumerate(map(str, bunch.target_names))))
    return bunch.data.assign(**{target: y}), target


def _friedman() -> tuple[pd.DataFrame, str]:
    X, y = datasets.make_friedman1(500, n_features=5, noise=0.3, random_state=0)
    return pd.DataFrame(X, columns=list("abcde")).assign(y=y), "y"


#: Makes each table and names its target.
EXAMPLES: dict[str, Callable[[], tuple[pd.DataFrame, str]]] = {
    "diabetes": partial(_bundle, partial(datasets.load_diabetes, scaled=False), "progression"),
    "friedman": _friedman,
    "breast-cancer": partial(_bundle, datasets.load_breast_cancer, "diagnosis"),
    "wine": partial(_bundle, datasets.load_wine, "cultivar"),
}


def load_example(name: str) -> tuple[pd.DataFrame, str]:
    """
    Load a table, whose source scikit-learn's pages tell, and the name of its target.

    :param name: "diabetes" (442 patients, 10 inputs, the progression of the disease a year later),
        "friedman" (500 generated rows of five inputs), "breast-cancer" (569 tumours, 30 inputs, 2
        classes) or "wine" (178 wines, 13 inputs, 3).
    """
    return EXAMPLES[name]()
