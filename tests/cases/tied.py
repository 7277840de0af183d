"""A random q, and the three models with it, for the tests of tied sites."""

from typing import Any, NamedTuple

import gpflow
import numpy as np
from helpers import Array
from reference import sites as pep_reference
from reference import tied as tied_reference
from reference.tied import Natural

import gpflow_pep as pep
from cases.pep import CASES, M, N

LIKELIHOODS = ("Gaussian", "probit", "Poisson", "RobustMax")
ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)
NUM_DATA = 37
MODELS = {
    "APEP": pep.models.APEP,
    "ARPEP": pep.models.ARPEP,
    "RPAPEP": pep.models.RPAPEP,
}


class Start(NamedTuple):
    """A q(u) of each latent function."""

    problem: pep_reference.Problem
    q: list[Natural]

    @property
    def q_mu(self) -> Array:
        return np.stack(
            [tied_reference.to_floats(one.moments()[0]) for one in self.q], axis=-1
        )

    @property
    def q_sqrt(self) -> Array:
        covariances = [tied_reference.to_floats(one.moments()[1]) for one in self.q]
        return np.linalg.cholesky(np.stack(covariances))

    def whitened(self) -> tuple[Array, Array]:
        L = np.linalg.cholesky(self.problem.priors[0].Kuu)
        return np.linalg.solve(L, self.q_mu), np.linalg.solve(L, self.q_sqrt)

    def log_z(
        self, model: str, alpha: float, num_data: int = NUM_DATA, rows: Any = None
    ) -> float:
        """The reference's value."""
        rows = range(N) if rows is None else list(rows)
        return tied_reference.log_z(model, self.problem, self.q, alpha, num_data, rows)


def random_start(name: str, seed: int = 0) -> Start:
    """Sites of the precision of a few observations, on a problem of ``pep_cases``."""
    rng = np.random.default_rng(seed)
    problem = CASES[name].reference_problem(np.zeros(N))
    q = []
    for latent in range(CASES[name].num_latent):
        root = rng.standard_normal([M, M])
        T2 = root @ root.T + 0.2 * np.eye(M)
        site = Natural(*map(tied_reference.to_decimals, (rng.standard_normal(M), T2)))
        q.append(tied_reference.prior_of_u(problem, latent).plus(site))
    return Start(problem, q)


def _parts(
    name: str, start: Start, whiten: bool, options: Any
) -> tuple[list[Any], dict[str, Any]]:
    case, (q_mu, q_sqrt) = (
        CASES[name],
        start.whitened() if whiten else (start.q_mu, start.q_sqrt),
    )
    q = {
        "q_mu": q_mu,
        "q_sqrt": q_sqrt,
        "whiten": whiten,
        "mean_function": case.mean_function(),
    }
    parts = [case.problem.kernel(), case.likelihood(), case.problem.Z]
    return parts, {"num_data": NUM_DATA, **q, **options}


def create(
    model: str, name: str, start: Start, *, whiten: bool = True, **options: Any
) -> Any:
    parts, options = _parts(name, start, whiten, options)
    return MODELS[model](*parts, **options)


def svgp(name: str, start: Start, **options: Any) -> gpflow.models.SVGP:
    parts, options = _parts(name, start, True, options)
    return gpflow.models.SVGP(*parts, **options)


def data_of(name: str, rows: Any = slice(None)) -> tuple[Array, Array]:
    return CASES[name].rows(rows)
