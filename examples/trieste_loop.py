"""Bayesian optimisation by trieste 4.6.1, whose model is a PEPRegression.

    python -m examples trieste_loop

trieste needs TensorFlow 2.18 or earlier, and so an environment of its own:

    python -m venv bayesian && bayesian/bin/pip install . trieste==4.6.1

Minimises the Branin function, scaled to [0, 1] x [0, 1], whose smallest value is -1.0474.
"""

import gpflow
import tensorflow as tf
import trieste
from trieste.models.gpflow import SparseGaussianProcessRegression
from trieste.objectives import ScaledBranin

import gpflow_pep as pep


def main() -> None:
    tf.random.set_seed(0)
    observer = trieste.objectives.utils.mk_observer(ScaledBranin.objective)
    space = ScaledBranin.search_space
    data = observer(space.sample_halton(8, seed=0))
    kernel = gpflow.kernels.Matern52(lengthscales=[0.3, 0.3])
    Z = space.sample_halton(100, seed=1).numpy()
    model = pep.models.PEPRegression(data.astuple(), kernel, Z, alpha=0.5, noise_variance=1e-4)
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(model.inducing_variable, False)
    optimizer = trieste.bayesian_optimizer.BayesianOptimizer(observer, space)
    result = optimizer.optimize(16, data, SparseGaussianProcessRegression(model))
    found = result.try_get_final_dataset().observations.numpy()[:, 0]
    print("evaluations  smallest value so far")
    for count in range(8, len(found) + 1, 4):
        print(f"{count:11}  {found[:count].min():.4f}")
