"""The modules with which estimators use TensorFlow. They are imported when one of their
names is first used: TensorFlow takes seconds to load, and exact models compute with
NumPy.

Other modules of the estimators import these from here, and write the module before each
name: ``models.PEP``, ``gpflow.kernels.Kernel``.
"""

from typing import TYPE_CHECKING

from ...engine.refusals import ModuleWhenUsed

if TYPE_CHECKING:
    import gpflow
    import tensorflow as tf

    from ... import likelihoods, models
    from ...engine import factors, prior
    from ...engine.factors import entries
    from ...engine.predictions import context_rows
    from ...engine.prior import mixing
    from ...engine.sites import posterior as posteriors
    from ...training import starts
    from ...training.choosing import alphas, ensemble, near
    from ...training.fitting import objectives
    from . import describing, left_out_labels, numpy_parts, parts, trainer
else:
    gpflow = ModuleWhenUsed("gpflow")
    tf = ModuleWhenUsed("tensorflow")
    likelihoods = ModuleWhenUsed("gpflow_pep.likelihoods")
    models = ModuleWhenUsed("gpflow_pep.models")
    factors = ModuleWhenUsed("gpflow_pep.engine.factors")
    entries = ModuleWhenUsed("gpflow_pep.engine.factors.entries")
    context_rows = ModuleWhenUsed("gpflow_pep.engine.predictions.context_rows")
    prior = ModuleWhenUsed("gpflow_pep.engine.prior")
    mixing = ModuleWhenUsed("gpflow_pep.engine.prior.mixing")
    posteriors = ModuleWhenUsed("gpflow_pep.engine.sites.posterior")
    starts = ModuleWhenUsed("gpflow_pep.training.starts")
    alphas = ModuleWhenUsed("gpflow_pep.training.choosing.alphas")
    ensemble = ModuleWhenUsed("gpflow_pep.training.choosing.ensemble")
    near = ModuleWhenUsed("gpflow_pep.training.choosing.near")
    objectives = ModuleWhenUsed("gpflow_pep.training.fitting.objectives")
    describing = ModuleWhenUsed("gpflow_pep.estimators.single.describing")
    left_out_labels = ModuleWhenUsed("gpflow_pep.estimators.single.left_out_labels")
    numpy_parts = ModuleWhenUsed("gpflow_pep.estimators.single.numpy_parts")
    parts = ModuleWhenUsed("gpflow_pep.estimators.single.parts")
    trainer = ModuleWhenUsed("gpflow_pep.estimators.single.trainer")

__all__ = [
    "alphas",
    "context_rows",
    "describing",
    "ensemble",
    "entries",
    "factors",
    "gpflow",
    "left_out_labels",
    "likelihoods",
    "load_tensorflow",
    "mixing",
    "models",
    "near",
    "numpy_parts",
    "objectives",
    "parts",
    "posteriors",
    "prior",
    "starts",
    "tf",
    "trainer",
]


def load_tensorflow() -> None:
    """Import all of them now: before a time limit begins, so that training has the
    whole of it.
    """
    _ = trainer.Trainer, numpy_parts.numpy_components
