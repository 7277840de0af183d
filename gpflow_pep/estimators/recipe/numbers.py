"""The choice of the recipe for the targets of a regressor: one model, or a mixture."""

from collections.abc import Sequence

import numpy as np

from ...engine.refusals.arrays import AnyNDArray
from ..single.defaults_of_gpflow import default_float
from ..single.model import SingleModel
from ..single.regression import EXACT_ROWS, SingleRegressor, count_outputs
from ..single.settings import ModelSettings
from ..single.when_used import load_tensorflow
from .columns import fit_columns
from .forecasts import fit_forecast
from .mixture import ColumnMixture, Mixture
from .recipe import because_of, only_model, settings_of_one_model
from .regression import fit_mixture


def fit_numbers(
    settings: ModelSettings,
    X: AnyNDArray,
    Y: AnyNDArray,
    names: Sequence[str] | None = None,
    before: SingleModel | None = None,
) -> Mixture | ColumnMixture:
    """Train the models of a regressor on rows X [N, D], with targets Y [N, P].

    :param settings: The settings of the estimator.
    :param names: The names of the columns of y, for descriptions.
    :param before: A model from which a warm start begins.
    """
    named = settings_of_one_model(settings)
    dtype = default_float()
    if named or dtype != np.float64:
        why = because_of(named)
        if not named:
            why = f", because GPflow's default float is {dtype.__name__}"
        return only_model(SingleRegressor(settings).fit(X, Y, before=before), why)
    several = count_outputs(settings, X.shape[1], Y.shape[1]) > 1
    if settings.max_seconds is not None and (several or len(X) > EXACT_ROWS):
        load_tensorflow()
    if several and settings.num_latent is None:
        return fit_columns(settings, X, Y, names)
    if several:
        return fit_mixture(settings, X, Y, before)
    return fit_forecast(settings, X, Y, before)
