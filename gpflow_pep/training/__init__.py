"""Training: on all rows; by minibatches, with checkpoints; with rows spread over processes; the
power chosen from data."""

from ..refusals import absent
from .alphas import AlphaScore, AlphaSelection, select_alpha
from .ascent import Ascent
from .distributed import sharded, sharded_training_loss
from .full_batch import MaximiseRecord, Step, maximise
from .history import EarlyStopping, Evaluation, FitRecord, best_evaluation
from .loop import fit, shuffled_batches
from .mixed_model import MixedModel, MixtureRecord
from .mixed_paths import MixedPaths
from .mixtures import mix_alphas, mix_models, mix_near_rows, mixture_weights
from .near_labels import mix_near_labels
from .near_rows import GivenRows
from .objectives import hybrid_evidence, training_loss
from .points import PointsScore
from .subset import maximise_on_subset
from .wrong_labels import raise_error_rate

__all__ = [
    "AlphaScore",
    "AlphaSelection",
    "Ascent",
    "EarlyStopping",
    "Evaluation",
    "FitRecord",
    "GivenRows",
    "MaximiseRecord",
    "MixedModel",
    "MixedPaths",
    "MixtureRecord",
    "PointsScore",
    "Step",
    "best_evaluation",
    "fit",
    "hybrid_evidence",
    "maximise",
    "maximise_on_subset",
    "mix_alphas",
    "mix_models",
    "mix_near_labels",
    "mix_near_rows",
    "mixture_weights",
    "raise_error_rate",
    "select_alpha",
    "sharded",
    "sharded_training_loss",
    "shuffled_batches",
    "training_loss",
]

__getattr__ = absent(__name__)
