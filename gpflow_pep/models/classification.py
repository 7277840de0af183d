"""Sparse GP classification by Power EP: PEP with labels checked."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass
from gpflow.models.util import InducingVariablesLike

from ..engine import checks
from ..engine.factors import traits
from .pep import PEP


class PEPClassification(PEP):
    r"""
    Sparse GP classification, binary or of several classes, by Power Expectation Propagation::

        kernel = gpflow.kernels.RBF()
        model = pep.PEPClassification((X, labels), kernel, None, X[:20], alpha=0.5)
        pep.training.maximise(model)
        probability, _ = model.predict_y(X_new)

    It is :class:`~gpflow_pep.models.PEP` whose labels may be of an integer type, and whose
    likelihood may be left to it: ``gpflow.likelihoods.Bernoulli()``, with the probit link, for
    labels 0 and 1, and ``gpflow.likelihoods.MultiClass(C)``, with RobustMax, for labels
    :math:`0 \dots C - 1`, each of them in at least one row.

    :param data: X [N, D] and labels Y [N, 1], whole numbers from 0; [N, P] of mixed outputs.
    :param kernel: See :class:`~gpflow_pep.models.PEP`; with several classes, one kernel is shared
        by all latent functions.
    :param likelihood: A likelihood of classes, or None: the one for the labels.
    :param inducing_variable: See :class:`~gpflow_pep.models.PEP`.
    :param options: All other arguments of :class:`~gpflow_pep.models.PEP`.
    :raises ValueError: If labels are no whole numbers from 0, or the likelihood is none of classes.

    .. seealso:: :class:`~gpflow_pep.estimators.PEPClassifier` for tables and labels of any type,
        :class:`ARPEP` for minibatches, :doc:`/likelihoods`, and :ref:`imbalanced`.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood | None,
        inducing_variable: InducingVariablesLike,
        **options: Any,
    ) -> None:
        data = self._check_data(data, kernel)
        if likelihood is None:
            likelihood = _likelihood_for(data)
        elif traits(likelihood).num_classes is None:
            raise checks.refusal(
                "likelihood",
                type(likelihood).__name__,
                "one of classes, such as Bernoulli, MultiClass or Softmax, or None",
                "Pass None to have it chosen, or use gpflow_pep.models.PEP, which takes any"
                " likelihood.",
            )
        super().__init__(data, kernel, likelihood, inducing_variable, **options)

    def _check_data(self, data: Any, kernel: Kernel | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        labels = data[1] if isinstance(data, (tuple, list)) and len(data) == 2 else 0.0
        if not tf.is_tensor(labels) and np.asarray(labels).dtype.kind not in "biuf":
            raise checks.refusal(
                "Y",
                f"labels of type {np.asarray(labels).dtype}",
                "whole numbers from 0",
                "Encode them, for instance with numpy.unique(Y, return_inverse=True).",
            )
        return super()._check_data(data, kernel)


def _likelihood_for(data: Any) -> Likelihood:
    labels = np.unique(np.asarray(data[1]))
    labels = labels[~np.isnan(labels)]  # which are missing, of mixed outputs
    classes = np.arange(len(labels))
    if len(labels) < 2 or not np.array_equal(labels, classes):
        raise checks.refusal(
            "Y",
            f"the labels {', '.join(f'{label:g}' for label in labels[:10])}",
            "0 to C - 1, each in some row, for two or more classes",
            "Recode them, for instance with numpy.unique(Y, return_inverse=True), or pass the"
            " likelihood.",
        )
    return Bernoulli() if len(labels) == 2 else MultiClass(len(labels))
