"""
Two classes
===========

Labels 0 and 1, a decision boundary that no line makes, and how sure the model is of it.
"""

# %%
# The data: two half moons that overlap.

from itertools import pairwise

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import gpflow_pep as pep

X, labels = make_moons(400, noise=0.35, random_state=0)
X_train = X[:300]
labels_train = labels[:300, None]
X_test = X[300:]
labels_test = labels[300:, None]

# %%
# :class:`PEPClassification <gpflow_pep.models.PEPClassification>` checks the labels and takes
# GPflow's ``Bernoulli()`` for two of them, because the likelihood is ``None``. There are no
# variational parameters to train: each row has a *site*, and an inner loop brings all of them to
# the fixed point of Power EP whenever something is computed.

model = pep.models.PEPClassification(
    (X_train, labels_train),
    gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
    None,
    pep.training.starts.kmeans(X_train, 20, seed=0),
    alpha=0.5,
)
record = pep.training.maximise(model, tolerance=1e-4, window=10, progress=False)
print(f"log Z {record.objective:.2f} after {record.iterations} steps: {record.message}")

# %%
# How the last run of the inner loop went: the number of sweeps over the rows, how far the sites are
# from their fixed point, and whether that is within the tolerance.

model.update_sites()
info = model.last_inference
print(
    f"{info.num_sweeps} sweeps, residual {info.residual:.1e}, converged:"
    f" {bool(info.converged)}"
)

# %%
# The probability of label 1 is the mean of ``predict_y``. ``predict_log_density`` scores it, and
# ``loo_log_density`` scores each training row by all others, without training anything again.

probability, _ = model.predict_y(X_test)
error = np.mean((probability.numpy() > 0.5) != labels_test)
density = np.mean(model.predict_log_density((X_test, labels_test.astype(float))))
print(f"test error {error:.3f}, mean log density {density:.3f}")
print(
    f"leave-one-out, from training rows alone: {np.mean(model.loo_log_density()):.3f}"
)

# %%
# Where the model is sure
# -----------------------

side = np.linspace(-2.0, 3.0, 60)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
probability, _ = model.predict_y(grid)
figure, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
levels = np.linspace(0.0, 1.0, 11)
filled = ax.contourf(
    side, side, probability.numpy().reshape(60, 60), levels, cmap="RdBu_r", alpha=0.6
)
ax.contour(side, side, probability.numpy().reshape(60, 60), [0.5], colors="black")
for label, colour in ((0, "#1f5a99"), (1, "#c8442e")):
    rows = X_train[labels_train[:, 0] == label]
    ax.plot(
        rows[:, 0], rows[:, 1], ".", color=colour, markersize=5, label=f"label {label}"
    )
Z = model.inducing_variable.Z.numpy()
ax.plot(Z[:, 0], Z[:, 1], "+", color="black", markersize=9, label="inducing points")
figure.colorbar(filled, label="probability of label 1")
ax.legend(loc="lower right")
ax.set(xlabel="first input", ylabel="second input")

# %%
# Are the probabilities right?
# ----------------------------
#
# Of the rows that were given a probability near 0.8, some 80% should come true.
# :func:`calibration <gpflow_pep.metrics.calibration>` counts in bins.

grid = np.linspace(0.0, 1.0, 6)
given = model.predict_y(X_test)[0].numpy()[:, 0]
for low, high in pairwise(grid):
    rows = (given >= low) & (given <= high)
    print(
        f"given {low:.1f} to {high:.1f}: {rows.sum():3d} rows,"
        f" {labels_test[rows].mean():.2f} are 1"
    )

# %%
# A hundred rows do not show more than that. **Next**: :doc:`plot_03_classes`, and
# :doc:`/likelihoods` for what ``PEP`` does with other likelihoods.
