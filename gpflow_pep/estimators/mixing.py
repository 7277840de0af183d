"""Estimators of several powers mixed to one."""

import copy
from collections.abc import Sequence

from ..training import mix_models
from .base import PEPEstimator


def mix_estimators(estimators: Sequence[PEPEstimator]) -> PEPEstimator:
    """
    Mix estimators that were trained on the same rows at several powers, as ``alpha="mix"`` does:
    its predictions know near rows where these improve them and ``neighbours`` is "auto".

    :param estimators: They share columns, units and random state; see
        :func:`~gpflow_pep.training.mixtures.mix_models` for what their models share.
    :raises ValueError: If their models do not fit together.
    """
    mixed = copy.copy(estimators[len(estimators) // 2])
    mixed.alpha = "mix"
    mixture = mix_models([estimator.model_ for estimator in estimators])
    mixed._set_model(mixed._finished_mixture(mixture))
    records = {estimator.alpha_: estimator.record_ for estimator in estimators}
    mixed.record_ = records[mixed.alpha_]
    return mixed
