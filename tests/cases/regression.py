"""The configurations of PEPRegression under test, each with what the reference says
about it.
"""

from typing import Any, NamedTuple

import gpflow
import numpy as np
from helpers import Array, RegressionProblem, regression_problem
from reference import regression as reference

import gpflow_pep as pep

N = 17
# 1 and 3: one row.
UNEVEN_BLOCKS = np.array([4, 0, 0, 1, 4, 2, 2, 2, 0, 4, 3, 0, 2, 2, 0, 4, 4])
SPARSE_LABELS = UNEVEN_BLOCKS * 7 + 3
ONE_BLOCK = np.zeros(N, dtype=int)
ALPHA_PER_ROW = np.linspace(0.0, 1.0, N)
ALPHA_PER_BLOCK = np.array([0.0, 1.0, 0.5, 0.3, 1e-6])
CONSTANT = 0.4
SLOPE = np.array([[0.3], [-0.2]])
OFFSET = np.array([0.1])
NOISE_SLOPE = np.array([[0.05], [0.03]])
NOISE_OFFSET = np.array([0.4])


class Case(NamedTuple):
    """One configuration of the model; each field's first value is the plainest."""

    alpha: Any = 0.5
    blocks: Any | None = None
    num_outputs: int = 1
    # or scale, variance: that Gaussian parameter is linear in the inputs
    noise: str = "constant"
    mean: str = "zero"  # or constant, linear

    @property
    def problem(self) -> RegressionProblem:
        return regression_problem(num_data=N, num_outputs=self.num_outputs)

    def noise_at(self, X: Array) -> Array:
        if self.noise == "constant":
            return np.full(len(X), self.problem.noise_variance)
        linear = (X @ NOISE_SLOPE + NOISE_OFFSET)[:, 0]
        return linear**2 if self.noise == "scale" else linear

    def mean_at(self, X: Array) -> Array:
        linear = X @ SLOPE + OFFSET
        return {"zero": 0.0, "constant": CONSTANT, "linear": linear}[
            self.mean
        ] + 0.0 * linear

    def model(self, **arguments: Any) -> "pep.models.PEPRegression":
        problem = self.problem
        linear = gpflow.functions.Linear(NOISE_SLOPE, NOISE_OFFSET)
        is_constant = self.noise == "constant"
        noise = (
            {"variance": problem.noise_variance}
            if is_constant
            else {self.noise: linear}
        )
        options = {
            "alpha": self.alpha,
            "blocks": self.blocks,
            "likelihood": gpflow.likelihoods.Gaussian(**noise),
            "mean_function": {
                "zero": None,
                "constant": gpflow.functions.Constant(CONSTANT),
                "linear": gpflow.functions.Linear(SLOPE, OFFSET),
            }[self.mean],
        }
        parts = problem.data, problem.kernel(), problem.Z
        return pep.models.PEPRegression(*parts, **options, **arguments)

    def reference_arguments(
        self,
    ) -> tuple[reference.Prior, Array, Array, reference.Factors]:
        problem = self.problem
        factors = reference.make_factors(N, self.alpha, self.blocks)
        R = problem.Y - self.mean_at(problem.X)
        return problem.prior(), R, self.noise_at(problem.X), factors

    def expected_prediction(self) -> tuple[Array, Array]:
        """Mean [S, P] with the mean function, covariance [S, S]."""
        problem = self.problem
        covariances = (
            problem.covariance(A, problem.Xnew) for A in (problem.Z, problem.Xnew)
        )
        mean, cov = reference.pep_predict(*self.reference_arguments(), *covariances)
        return mean + self.mean_at(problem.Xnew), cov


IN_BLOCKS = Case(alpha=ALPHA_PER_BLOCK, blocks=UNEVEN_BLOCKS)
CASES = {
    **{f"alpha {alpha:g}": Case(alpha=alpha) for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0)},
    "alpha per row": Case(alpha=ALPHA_PER_ROW),
    **{
        f"uneven blocks, alpha {alpha:g}": Case(alpha=alpha, blocks=UNEVEN_BLOCKS)
        for alpha in (0.0, 0.5, 1.0)
    },
    "blocks with gaps in the labels": Case(alpha=0.5, blocks=SPARSE_LABELS),
    "one block": Case(alpha=0.3, blocks=ONE_BLOCK),
    "blocks of one row": Case(alpha=0.3, blocks=np.arange(N)[::-1]),
    "alpha per block": IN_BLOCKS,
    "noise scale": Case(noise="scale"),
    "noise variance": Case(noise="variance"),
    "noise scale, alpha per block": IN_BLOCKS._replace(noise="scale"),
    "noise scale, alpha 0": Case(noise="scale", alpha=0.0),
    "three outputs": Case(num_outputs=3),
    "three outputs, alpha per block": IN_BLOCKS._replace(num_outputs=3),
    "constant mean": Case(mean="constant"),
    "linear mean": Case(mean="linear"),
    "everything": IN_BLOCKS._replace(num_outputs=2, noise="scale", mean="linear"),
}
