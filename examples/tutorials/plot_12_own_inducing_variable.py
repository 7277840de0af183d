"""
Inducing variables and kernels of your own
==========================================

An inducing variable is any linear function of f whose covariances are known. This page
adds two: the *derivative* of f at a point, and the blurred points that come with the
package, and a kernel that is not GPflow's. No model has to be changed for any of them.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from gpflow.base import TensorLike
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import SquaredExponential

import gpflow_pep as pep

# %%
# Values and slopes
# -----------------
#
# For each point z two variables: f(z) and f'(z). The class holds the points and the
# number of variables; two functions, registered with GPflow, give their covariances
# (``Kuu``, which adds the jitter it is called with) and with f at rows (``Kuf``).
# Derive from ``InducingVariables`` and not from ``InducingPoints``, whose rules for all
# kernels would silently be used for yours.


class ValuesAndSlopes(InducingVariables):
    def __init__(self, Z):
        super().__init__()
        self.Z = gpflow.Parameter(Z)

    @property
    def num_inducing(self):
        return 2 * tf.shape(self.Z)[0]

    @property
    def shape(self):
        return 2 * self.Z.shape[0], 1, 1


@Kuu.register(ValuesAndSlopes, SquaredExponential)
def _kuu(u, kernel, *, jitter=0.0):
    K = kernel(u.Z)
    r = (u.Z - tf.transpose(u.Z)) / kernel.lengthscales**2
    curvature = (1.0 / kernel.lengthscales**2 - r**2) * K  # cov(f'(z), f'(z'))
    joint = tf.concat(
        [tf.concat([K, r * K], axis=1), tf.concat([-r * K, curvature], axis=1)], axis=0
    )
    return joint + jitter * tf.eye(u.num_inducing, dtype=joint.dtype)


@Kuf.register(ValuesAndSlopes, SquaredExponential, TensorLike)
def _kuf(u, kernel, X):
    K = kernel(u.Z, X)
    return tf.concat([K, -(u.Z - tf.transpose(X)) / kernel.lengthscales**2 * K], axis=0)


# %%
# Six points each, kernel and noise as they are in the truth, nothing trained. Blurred points are
# averages of f around a place (:doc:`/inducing`).

rng = np.random.default_rng(0)
X = rng.uniform(0.0, 6.0, (150, 1))
Y = np.sin(2.0 * X) + 0.1 * rng.standard_normal(X.shape)
x = np.linspace(0.0, 6.0, 200)[:, None]
Z = np.linspace(0.3, 5.7, 6)[:, None]
kernel = SquaredExponential(lengthscales=0.8)
exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.01)
variables = {
    "6 points": gpflow.inducing_variables.InducingPoints(Z),
    "6 blurred points": pep.inducing_variables.BlurredInducingPoints(
        Z, np.full(6, 0.3**2)
    ),
    "6 values and slopes": ValuesAndSlopes(Z),
    "12 points": gpflow.inducing_variables.InducingPoints(
        np.linspace(0.3, 5.7, 12)[:, None]
    ),
}
means = {}
print(f"exact log marginal likelihood {float(exact.log_marginal_likelihood()):.2f}")
print("                         log Z   distance of the mean from exact regression's")
for name, u in variables.items():
    model = pep.models.PEPRegression((X, Y), kernel, u, alpha=0.0, noise_variance=0.01)
    means[name] = model.predict_f(x)[0].numpy()
    distance = np.sqrt(np.mean((means[name] - exact.predict_f(x)[0]) ** 2))
    print(
        f"{name:20} {float(model.pep_log_marginal_likelihood()):9.2f}   {distance:.4f}"
    )

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.plot(X, Y, ".", color="0.8")
for (name, mean), style in zip(list(means.items())[:3], (":", "-.", "-")):
    ax.plot(x, mean, style, label=name)
ax.plot(x, exact.predict_f(x)[0], "--", color="black", linewidth=1, label="exact")
ax.plot(Z, np.full(6, -1.4), "|", color="C3", markersize=12)
ax.legend(ncols=2, fontsize=8)
ax.set(xlabel="x", ylabel="y", ylim=(-1.5, 1.9))

# %%
# A kernel of your own
# --------------------
#
# Derive from ``gpflow.kernels.Kernel`` and give ``K`` and ``K_diag``; with
# ``InducingPoints`` nothing else is needed. Under this one f is an even function, f(x)
# = f(-x): half of it is seen, all of it is predicted.


class Even(gpflow.kernels.Kernel):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def K(self, X, X2=None):
        X2 = X if X2 is None else X2
        return 0.5 * (self.base(X, X2) + self.base(X, -X2))

    def K_diag(self, X):
        return 0.5 * (
            self.base(X, full_cov=False) + tf.linalg.diag_part(self.base(X, -X))
        )


X = rng.uniform(-0.5, 4.0, (80, 1))
Y = np.cos(2.0 * X) + 0.1 * rng.standard_normal(X.shape)
x = np.linspace(-4.0, 4.0, 200)[:, None]
figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
ax.plot(X, Y, ".", color="0.7")
for name, own in (
    ("any function", SquaredExponential()),
    ("even", Even(SquaredExponential())),
):
    model = pep.models.PEPRegression(
        (X, Y), own, pep.training.starts.kmeans(X, 10, seed=0), alpha=0.5
    )
    pep.training.maximise(model, tolerance=1e-4, window=10, progress=False)
    mean, variance = (np.ravel(part) for part in model.predict_f(x))
    ax.plot(x, mean, label=name)
    ax.fill_between(
        x[:, 0],
        mean - 2.0 * np.sqrt(variance),
        mean + 2.0 * np.sqrt(variance),
        alpha=0.2,
    )
ax.legend()
ax.set(xlabel="x", ylabel="y", ylim=(-3.0, 3.0))

# %%
# ``K_diag`` must be the diagonal of ``K``: it decides the variance that inducing points leave over.
# A model compares the two at its first rows, and refuses a kernel where they differ.
