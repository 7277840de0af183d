"""Training on all rows, or with minibatches: with checkpoints, and on several devices
or machines.

`starts` has initial inducing variables, `fitting` trains models, and `choosing`
compares trained models.
"""

from ..engine.left_out_rows import ensemble_weights, weights_of_means
from ..engine.predictions.context_rows import NearRows
from ..engine.records import Ascent, MaximiseRecord, PointsScore
from . import starts as starts
from .choosing.alphas import AlphaScore, AlphaSelection, select_alpha
from .choosing.combining import (
    ensemble_of_models,
    ensemble_of_powers,
)
from .choosing.ensemble import Ensemble, EnsembleRecord
from .choosing.near import ensemble_with_near_labels, ensemble_with_near_rows
from .fitting.cheaper import maximise_on_subset
from .fitting.full_batch import Step, maximise
from .fitting.history import EarlyStopping, Evaluation, FitRecord
from .fitting.loop import fit, shuffled_batches
from .fitting.objectives import training_loss

__all__ = [
    "AlphaScore",
    "AlphaSelection",
    "Ascent",
    "EarlyStopping",
    "Ensemble",
    "EnsembleRecord",
    "Evaluation",
    "FitRecord",
    "MaximiseRecord",
    "NearRows",
    "PointsScore",
    "Step",
    "ensemble_of_models",
    "ensemble_of_powers",
    "ensemble_weights",
    "ensemble_with_near_labels",
    "ensemble_with_near_rows",
    "fit",
    "maximise",
    "maximise_on_subset",
    "select_alpha",
    "shuffled_batches",
    "training_loss",
    "weights_of_means",
]
