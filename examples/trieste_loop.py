"""Bayesian optimisation by trieste 4.6.1 with models of this package.

    python -m examples trieste_loop

trieste needs TensorFlow 2.18 or earlier, and so an environment of its own:

    python -m venv bayesian && bayesian/bin/pip install . trieste==4.6.1
    bayesian/bin/python -m examples trieste_loop

Minimises the Branin function, scaled to [0, 1] x [0, 1], whose smallest value is
-1.0474. First it is observed as it is, and the next point is that of the largest
expected improvement. Then all that is observed is whether an experiment fails, or how
many defects it has, which is the more likely, or are the more, the larger the function
is, and the next two points minimise two functions that are drawn from the posterior.
"""

import gpflow
import numpy as np
import tensorflow as tf
import trieste
from trieste.acquisition import ParallelContinuousThompsonSampling
from trieste.acquisition.rule import EfficientGlobalOptimization
from trieste.objectives import ScaledBranin

import gpflow_pep as pep
from examples.trieste_adapter import PEPModel

SPACE = ScaledBranin.search_space


def optimise(
    model: "pep.PEPRegression | pep.PEP", observer, rule, data, num_steps: int
):
    """Run the loop; the points that were tried, in order."""
    gpflow.set_trainable(model.inducing_variable, False)
    adapter = PEPModel(model, max_iterations=50)
    optimizer = trieste.bayesian_optimizer.BayesianOptimizer(observer, SPACE)
    result = optimizer.optimize(num_steps, data, adapter, rule, track_state=False)
    return result.try_get_final_dataset().query_points, result.try_get_final_model()


def values_observed(num_steps: int) -> np.ndarray:
    """Expected improvement; the smallest value so far after each evaluation."""
    observer = trieste.objectives.utils.mk_observer(ScaledBranin.objective)
    data = observer(SPACE.sample_halton(8, seed=0))
    kernel = gpflow.kernels.Matern52(lengthscales=[0.3, 0.3])
    Z = SPACE.sample_halton(100, seed=1).numpy()
    model = pep.PEPRegression(data.astuple(), kernel, Z, alpha=0.5, noise_variance=1e-4)
    gpflow.set_trainable(model.likelihood, False)
    points, _ = optimise(
        model, observer, EfficientGlobalOptimization(), data, num_steps
    )
    return np.minimum.accumulate(ScaledBranin.objective(points)[:, 0])


def observed_indirectly(
    observe, likelihood: gpflow.likelihoods.Likelihood, num_steps: int
):
    """Thompson sampling; the function where it is believed to be smallest in the end."""
    observer = trieste.objectives.utils.mk_observer(
        lambda points: observe(ScaledBranin.objective(points).numpy())
    )
    data = observer(SPACE.sample_halton(20, seed=0))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.3, 0.3])
    Z = SPACE.sample_halton(40, seed=1).numpy()
    model = pep.PEP(data.astuple(), kernel, likelihood, Z, alpha=0.5)
    rule = EfficientGlobalOptimization(
        ParallelContinuousThompsonSampling(), num_query_points=2
    )
    _, adapter = optimise(model, observer, rule, data, num_steps)
    grid = SPACE.sample_halton(2000, seed=2)
    smallest = tf.argmin(adapter.predict(grid)[0])[0]
    return ScaledBranin.objective(grid[smallest : smallest + 1])[0].numpy()


def failures_observed(num_steps: int) -> np.ndarray:
    """Whether an experiment fails: the probit of the function."""
    rng = np.random.default_rng(0)

    def fails(values: np.ndarray) -> tf.Tensor:
        return tf.cast(
            values + 0.2 * rng.standard_normal(values.shape) > -0.7, tf.float64
        )

    return observed_indirectly(fails, gpflow.likelihoods.Bernoulli(), num_steps)


def counts_observed(num_steps: int) -> np.ndarray:
    """How many defects an experiment has: a Poisson rate of which the function is the
    logarithm.
    """
    rng = np.random.default_rng(0)

    def defects(values: np.ndarray) -> tf.Tensor:
        return tf.constant(rng.poisson(np.exp(2.0 + values)), tf.float64)

    return observed_indirectly(defects, gpflow.likelihoods.Poisson(), num_steps)


def run(kind: str, num_steps: int) -> float:
    """The last of these numbers."""
    tf.random.set_seed(0)
    kinds = {
        "regression": values_observed,
        "binary": failures_observed,
        "counts": counts_observed,
    }
    return float(kinds[kind](num_steps)[-1])


def main() -> None:
    tf.random.set_seed(0)
    print("evaluations  smallest value so far")
    smallest = values_observed(num_steps=16)
    for count in range(8, len(smallest) + 1, 4):
        print(f"{count:11}  {smallest[count - 1]:.4f}")
    for name, observed in (
        ("failures", failures_observed),
        ("defects", counts_observed),
    ):
        print(
            f"Where {name} are believed to be rarest after 60 experiments the"
            " function is",
            end=" ",
        )
        print(f"{observed(num_steps=20)[-1]:.4f}.")
