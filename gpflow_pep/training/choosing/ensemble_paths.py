"""Functions drawn from ensembles of models."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData

from ...engine import checks
from ...engine.prior.evaluate import unconverted
from ...models.base import PowerEPModel


class EnsemblePaths(tf.Module):
    """Functions drawn from an ensemble of models: first the component, then a function of it.

    They are used as :class:`~gpflow_pep.engine.paths.Paths` are. So that a compiled call goes on
    after :meth:`resample`, each component has functions for all paths: a call takes as long as
    calls of all components.

    :param ensemble: An :class:`~gpflow_pep.training.Ensemble`.
    """

    def __init__(self, ensemble: Any, num_paths: int, num_features: int, seed: int) -> None:
        super().__init__()
        others = [model for model in ensemble.models if not isinstance(model, PowerEPModel)]
        if others:
            raise checks.refusal(
                "models",
                f"a component of type {type(others[0]).__name__}",
                "models of gpflow_pep: of others no functions are drawn",
                "Use predict_f_samples, or mix models of gpflow_pep.",
            )
        if any(ensemble.near):
            remedy = "Leave near rows out: of an estimator, by near_rows=0 before it is trained."
            got, expected = "components that use near rows", "components that do not"
            raise checks.refusal("models", got, expected, remedy)
        self.num_paths = checks.check_positive("num_paths", num_paths)
        self._seed = checks.check_seed(seed)
        self._weights: Callable[[], Any] = ensemble.weights.numpy
        component, seeds = self._drawn()
        self.component = tf.Variable(component, trainable=False)
        """[S], the number of the component of each path."""
        self._paths = [
            model.paths(self.num_paths, num_features, part)
            for model, part in zip(ensemble.models, seeds, strict=True)
        ]

    def _drawn(self) -> tuple[Any, list[int]]:
        """Draw the components, [S], and a seed for the functions of each."""
        weights = self._weights()
        first, *seeds = np.random.SeedSequence(self._seed).generate_state(len(weights) + 1)
        component = np.random.default_rng(first).choice(len(weights), self.num_paths, p=weights)
        return component, [int(seed) for seed in seeds]

    def resample(self, seed: int) -> None:
        """Draw other components and paths in place, see
        :meth:`gpflow_pep.engine.paths.Paths.resample`."""
        self._seed = checks.check_seed(seed)
        component, seeds = self._drawn()
        self.component.assign(component)
        for paths, part in zip(self._paths, seeds, strict=True):
            paths.resample(part)

    def update(self) -> None:
        """Draw them from the models as they are now, see
        :meth:`gpflow_pep.engine.paths.Paths.update`."""
        self.component.assign(self._drawn()[0])
        for paths in self._paths:
            paths.update()

    @unconverted("Xnew: [N, D]", "return: [S, N, P]")
    def __call__(self, Xnew: InputData) -> tf.Tensor:
        """Evaluate all paths at the same inputs."""
        return self._chosen([paths(Xnew) for paths in self._paths])

    @unconverted("return: [S, N, P]")
    def each(self, Xnew: InputData) -> tf.Tensor:
        """Evaluate each path at inputs of its own."""
        return self._chosen([paths.each(Xnew) for paths in self._paths])

    def _chosen(self, values: list[tf.Tensor]) -> tf.Tensor:
        return tf.gather(tf.stack(values, axis=1), self.component, batch_dims=1)
