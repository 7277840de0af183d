"""Estimators of several powers mixed to one."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..training import mix_models
from .base import PEPEstimator


def mix_estimators(estimators: Sequence[PEPEstimator]) -> PEPEstimator:
    """
    Mix estimators that were trained on the same rows at several powers, in place of ``"mix"``.

    :param estimators: They share columns, units and random state; see
        :func:`~gpflow_pep.training.mixtures.mix_models` for what their models share.
    :raises ValueError: If their models do not fit together.
    """
    mixed = copy.copy(estimators[len(estimators) // 2])
    mixed.alpha = "mix"
    mixed._set_model(mix_models([estimator.model_ for estimator in estimators]))
    mixture: Any = mixed.model_
    densities = zip(mixture.record.alphas, mixture.record.log_densities, strict=True)
    log_slope = mixed._mean_log_slope(np.asarray(mixture.models[0].data[1]))
    mixed.alpha_scores_ = {alpha: float(score) + log_slope for alpha, score in densities}
    records = {estimator.alpha_: estimator.record_ for estimator in estimators}
    mixed.record_ = records[mixed.alpha_]
    return mixed
