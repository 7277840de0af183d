"""The inverse link of several classes in which a wrong label comes from all of them alike."""

from typing import Any

import numpy as np
from check_shapes import check_shapes
from gpflow.likelihoods import RobustMax

from ..engine.checks import check_real


class UniformRobustMax(RobustMax):
    r"""
    The inverse link of Villacampa-Calvo & Hernández-Lobato (2020), equation 2: a wrong label comes
    from all C classes alike.

    .. math::

       p(y | f) = (1 - \epsilon) \, [f_y \text{ is the largest}] + \epsilon / C

    It is GPflow's :class:`gpflow.likelihoods.RobustMax`, in which a wrong label comes from the
    other classes, at the error rate :math:`\epsilon (C - 1) / C`. Use it as
    ``gpflow.likelihoods.MultiClass(C, invlink=UniformRobustMax(C))``.
    """

    @check_shapes(
        "epsilon: []",
    )
    def __init__(self, num_classes: int, epsilon: float = 1e-3, **kwargs: Any) -> None:
        r"""
        :param num_classes: C, at least 2.
        :param epsilon: The paper's :math:`\epsilon`, in (0, 1).
        :raises ValueError: If one of them is outside its range.
        """
        check_real("num_classes", int(num_classes), "[2, inf)", "One class needs no model.")
        check_real("epsilon", float(np.asarray(epsilon)), "(0, 1)", "It is a rate, often 1e-3.")
        super().__init__(num_classes, epsilon * (num_classes - 1.0) / num_classes, **kwargs)
