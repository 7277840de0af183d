"""
A likelihood of your own
========================

Delays: errors that are small on one side and can be large on the other. GPflow has no
such likelihood. A class with one method for the density is what GPflow needs; one
function more states ``PEP`` where that density has its structure.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from gpflow.utilities import positive

import gpflow_pep as pep

# %%
# The likelihood
# --------------
#
# The skewed logistic density of z = (y - f) / scale, b exp(-z) / (1 + exp(-z))^(b + 1)
# / scale: symmetric for b = 1, with a longer tail above for larger b. GPflow needs the
# log density of a row, and for ``predict_y`` the mean and the variance of y given f.
# Write the density so that it is finite wherever f is: softplus for log(1 + exp(-z))
# does not overflow.


class SkewedLogistic(gpflow.likelihoods.ScalarLikelihood):
    def __init__(self, scale=1.0, skew=1.0):
        super().__init__()
        self.scale = gpflow.Parameter(scale, transform=positive())
        self.skew = gpflow.Parameter(skew, transform=positive())

    def _scalar_log_prob(self, X, F, Y):
        z = (Y - F) / self.scale
        constant = tf.math.log(self.skew / self.scale)
        return constant - z - (self.skew + 1.0) * tf.math.softplus(-z)

    def _conditional_mean(self, X, F):
        one = tf.ones_like(F)
        return F + self.scale * (
            tf.math.digamma(self.skew * one) - tf.math.digamma(one)
        )

    def _conditional_variance(self, X, F):
        one = tf.ones_like(F)
        return self.scale**2 * (
            tf.math.polygamma(one, self.skew * one) + tf.math.polygamma(one, one)
        )


# %%
# Nothing else is needed: models integrate by the values of the density alone, and warn where that
# is not accurate (:ref:`own-likelihood`). For every digit, state where the density varies fast.
#
# What PEP integrates
# -------------------
#
# The tilted integral, log E[p(y | f)^alpha] / alpha, by the rule that most likelihoods
# here share: nodes that are dense where the density varies fast. A ``Structure`` is
# where that is: the middle, the scale that has to be resolved, and half the length.
# Derivatives follow by themselves.


@pep.likelihoods.scalar_factor.register(SkewedLogistic)
def _factor(likelihood, X, Y, alpha):
    scale = likelihood.scale * tf.ones_like(Y)
    peak = pep.likelihoods.Structure(centre=Y, resolution=scale, extent=4.0 * scale)
    return pep.likelihoods.ScalarFactor(
        lambda F: likelihood._scalar_log_prob(X, F, Y), [peak]
    )


# %%
# Is it accurate? Compare with brute force before a model trusts it: a Gaussian much wider than the
# density, one about as wide, and one much narrower.

likelihood = SkewedLogistic(0.2, 3.0)
one = np.ones([1, 1])
y = 0.7
print("alpha  sd of f   the rule          brute force")
for alpha in (0.0, 0.5, 1.0):
    for sd in (5.0, 0.3, 0.01):
        f = np.linspace(-10.0 * sd, 10.0 * sd, 200_001)
        weight = np.exp(-0.5 * (f / sd) ** 2)
        weight /= weight.sum()
        log_p = likelihood._scalar_log_prob(None, f, y).numpy()
        brute = (
            weight @ log_p
            if alpha == 0.0
            else np.log(weight @ np.exp(alpha * log_p)) / alpha
        )
        rule = pep.likelihoods.log_power_expectation(
            likelihood, one, 0.0 * one, sd**2 * one, y * one, alpha
        )
        print(f"{alpha:5}  {sd:7}  {rule.numpy().item():13.9f}  {brute:13.9f}")

# %%
# A model with it
# ---------------
#
# Everything else is as with any likelihood; its parameters are trained with the rest.

rng = np.random.default_rng(4)
X = rng.uniform(0.0, 6.0, (200, 1))
# Skew 4, by the inverse of its CDF.
z = -np.log(rng.uniform(size=X.shape) ** (-1.0 / 4.0) - 1.0)
Y = np.sin(1.5 * X) + 0.15 * z
model = pep.models.PEP(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    SkewedLogistic(0.3, 1.0),
    pep.training.starts.kmeans(X, 12, seed=0),
    alpha=0.5,
)
record = pep.training.maximise(model, tolerance=1e-4, window=10, progress=False)
found = model.likelihood
print(
    f"scale {found.scale.numpy():.3f} (true: 0.150), skew {found.skew.numpy():.2f}"
    " (true: 4.00)"
)

# %%
# Gaussian noise follows the mean of y; here f is the function itself, to which delays add.

gaussian = pep.models.PEPRegression(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    pep.training.starts.kmeans(X, 12, seed=0),
    alpha=0.5,
)
pep.training.maximise(gaussian, tolerance=1e-4, window=10, progress=False)
x = np.linspace(0.0, 6.0, 150)[:, None]
X_test = rng.uniform(0.0, 6.0, (500, 1))
z = -np.log(rng.uniform(size=X_test.shape) ** (-1.0 / 4.0) - 1.0)
test = X_test, np.sin(1.5 * X_test) + 0.15 * z
for name, each in (("Gaussian", gaussian), ("skewed logistic", model)):
    print(
        f"{name:16} mean log density of new rows"
        f" {np.mean(each.predict_log_density(test)):.4f}"
    )

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.plot(X, Y, ".", color="0.7")
ax.plot(x, model.predict_f(x)[0], label="f, skewed logistic")
ax.plot(x, model.predict_y(x)[0], label="mean of y, skewed logistic")
ax.plot(x, gaussian.predict_y(x)[0], ":", color="C3", label="mean of y, Gaussian")
ax.plot(x, np.sin(1.5 * x), "--", color="black", linewidth=1, label="truth")
ax.legend(ncols=2, fontsize=8)
ax.set(xlabel="x", ylabel="y")

# %%
# Scale and skew trade places: several pairs of them fit 200 rows about as well. Which targets a
# likelihood gives a probability, several latent functions, and a closed form in the place of
# quadrature: :ref:`tilted`.
