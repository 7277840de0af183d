"""
Rows that come in batches
=========================

Rows arrive, are learnt from, and cannot be kept.
:meth:`remember <gpflow_pep.models.PEPRegression.remember>` puts their information into
M² numbers; the next model takes these as ``memory``, and goes on.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_pep as pep

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0.0, 9.0, (300, 1)), axis=0)
Y = np.sin(2.0 * X) + 0.2 * rng.standard_normal(X.shape)

# %%
# Three batches, in the order of x, which is the hardest: nothing of what was seen comes again.
# After each there are seven more inducing points, chosen among the old ones and the new rows, and
# the hyperparameters are trained on top of the memory. Only ``memory`` and ``Z`` go from one to the
# next.

kernel = gpflow.kernels.SquaredExponential()
memory = None
Z = np.zeros((0, 1))
after = []
x = np.linspace(-0.5, 9.5, 200)[:, None]
for k in range(3):
    rows = slice(100 * k, 100 * (k + 1))
    candidates = np.concatenate([Z, X[rows]])
    points = pep.training.starts.greedy_variance(candidates, 7 * (k + 1), kernel=kernel)
    model = pep.models.PEPRegression(
        (X[rows], Y[rows]), kernel, points, alpha=0.5, memory=memory
    )
    pep.training.maximise(model, tolerance=1e-4, window=10, progress=False)
    memory = model.remember()
    Z = model.inducing_variable.Z.numpy()
    after.append((rows, Z, *(np.ravel(part) for part in model.predict_f(x))))
    error = np.abs(model.predict_f(X[: rows.stop])[0] - np.sin(2.0 * X[: rows.stop]))
    print(
        f"after batch {k + 1}: mean error over all inputs so far {np.mean(error):.4f}"
    )

# %%
# A model of all 300 rows at once, for comparison:

together = pep.models.PEPRegression(
    (X, Y), gpflow.kernels.SquaredExponential(), Z.copy(), alpha=0.5
)
pep.training.maximise(together, tolerance=1e-4, window=10, progress=False)
error = np.mean(np.abs(together.predict_f(X)[0] - np.sin(2.0 * X)))
print(f"all rows at once: {error:.4f}")

# %%
figure, axes = plt.subplots(3, 1, figsize=(7, 6), sharex=True, layout="constrained")
for k, (ax, (rows, Z, mean, variance)) in enumerate(zip(axes, after)):
    band = 1.645 * np.sqrt(variance)
    ax.plot(X[: rows.start], Y[: rows.start], ".", color="0.85", label="forgotten")
    ax.plot(X[rows], Y[rows], ".", color="0.4", label="this batch")
    ax.fill_between(x[:, 0], mean - band, mean + band, alpha=0.3)
    ax.plot(x, mean, color="C0")
    ax.plot(Z, np.full(len(Z), -1.9), "|", color="C3", markersize=12)
    ax.set(ylabel="y", title=f"after batch {k + 1}", ylim=(-2.1, 2.1))
axes[1].legend(loc="upper right")
axes[-1].set_xlabel("x")

# %%
# Pale rows are gone, and the function is where it was. At ``alpha=1`` do not train the inducing
# points of batches: see :doc:`/streaming` for why, what is lost and what is frozen, and for the two
# other ways to go on, which keep the rows or filter them.
