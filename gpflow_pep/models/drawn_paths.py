"""Functions drawn from the posterior, as a method of all models."""

from typing import Any

from ..paths import Paths
from ..paths.functions import PathSource
from ..paths.near_rows import NearRowsOfModel
from ..predictions.context_rows import Context


def draw_paths(self: Any, num_paths: int, num_features: int = 1024, seed: int = 0) -> Paths:
    """
    Draw functions from the posterior of f, to be evaluated anywhere: see :doc:`/paths`.

    What they know at new rows is what :meth:`predict_f` does where it is not asked for more: u, and
    in a model with neighbours the near training rows.

    :param num_paths: S, how many.
    :param num_features: The random frequencies of each path, latent function and term of the
        kernel. Means and covariances are right for any number; with more, values at several
        inputs are nearer to Gaussian together.
    :param seed: The same seed gives the same paths.
    :raises ValueError: If functions of the kernel or the inducing variables are not known.
    """

    def state() -> PathSource:
        near_rows = None
        if getattr(self, "neighbours", 0):
            context = Context(*self.posterior().cache)
            near_rows = NearRowsOfModel(context, min(self.neighbours, context.X.shape[0]))
        return PathSource(self._parts, self._posterior_of_v(), near_rows)

    return Paths(state, num_paths, num_features, seed)
