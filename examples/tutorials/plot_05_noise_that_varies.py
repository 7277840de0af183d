"""
Noise that varies
=================

Measurements whose noise depends on where they were taken. Three ways, from what you
know to what has to be learnt: a variance for each input that is given, a function with
parameters that are trained, and a second Gaussian process for the noise.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_pep as pep

rng = np.random.default_rng(2)


def noise_scale(x):
    return 0.05 + 0.4 * np.exp(-0.5 * ((x - 4.0) / 0.8) ** 2)


X = rng.uniform(0.0, 6.0, (200, 1))
Y = np.sin(1.5 * X) + noise_scale(X) * rng.standard_normal(X.shape)
X_test = rng.uniform(0.0, 6.0, (200, 1))
Y_test = np.sin(1.5 * X_test) + noise_scale(X_test) * rng.standard_normal(X_test.shape)

# %%
# One noise for all, for comparison
# ---------------------------------


def points():
    return pep.training.starts.kmeans(X, 12, seed=0)


constant = pep.models.PEPRegression(
    (X, Y), gpflow.kernels.SquaredExponential(), points(), alpha=0.5
)
pep.training.maximise(constant, tolerance=1e-4, window=10, progress=False)

# %%
# A function of the input
# -----------------------
#
# GPflow's ``Gaussian`` takes a function for its scale, and ``PEPRegression`` stays in
# closed form. Any ``gpflow.functions.Function`` will do; this one is a bump whose
# place, width and height are trained, on a floor. Where the noise is known, return it,
# and train nothing.


class Bump(gpflow.functions.Function):
    def __init__(self):
        super().__init__()
        positive = gpflow.utilities.positive
        self.floor = gpflow.Parameter(0.2, transform=positive())
        self.height = gpflow.Parameter(0.2, transform=positive())
        self.width = gpflow.Parameter(1.0, transform=positive())
        self.place = gpflow.Parameter(3.0)

    def __call__(self, x):
        return self.floor + self.height * tf.exp(
            -0.5 * tf.square((x - self.place) / self.width)
        )


function = pep.models.PEPRegression(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    points(),
    alpha=0.5,
    likelihood=gpflow.likelihoods.Gaussian(scale=Bump()),
)
pep.training.maximise(function, tolerance=1e-4, window=10, progress=False)
bump = function.likelihood.scale
print(
    f"bump at {bump.place.numpy():.2f}, {bump.width.numpy():.2f} wide; the truth: 4.00,"
    " 0.80"
)

# %%
# A second Gaussian process
# -------------------------
#
# Where no form is known, ``HeteroskedasticTFPConditional`` has two latent functions:
# the mean, and the log of the scale. ``PEP`` integrates the first in closed form
# (:ref:`tilted`).

process = pep.models.PEP(
    (X, Y),
    gpflow.kernels.SeparateIndependent(
        [
            gpflow.kernels.SquaredExponential(),
            gpflow.kernels.SquaredExponential(lengthscales=2.0),
        ]
    ),
    gpflow.likelihoods.HeteroskedasticTFPConditional(
        distribution_class=tfp.distributions.Normal, scale_transform=tfp.bijectors.Exp()
    ),
    gpflow.inducing_variables.SharedIndependentInducingVariables(points()),
    alpha=0.5,
    num_latent_gps=2,
)
record = pep.training.maximise(
    process, tolerance=1e-4, window=10, max_iterations=25, progress=False
)
print(record.message)

# %%
# What it gains
# -------------

print("                  mean log density of 200 test rows")
models = {"one noise": constant, "a function": function, "a process": process}
for name, model in models.items():
    print(f"{name:12} {np.mean(model.predict_log_density((X_test, Y_test))):.3f}")
ideal = -np.log(noise_scale(X_test)) - 0.5 * np.log(2.0 * np.pi)
ideal = ideal - 0.5 * ((Y_test - np.sin(1.5 * X_test)) / noise_scale(X_test)) ** 2
print(f"{'the truth':12} {np.mean(ideal):.3f}")

# %%
x = np.linspace(0.0, 6.0, 120)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items()):
    mean, variance = (np.ravel(part) for part in model.predict_y(x))
    band = 1.645 * np.sqrt(variance)
    ax.plot(X, Y, ".", color="0.7", markersize=4)
    ax.fill_between(x[:, 0], mean - band, mean + band, alpha=0.3)
    ax.plot(x, mean, color="C0")
    for side in (-1.645, 1.645):
        ax.plot(
            x,
            np.sin(1.5 * x) + side * noise_scale(x),
            "--",
            color="black",
            linewidth=0.8,
        )
    ax.set(title=name, xlabel="x")

# %%
# Bands hold 90% of new values; dashed are those of the truth. With one noise the band is too wide
# at the sides and too narrow around 4.
#
# FITC (``alpha=1``) has something of this built in: variance that inducing points leave
# over counts as noise there. That is an accident of the approximation; if you mean it,
# put it into the likelihood.
