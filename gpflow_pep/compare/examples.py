"""Data that come with scikit-learn, and generated data.

Libraries are imported when a table is made, so that the help of the command line, which names the
examples, is immediate.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def _from_scikit_learn(name: str, target: str, **options: bool) -> "tuple[pd.DataFrame, str]":
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True, **options)
    y = bunch.target
    if "target_names" in bunch:
        y = y.map(dict(enumerate(map(str, bunch.target_names))))
    return bunch.data.assign(**{target: y}), target


def _chirp() -> "tuple[pd.DataFrame, str]":
    """Make 500 rows of one input: waves that get shorter, at last too short for few points."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    time = rng.uniform(0.0, 3.0, 500)
    signal = np.sin(2.0 * time**2.2) + 0.1 * rng.standard_normal(len(time))
    return pd.DataFrame({"time": time, "signal": signal}), "signal"


#: Each gives a table, of which scikit-learn's pages tell where it is from, and names its target.
EXAMPLES: "dict[str, Callable[[], tuple[pd.DataFrame, str]]]" = {
    "diabetes": partial(_from_scikit_learn, "diabetes", "progression", scaled=False),
    "chirp": _chirp,
    "breast-cancer": partial(_from_scikit_learn, "breast_cancer", "diagnosis"),
    "wine": partial(_from_scikit_learn, "wine", "cultivar"),
}
