"""Breiman's waves: rows of 21 numbers and three classes, generated."""

import numpy as np
from gpflow.base import AnyNDArray

#: Of the classes: the two of three waves that each mixes.
_PAIRS = ((0, 1), (0, 2), (1, 2))
_PEAKS = (7, 15, 11)


def waveform(seed: int, num_rows: int) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Breiman, Friedman, Olshen & Stone (1984), section 2.6.2: inputs [N, 21] and classes
    [N].

    Each row mixes two of three triangular waves, of height 6, in random proportions,
    with unit noise; which two is the class. All classes are equally probable.
    """
    random = np.random.default_rng(seed)
    place = np.arange(1, 22)
    waves = np.stack([np.maximum(6.0 - np.abs(place - peak), 0.0) for peak in _PEAKS])
    classes = random.integers(0, 3, num_rows)
    first, second = np.array(_PAIRS)[classes].T
    share = random.uniform(size=(num_rows, 1))
    noise = random.standard_normal((num_rows, len(place)))
    return share * waves[first] + (1.0 - share) * waves[second] + noise, classes
