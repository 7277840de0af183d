"""Predictions, by mixtures of models, of targets that are missing in the rows of the data."""

from typing import Any

from check_shapes import check_shapes
from gpflow.base import MeanAndVariance

from .. import checks
from ..models.base import finite


@check_shapes("return[0]: [N, P]", "return[1]: [N, P]")
def impute_y(mixed: Any) -> MeanAndVariance:
    """
    Compute mean and variance of the targets that are missing in the rows of the data, as
    ``impute_y`` of the components does, the spread of their means included.

    :raises ValueError: If the components are not of outputs that are mixtures.
    """
    if not all(hasattr(model, "impute_y") for model in mixed.models):
        got, expected = type(mixed.models[0]).__name__, "models whose outputs are mixtures"
        raise checks.refusal("impute_y", got, expected, "Use predict_y.")
    return finite(mixed.mix_moments([model.impute_y() for model in mixed.models]))
