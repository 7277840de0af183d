"""Training by minibatches, with held-out evaluation, early stopping, checkpoints, TensorBoard."""

from .history import EarlyStopping, Evaluation, FitRecord, best_evaluation
from .loop import fit, shuffled_batches

__all__ = [
    "EarlyStopping",
    "Evaluation",
    "FitRecord",
    "best_evaluation",
    "fit",
    "shuffled_batches",
]
