"""
Bayesian optimisation of what works or fails
============================================

Find the settings at which an experiment succeeds most often, when all that each trial
gives is whether it succeeded. A classifier models the probability, and Thompson
sampling chooses the next trials: each is where a function that is drawn from the
posterior is largest. Draws differ most where little is known, so that trials explore;
and they agree near a maximum that is known, so that trials gather there. Several draws
give several trials at a time.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.training.fitting.cheaper import SharedLosses

# %%
# Two settings, between 0 and 1. The best ones, 0.7 and 0.3, succeed in 93% of the trials, and most
# others fail.

rng = np.random.default_rng(0)


def success_probability(X):
    return norm.cdf(1.5 - 25.0 * np.sum((X - [0.7, 0.3]) ** 2, axis=1, keepdims=True))


def run_trials(X):
    return (rng.uniform(size=(len(X), 1)) < success_probability(X)).astype(float)


# %%
# The model
# ---------
#
# The first twelve trials are anywhere. Inducing points are spread over all settings, as
# trials will move. The kernel's parameters have priors: so few trials hardly determine
# them.

X = rng.uniform(size=(12, 2))
Y = run_trials(X)
kernel = gpflow.kernels.SquaredExponential(variance=4.0, lengthscales=0.3)
side = np.linspace(0.0, 1.0, 5)
Z = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
model = pep.PEPClassification((X, Y), kernel, None, Z, alpha=0.5)
gpflow.set_trainable(model.inducing_variable, False)
kernel.variance.prior = tfp.distributions.LogNormal(np.log(4.0), np.float64(0.5))
kernel.lengthscales.prior = tfp.distributions.LogNormal(np.log(0.3), np.float64(0.5))

# %%
# Where paths are largest
# -----------------------
#
# Each of three paths is evaluated at a thousand candidates; from the best of these it
# goes up by its gradient. ``paths.each`` evaluates each path at its own point.

candidates = rng.uniform(size=(1000, 2))
paths = model.paths(3, seed=0)
x = tf.Variable(np.zeros((3, 1, 2)))


@tf.function(autograph=False)
def step():
    with tf.GradientTape() as tape:
        values = paths.each(x)
    x.assign(tf.clip_by_value(x + 0.002 * tape.gradient(values, x), 0.0, 1.0))


def maxima():
    x.assign(candidates[np.argmax(paths(candidates)[:, :, 0], axis=1)][:, None])
    for _ in range(20):
        step()
    return x.numpy()[:, 0]


# %%
# The loop
# --------
#
# ``condition_on`` adds the trials, ``paths.update`` draws from the posterior as it is
# now, and ``resample`` other functions; the compiled function goes on with them. The
# kernel learns in every sixth round, compiled once by ``SharedLosses``.

losses = SharedLosses()
believed = []
for number in range(12):
    if number % 6 == 0:
        losses.maximise(model, max_iterations=10, progress=False)
    paths.update()
    paths.resample(seed=number)
    chosen = maxima()
    model.condition_on((chosen, run_trials(chosen)))
    mean, _ = model.predict_f(candidates)
    best = candidates[np.argmax(mean)][None]
    believed.append(success_probability(best).item())

X, Y = (part.numpy() for part in model.data)
print(
    f"successes in the first 12 trials: {Y[:12].mean():.0%}, in the last 12:"
    f" {Y[-12:].mean():.0%}"
)
print(
    f"the settings believed to be best, {best[0].round(2)}, succeed in"
    f" {believed[-1]:.0%}"
)
assert believed[-1] > 0.8

# %%
# Dots worked, crosses failed. On the right is the probability of success at the settings that the
# model believed to be best after each round of three trials.

grid = np.stack(np.meshgrid(*2 * [np.linspace(0.0, 1.0, 60)]), axis=-1).reshape(-1, 2)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axis = np.linspace(0.0, 1.0, 60)
left.contourf(axis, axis, success_probability(grid).reshape(60, 60), 20, cmap="Greys")
for worked, marker, color in ((1.0, ".", "#2a6fbb"), (0.0, "x", "#c8442e")):
    left.plot(*X[Y[:, 0] == worked].T, marker, color=color)
left.set(title="trials", xlabel="first setting", ylabel="second setting")
right.plot(np.arange(1, len(believed) + 1), believed, "o-")
right.axhline(norm.cdf(1.5), linestyle="--", color="black", label="best settings")
right.set(xlabel="round", ylabel="probability of success", ylim=(0.0, 1.0))
right.legend()

# %%
# With trieste
# ------------
#
# trieste has loops, spaces, optimisers and acquisition functions for this. The adapter
# ``PEPModel`` of ``examples/trieste_adapter.py`` gives it the models of this package, with any
# likelihood: trajectories are paths, and so are the samples of Monte Carlo acquisition
# functions. trieste minimises, so that here it observes failures, which are the rarer
# the smaller the function is. trieste 4.6.1 needs TensorFlow 2.18 or earlier, which the
# other pages are not built with; ``python -m examples trieste_loop`` runs these lines
# in an environment of its own.
#
# .. literalinclude:: /../examples/trieste_loop.py
#    :language: python
#    :pyobject: failures_observed
