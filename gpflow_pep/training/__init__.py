"""Training: by minibatches, with evaluation and checkpoints; with rows spread over processes."""

from .distributed import sharded, sharded_training_loss
from .history import EarlyStopping, Evaluation, FitRecord, best_evaluation
from .loop import fit, shuffled_batches

__all__ = [
    "EarlyStopping",
    "Evaluation",
    "FitRecord",
    "best_evaluation",
    "fit",
    "sharded",
    "sharded_training_loss",
    "shuffled_batches",
]
