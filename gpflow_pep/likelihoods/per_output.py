"""A likelihood for each output."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from tensorflow import Tensor

from ..engine import factors
from ..engine.factors.entries import is_of_one_target
from ..engine.refusals import counted, refusal
from .integrated import IntegratedLikelihood


class PerOutput(IntegratedLikelihood):
    """A likelihood for each output: the p-th one is for column p of Y and of f::

        gpflow_pep.likelihoods.PerOutput([Gaussian(), Bernoulli(), Poisson()])

    If one likelihood occurs several times, its outputs share its parameters.

    :param likelihoods: Likelihoods of one latent function and one target.
    :raises ValueError: If there are no likelihoods, or if one has several latent
        functions or targets.
    """

    def __init__(self, likelihoods: Sequence[ScalarLikelihood]) -> None:
        of_columns = list(likelihoods) if hasattr(likelihoods, "__iter__") else []
        remedy = "Pass a list of likelihoods such as gpflow.likelihoods.Gaussian()."
        if not of_columns:
            raise refusal(
                "likelihoods",
                "none",
                "a list with a likelihood for each output",
                remedy,
            )
        for of_column in of_columns:
            if not is_of_one_target(of_column):
                expected = "likelihoods of one latent function and one target"
                raise refusal("likelihoods", type(of_column).__name__, expected, remedy)
        super().__init__(
            input_dim=None, latent_dim=len(of_columns), observation_dim=len(of_columns)
        )
        self.likelihoods = of_columns

    def _by_column(
        self, function: Callable[..., Any], X: TensorType, *arguments: TensorType
    ) -> Any:
        columns = zip(
            self.likelihoods,
            *(tf.unstack(likelihood, axis=-1) for likelihood in arguments),
        )
        values = [
            function(likelihood, X, *(c[..., None] for c in column))
            for likelihood, *column in columns
        ]
        return tf.nest.map_structure(
            lambda *results: tf.concat(results, axis=-1), *values
        )

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> Tensor:
        def of_column(likelihood: Likelihood, *arguments: TensorType) -> Tensor:
            return likelihood.log_prob(*arguments)[..., None]

        return tf.reduce_sum(self._by_column(of_column, X, F, Y), axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> Tensor:
        return self._by_column(
            lambda likelihood, *args: likelihood.conditional_mean(*args), X, F
        )

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> Tensor:
        return self._by_column(
            lambda likelihood, *args: likelihood.conditional_variance(*args), X, F
        )

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        mean, variance = self._by_column(factors.predict_mean_and_var, X, Fmu, Fvar)
        return mean, variance

    def _integral(
        self, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
    ) -> Tensor:
        def of_column(
            likelihood: Likelihood, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor
        ) -> Tensor:
            return factors.implementation_for(likelihood)(
                likelihood, X, Fmu, Fvar, Y, alpha
            )[..., None]

        return tf.reduce_sum(self._by_column(of_column, X, Fmu, Fvar, Y), axis=-1)

    def _support(self, Y: AnyNDArray) -> factors.Support:
        likelihoods = self.likelihoods
        if Y.shape[1] != len(likelihoods):
            expected = f"{len(likelihoods)}, one for each"
            raise refusal(
                "Y",
                counted(Y.shape[1], "column"),
                expected,
                "Pass a likelihood for each output.",
            )
        rules = [
            factors.support.dispatch_or_raise(type(likelihood))(
                likelihood, Y[:, p : p + 1]
            )
            for p, likelihood in enumerate(likelihoods)
        ]
        inside = np.concatenate([rule.inside for rule in rules], axis=1)
        texts = [f"{rule.expected} in column {p}" for p, rule in enumerate(rules)]
        return factors.Support(inside, ", ".join(texts))

    def _layout(self, num_columns: int) -> factors.Layout:
        return factors.Layout(len(self.likelihoods), len(self.likelihoods))

    def _traits(self) -> factors.Traits:
        every = [factors.traits(of_column) for of_column in self.likelihoods]

        def draw(
            X: AnyNDArray, F: AnyNDArray, random: np.random.Generator
        ) -> AnyNDArray:
            columns = np.moveaxis(np.atleast_3d(F), -1, 0)
            drawn = [
                of_column.draw(X, f, random)
                for of_column, f in zip(every, columns, strict=True)
            ]
            return np.stack(drawn, axis=-1)

        def has_density(Y: AnyNDArray) -> AnyNDArray:
            columns = zip(every, Y.T, strict=True)
            return np.hstack(
                [of_column.has_density(y[:, None]) for of_column, y in columns]
            )

        return factors.Traits(
            of_outputs=self.likelihoods,
            starts_at_high_powers=any(
                of_column.starts_at_high_powers for of_column in every
            ),
            follows_wider_priors=any(
                of_column.follows_wider_priors for of_column in every
            ),
            follows_by_newton=any(of_column.follows_by_newton for of_column in every),
            has_density=has_density,
            draw=None if any(of_column.draw is None for of_column in every) else draw,
        )
