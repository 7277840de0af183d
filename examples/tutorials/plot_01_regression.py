"""
Regression, and what alpha does
===============================

Two hundred noisy values of a function, seven inducing points, and the power ``alpha``
that decides which approximation is trained: 0 is the variational bound of ``SGPR``, 1
is FITC (``GPRFITC``), and 0.5 is between the two.
"""

# %%
# The data
# --------
#
# A sine whose frequency grows, and noise of standard deviation 0.2.

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_pep as pep

rng = np.random.default_rng(0)


def truth(x):
    return np.sin(0.6 * x**1.5)


X = rng.uniform(0.0, 6.0, (200, 1))
Y = truth(X) + 0.2 * rng.standard_normal(X.shape)
X_test = np.linspace(0.0, 6.0, 200)[:, None]
Y_test = truth(X_test) + 0.2 * rng.standard_normal(X_test.shape)

# %%
# One model
# ---------
#
# The constructor is that of ``gpflow.models.SGPR`` with ``alpha`` added. Inducing
# points start at centres of clusters; :func:`maximise <gpflow_pep.training.maximise>`
# trains everything that is trainable, which here is the kernel, the noise variance and
# the inducing points, and prints how it went.

kernel = gpflow.kernels.SquaredExponential()
points = pep.training.starts.kmeans(X, 7, seed=0)
model = pep.models.PEPRegression((X, Y), kernel, points, alpha=0.5, noise_variance=0.1)
record = pep.training.maximise(model, progress=False)
print(f"log Z {record.objective:.2f} after {record.iterations} steps: {record.message}")

# %%
# GPflow's own ``gpflow.optimizers.Scipy().minimize(model.training_loss,
# model.trainable_variables)`` does too. Predictions are GPflow's: ``predict_f`` of the function,
# ``predict_y`` of new values with their noise.

mean, variance = model.predict_y(X_test)
inside = np.abs(Y_test - mean) < 1.645 * np.sqrt(variance)
print(f"inside the 90% interval: {np.mean(inside):.1%}")
print(f"noise standard deviation: {np.sqrt(model.likelihood.variance.numpy()):.3f}")

# %%
# Three powers
# ------------
#
# The same start, three values of ``alpha``, beside exact Gaussian process regression.
# Only at 0 is log Z a lower bound of exact regression's, so larger values of log Z are
# no sign of which power is better; held-out rows do. The score is the mean log density
# of the test values: higher is better.

exact = gpflow.models.GPR(
    (X, Y), gpflow.kernels.SquaredExponential(), noise_variance=0.1
)
pep.training.maximise(exact, progress=False)
models = {"exact": exact}
for alpha in (0.0, 0.5, 1.0):
    points = pep.training.starts.kmeans(X, 7, seed=0)
    kernel = gpflow.kernels.SquaredExponential()
    models[f"alpha {alpha}"] = pep.models.PEPRegression(
        (X, Y), kernel, points, alpha=alpha, noise_variance=0.1
    )
    pep.training.maximise(
        models[f"alpha {alpha}"], tolerance=1e-4, window=10, progress=False
    )

print("             log Z   noise sd   log density")
for name, one in models.items():
    log_z = float(one.maximum_log_likelihood_objective())
    noise = np.sqrt(one.likelihood.variance.numpy())
    score = np.mean(one.predict_log_density((X_test, Y_test)))
    print(f"{name:10} {log_z:7.2f}    {noise:.4f}       {score:.4f}")

# %%
# At 1 the noise variance is learnt too small, and held-out rows pay for it: variance that inducing
# points leave over passes for noise there, which is how FITC explains noise away. At 0 it is a
# little too large. Power EP between the two is closest to exact regression.
#
# What they look like
# -------------------

figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
for ax, (name, one) in zip(axes, list(models.items())[1:]):
    mean, variance = (np.ravel(moment) for moment in one.predict_y(X_test))
    band = 1.645 * np.sqrt(variance)
    ax.plot(X, Y, ".", color="0.75", markersize=4)
    ax.fill_between(X_test[:, 0], mean - band, mean + band, alpha=0.25, color="C0")
    ax.plot(X_test, mean, color="C0")
    ax.plot(X_test, truth(X_test), "--", color="black", linewidth=1)
    Z = one.inducing_variable.Z.numpy()
    ax.plot(Z, np.full(len(Z), -1.8), "|", color="C3", markersize=12)
    ax.set(title=name, xlabel="x")
axes[0].set_ylabel("y")

# %%
# Dashed is the truth, the band holds 90% of new values, and the red marks are the inducing points.
#
# **Next**: :doc:`/choosing` shows which power to start from, and :doc:`/estimators` has
# the same model for scikit-learn, with nothing to standardise.
