"""Training: on all rows; by minibatches, with checkpoints; with rows spread over processes.

Rooms: `starts` gives inducing variables, `fitting` trains, `choosing` compares what was trained.
"""

from ..engine.refusals import absent
from .choosing.alphas import AlphaScore, AlphaSelection, select_alpha
from .choosing.mixed_model import MixedModel, MixtureRecord
from .choosing.mixed_paths import MixedPaths
from .choosing.mixtures import mix_alphas, mix_models, mix_near_rows, mixture_weights
from .choosing.near_labels import mix_near_labels
from .choosing.near_rows import GivenRows
from .choosing.wrong_labels import raise_error_rate
from .fitting.ascent import Ascent
from .fitting.distributed import sharded, sharded_training_loss
from .fitting.full_batch import MaximiseRecord, Step, maximise
from .fitting.history import EarlyStopping, Evaluation, FitRecord, best_evaluation
from .fitting.loop import fit, shuffled_batches
from .fitting.objectives import hybrid_evidence, training_loss
from .fitting.points import PointsScore
from .fitting.subset import maximise_on_subset

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
