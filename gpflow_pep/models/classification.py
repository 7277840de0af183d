"""Sparse GP classification by Power EP: PEP with labels checked."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax
from gpflow.models.util import InducingVariablesLike

from ..likelihoods import NoisyLabelBernoulli
from .pep import PEP

_LIKELIHOODS = (Bernoulli, NoisyLabelBernoulli, MultiClass, Softmax)


class PEPClassification(PEP):
    r"""
    Sparse GP classification, binary or of several classes, by Power Expectation Propagation.

    It is :class:`~gpflow_pep.models.PEP` whose labels may be of an integer type, and whose
    likelihood may be left to it: ``gpflow.likelihoods.Bernoulli()``, with the probit link, for
    labels 0 and 1, and ``gpflow.likelihoods.MultiClass(C)``, with RobustMax, for labels
    :math:`0 \dots C - 1`, each of them in at least one row.

    :param data: X [N, D] and labels Y [N, 1], whole numbers from 0.
    :param kernel: See :class:`~gpflow_pep.models.PEP`; with several classes, one kernel is shared
        by all latent functions.
    :param likelihood: A likelihood of classes, or None: the one for the labels.
    :param inducing_variable: See :class:`~gpflow_pep.models.PEP`.
    :param options: All other arguments of :class:`~gpflow_pep.models.PEP`.
    :raises ValueError: If an argument is not as said here.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood | None,
        inducing_variable: InducingVariablesLike,
        **options: Any,
    ) -> None:
        data = _labels_to_float(data)
        if likelihood is None:
            likelihood = _likelihood_for(data)
        elif not isinstance(likelihood, _LIKELIHOODS):
            raise ValueError(
                f"likelihood: got {type(likelihood).__name__}, expected"
                f" {', '.join(one.__name__ for one in _LIKELIHOODS)} or None. Pass None to have it"
                " chosen, or use gpflow_pep.models.PEP, which takes any likelihood."
            )
        super().__init__(data, kernel, likelihood, inducing_variable, **options)


def _labels_to_float(data: Any) -> Any:
    """Labels of an integer type or bool as GPflow's default float; the model checks all else."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return data
    X, Y = data
    if isinstance(Y, (tf.Tensor, tf.Variable)):
        whole = Y.dtype.is_integer or Y.dtype.is_bool
        return (X, tf.cast(Y, default_float())) if whole else data
    labels: AnyNDArray = np.asarray(Y)
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            f"Y: got labels of type {labels.dtype}, expected whole numbers from 0. Encode them, for"
            " instance with numpy.unique(Y, return_inverse=True)."
        )
    return (X, labels.astype(default_float())) if labels.dtype.kind in "biu" else data


def _likelihood_for(data: Any) -> Likelihood:
    labels = np.unique(np.asarray(data[1]))
    classes = np.arange(len(labels))
    if len(labels) < 2 or not np.array_equal(labels, classes):
        raise ValueError(
            f"Y: got the labels {', '.join(f'{label:g}' for label in labels[:10])}, expected 0 to"
            " C - 1, each in some row, for two or more classes. Recode them, for instance with"
            " numpy.unique(Y, return_inverse=True), or pass the likelihood."
        )
    return Bernoulli() if len(labels) == 2 else MultiClass(len(labels))
