"""A pipeline of scikit-learn that can also draw from its predictions."""

from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from ..engine.refusals.arrays import AnyNDArray


def _draws(pipeline: Pipeline) -> bool:
    """Check that the last step can draw. If it cannot, the error has its name."""
    return bool(pipeline.steps[-1][1].sample_y)


class DrawingPipeline(Pipeline):
    """A pipeline of scikit-learn whose last step can draw y jointly at rows, such as
    :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`::

        draws = model.sample_y(table, n_samples=1000, random_state=0)  # [N, 1000]
        low, high = np.quantile(draws.sum(axis=0), [0.05, 0.95])  # of the total

    :func:`~gpflow_pep.compare.run.compare` returns its model as such a pipeline.
    """

    @available_if(_draws)
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """Apply the steps before the regressor to rows, and draw y jointly at them.

        :param X: Rows for the first step, [N, D], for instance a table.
        :param n_samples: The number of draws.
        :param random_state: A seed or generator.
        :return: The draws, [N, n_samples], or [N, P, n_samples] if y had several
            columns.
        :raises AttributeError: If the last step cannot draw.
        """
        inputs = self[:-1].transform(X)
        return self.steps[-1][1].sample_y(inputs, n_samples, random_state)
