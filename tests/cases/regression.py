"""The configurations of PEPRegression under test, each with what the reference says about it."""

from typing import Any, NamedTuple

import gpflow
import numpy as np
from helpers import Array, RegressionProblem, regression_problem
from reference import regression as reference

import gpflow_pep as pep

N = 17
UNEVEN_BLOCKS = np.array([4, 0, 0, 1, 4, 2, 2, 2, 0, 4, 3, 0, 2, 2, 0, 4, 4])  # 1 and 3: one row
SPARSE_LABELS = UNEVEN_BLOCKS * 7 + 3
ONE_BLOCK = np.zeros(N, dtype=int)
ALPHA_PER_ROW = np.linspace(0.0, 1.0, N)
ALPHA_PER_BLOCK = np.array([0.0, 1.0, 0.5, 0.3, 1e-6])

CONSTANT = 0.4
SLOPE, OFFSET = np.array([[0.3], [-0.2]]), np.array([0.1])
NOISE_SLOPE, NOISE_OFFSET = np.array([[0.05], [0.03]]), np.array([0.4])


class Case(NamedTuple):
    """One configuration of the model; each field's first value is the plainest."""

    alpha: Any = 0.5
    blocks: Any | None = None
    num_outputs: int = 1
    noise: str = "constant"  # or scale, variance: that Gaussian parameter is linear in the inputs
    mean: str = "zero"  # or constant, linear
    bound: str = "standard"  # or tight

    @property
    def problem(self) -> RegressionProblem:
        return regression_problem(num_data=N, num_outputs=self.num_outputs)

    def noise_at(self, X: Array) -> Array:
        linear = (X @ NOISE_SLOPE + NOISE_OFFSET)[:, 0]
        return {
            "constant": np.full(len(X), self.problem.noise_variance),
            "scale": linear**2,
            "variance": linear,
        }[self.noise]

    def mean_at(self, X: Array) -> Array:
        return {
            "zero": np.zeros([len(X), 1]),
            "constant": np.full([len(X), 1], CONSTANT),
            "linear": X @ SLOPE + OFFSET,
        }[self.mean]

    def model(self, **arguments: Any) -> "pep.models.PEPRegression":
        problem = self.problem
        noise_function = gpflow.functions.Linear(NOISE_SLOPE, NOISE_OFFSET)
        likelihood = {
            "constant": lambda: gpflow.likelihoods.Gaussian(problem.noise_variance),
            "scale": lambda: gpflow.likelihoods.Gaussian(scale=noise_function),
            "variance": lambda: gpflow.likelihoods.Gaussian(variance=noise_function),
        }[self.noise]()
        mean_function = {
            "zero": lambda: None,
            "constant": lambda: gpflow.functions.Constant(CONSTANT),
            "linear": lambda: gpflow.functions.Linear(SLOPE, OFFSET),
        }[self.mean]()
        return pep.models.PEPRegression(
            problem.data,
            problem.kernel(),
            problem.Z,
            alpha=self.alpha,
            blocks=self.blocks,
            likelihood=likelihood,
            mean_function=mean_function,
            bound=self.bound,
            **arguments,
        )

    def reference_arguments(self) -> tuple[reference.Prior, Array, Array, reference.Factors]:
        problem = self.problem
        return (
            problem.prior(),
            problem.Y - self.mean_at(problem.X),
            self.noise_at(problem.X),
            reference.make_factors(N, self.alpha, self.blocks, self.bound),
        )

    def expected_prediction(self) -> tuple[Array, Array]:
        """Mean [S, P] with the mean function, covariance [S, S]."""
        problem = self.problem
        mean, cov = reference.pep_predict(
            *self.reference_arguments(),
            problem.covariance(problem.Z, problem.Xnew),
            problem.covariance(problem.Xnew, problem.Xnew),
        )
        return mean + self.mean_at(problem.Xnew), cov


STANDARD = {
    "alpha 0": Case(alpha=0.0),
    "alpha 1e-6": Case(alpha=1e-6),
    "alpha 0.3": Case(alpha=0.3),
    "alpha 0.5": Case(alpha=0.5),
    "alpha 1": Case(alpha=1.0),
    "alpha per row": Case(alpha=ALPHA_PER_ROW),
    "uneven blocks, alpha 0": Case(alpha=0.0, blocks=UNEVEN_BLOCKS),
    "uneven blocks, alpha 0.5": Case(alpha=0.5, blocks=UNEVEN_BLOCKS),
    "uneven blocks, alpha 1": Case(alpha=1.0, blocks=UNEVEN_BLOCKS),
    "blocks with gaps in the labels": Case(alpha=0.5, blocks=SPARSE_LABELS),
    "one block": Case(alpha=0.3, blocks=ONE_BLOCK),
    "blocks of one row": Case(alpha=0.3, blocks=np.arange(N)[::-1]),
    "alpha per block": Case(alpha=ALPHA_PER_BLOCK, blocks=UNEVEN_BLOCKS),
    "noise scale": Case(noise="scale"),
    "noise variance": Case(noise="variance"),
    "noise scale, alpha per block": Case(
        noise="scale", alpha=ALPHA_PER_BLOCK, blocks=UNEVEN_BLOCKS
    ),
    "noise scale, alpha 0": Case(noise="scale", alpha=0.0),
    "three outputs": Case(num_outputs=3),
    "three outputs, alpha per block": Case(
        num_outputs=3, alpha=ALPHA_PER_BLOCK, blocks=UNEVEN_BLOCKS
    ),
    "constant mean": Case(mean="constant"),
    "linear mean": Case(mean="linear"),
    "everything": Case(
        alpha=ALPHA_PER_BLOCK, blocks=UNEVEN_BLOCKS, num_outputs=2, noise="scale", mean="linear"
    ),
}
TIGHT = (
    "alpha 0",
    "alpha 1e-6",
    "alpha 0.3",
    "alpha 1",
    "alpha per row",
    "one block",
    "everything",
)
CASES = {
    **STANDARD,
    **{f"scaled, {name}": STANDARD[name]._replace(bound="tight") for name in TIGHT},
    **{
        f"scaled, blocks, alpha {alpha:g}": Case(alpha=alpha, blocks=UNEVEN_BLOCKS, bound="tight")
        for alpha in (0.0, 0.5, 1.0)
    },
    "scaled, noise variance": Case(
        bound="tight", alpha=ALPHA_PER_ROW, noise="variance", num_outputs=3
    ),
}
