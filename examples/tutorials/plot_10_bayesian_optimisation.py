"""
Bayesian optimisation
=====================

Find the minimum of a function that is dear to evaluate: model what is known, and
evaluate next where the model expects the largest improvement. First the loop itself, in
twenty lines, and then trieste, which has all of it and takes these models as they are.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import gpflow_pep as pep

# %%
# Branin's function on the unit square, scaled as in trieste; its smallest value is -1.0474, in
# three places.


def branin(X):
    x = 15.0 * X[:, :1] - 5.0
    y = 15.0 * X[:, 1:]
    value = (y - 5.1 * x**2 / (4.0 * np.pi**2) + 5.0 * x / np.pi - 6.0) ** 2
    return (value + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(x) - 44.81) / 51.95


# %%
# The loop
# --------
#
# Evaluations are exact, so the noise is small and fixed. With fewer than a hundred of
# them every row can be an inducing point, and all powers are exact regression; the
# sparse model matters for the thousands of rows of long runs, where this loop stays as
# it is. The kernel learns at every fifth step.

rng = np.random.default_rng(0)
candidates = rng.uniform(size=(2000, 2))
X = rng.uniform(size=(8, 2))
Y = branin(X)
kernel = gpflow.kernels.Matern52(lengthscales=[0.3, 0.3])
for step in range(20):
    best = Y.min()
    model = pep.models.PEPRegression(
        (X, Y), kernel, X.copy(), alpha=0.5, noise_variance=1e-4
    )
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(model.inducing_variable, False)
    if step % 5 == 0:
        pep.training.maximise(model, max_iterations=30, progress=False)
        print(f"{len(X)} evaluations: smallest value {best:.4f}")
    mean, variance = (part.numpy() for part in model.predict_f(candidates))
    sd = np.sqrt(variance)
    z = (best - mean) / sd
    improvement = (best - mean) * norm.cdf(z) + sd * norm.pdf(z)
    chosen = candidates[np.argmax(improvement)][None]
    X = np.concatenate([X, chosen])
    Y = np.concatenate([Y, branin(chosen)])
print(f"{len(X)} evaluations: smallest value {Y.min():.4f}")

# %%
# Crosses are the first eight points, dots the twenty that were chosen.

side = np.linspace(0.0, 1.0, 60)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].contourf(side, side, branin(grid).reshape(60, 60), 20, cmap="viridis_r")
axes[0].plot(*X[:8].T, "x", color="white")
axes[0].plot(*X[8:].T, ".", color="#c8442e")
axes[0].set(title="evaluations")
axes[1].plot(np.arange(1, len(Y) + 1), np.minimum.accumulate(Y[:, 0]), "o-")
axes[1].axhline(-1.0474, linestyle="--", color="black", label="minimum")
axes[1].set(xlabel="evaluations", ylabel="smallest value so far")
axes[1].legend()

# %%
# With trieste
# ------------
#
# trieste trains, updates and queries a model by the adapter
# ``PEPModel`` of ``examples/trieste_adapter.py``. Its own ``SparseGaussianProcessRegression``
# takes a ``PEPRegression`` too, where the kernel is a squared exponential or a Matern
# kernel. trieste 4.6.1 needs TensorFlow 2.18 or earlier, which the other pages are not
# built with; ``python -m examples trieste_loop`` and its output are of an environment
# of its own (commit 128a9eb2). Its second part is explained in
# :doc:`plot_17_binary_bayesian_optimisation`.
#
# .. literalinclude:: /../examples/trieste_loop.py
#    :language: python
#    :start-at: def optimise
#    :end-before: def failures_observed
#
# .. literalinclude:: /figures/trieste.txt
#    :language: text
