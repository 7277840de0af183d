"""
Counts and outliers
===================

Two data sets that Gaussian noise does not fit: whole numbers that cannot be negative,
and measurements of which some are simply wrong. :class:`PEP <gpflow_pep.models.PEP>`
takes GPflow's likelihoods for both.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_pep as pep

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(0.0, 6.0, (150, 1)), axis=0)
X_new = np.linspace(0.0, 6.0, 120)[:, None]

# %%
# Counts
# ------
#
# The rate of a Poisson likelihood is the exponential of the latent function.

rate = np.exp(1.2 * np.sin(1.5 * X) + 0.8)
counts = rng.poisson(rate).astype(float)
model = pep.models.PEP(
    (X, counts),
    gpflow.kernels.SquaredExponential(),
    gpflow.likelihoods.Poisson(),
    inducing_variable=pep.training.starts.kmeans(X, 12, seed=0),
    alpha=0.5,
)
pep.training.maximise(model, tolerance=1e-4, window=10, progress=False)
f_mean, f_variance = (np.ravel(part) for part in model.predict_f(X_new))
y_mean, y_variance = (np.ravel(part) for part in model.predict_y(X_new))
top = np.argmax(y_mean)
print(
    f"largest mean count {y_mean[top]:.2f}, standard deviation"
    f" {np.sqrt(y_variance[top]):.2f}"
)

# %%
# The band is of the rate: quantiles of f go through the exponential. ``predict_y`` has the mean and
# the variance of the counts themselves, which are larger.

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.plot(X, counts, ".", color="0.6", label="counts")
low, middle, high = (
    np.exp(f_mean + z * np.sqrt(f_variance)) for z in (-1.645, 0.0, 1.645)
)
ax.fill_between(X_new[:, 0], low, high, alpha=0.3, label="rate, 90%")
ax.plot(X_new, middle, color="C0")
ax.plot(
    X_new,
    np.exp(1.2 * np.sin(1.5 * X_new) + 0.8),
    "--",
    color="black",
    label="true rate",
)
ax.set(xlabel="x", ylabel="count")
ax.legend()

# %%
# Outliers
# --------
#
# One measurement in ten is anywhere. Gaussian noise has to grow until it covers them;
# Student's t lets them be where they are.

Y = np.sin(1.5 * X) + 0.1 * rng.standard_normal(X.shape)
wrong = rng.random(len(Y)) < 0.1
Y[wrong] += rng.uniform(-4.0, 4.0, (wrong.sum(), 1))
gaussian = pep.models.PEPRegression(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    pep.training.starts.kmeans(X, 12, seed=0),
    alpha=0.5,
)
robust = pep.models.PEP(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    gpflow.likelihoods.StudentT(scale=0.2, df=3.0),
    pep.training.starts.kmeans(X, 12, seed=0),
    alpha=0.5,
)
for each in (gaussian, robust):
    pep.training.maximise(
        each, tolerance=1e-4, window=10, max_iterations=60, progress=False
    )

# %%
# Student's t is not log-concave: sites may have a negative precision, and at large alpha there may
# be no proper fixed point at all. Look at the record, and take a smaller alpha where it does not
# converge (:doc:`/troubleshooting`).

robust.update_sites()
info = robust.last_inference
print(
    f"{info.num_sweeps} sweeps, residual {info.residual:.1e}, converged:"
    f" {bool(info.converged)}"
)
print(
    f"rows with a site of negative precision: {np.sum(robust.sites.tau.numpy() < 0.0)}"
)
truth = np.sin(1.5 * X_new)
for name, each in (("Gaussian", gaussian), ("Student's t", robust)):
    distance = np.sqrt(np.mean((each.predict_f(X_new)[0] - truth) ** 2))
    print(f"{name:12} distance from the true function {distance:.3f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
for ax, name, each in zip(axes, ("Gaussian noise", "Student's t"), (gaussian, robust)):
    mean, variance = (np.ravel(part) for part in each.predict_f(X_new))
    band = 1.645 * np.sqrt(variance)
    ax.plot(X, Y, ".", color="0.6")
    ax.fill_between(X_new[:, 0], mean - band, mean + band, alpha=0.3)
    ax.plot(X_new, mean, color="C0")
    ax.plot(X_new, truth, "--", color="black", linewidth=1)
    ax.set(title=name, xlabel="x")

# %%
# Bands are of the function, and hold it with 90% probability. ``predict_y`` with Student's t needs
# ``df > 2``: below, the variance is infinite. **Next**: :doc:`/likelihoods`, :ref:`tilted`.
