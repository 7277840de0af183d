"""
Large data
==========

When all rows at once are too many for each step: minibatches. Two ways, on rows that
are generated here; the same calls go for ten million that come from a file or a
generator (:doc:`/training`).
"""

# %%
# Fifty thousand rows with a function of two inputs. The last thousand are held out.

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tf_keras

import gpflow_pep as pep

rng = np.random.default_rng(3)
X = rng.uniform(-3.0, 3.0, (50_000, 2))
Y = np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:]) + 0.2 * rng.standard_normal((len(X), 1))
train = (X[:-1000], Y[:-1000])
held_out = (X[-1000:], Y[-1000:])
Z = pep.training.starts.kmeans(X[:5000], 50, seed=0)

# %%
# With Gaussian noise try all rows first
# --------------------------------------
#
# ``PEPRegression`` needs no minibatches to save memory: it sums over chunks of rows. A
# step on all of them is often fast enough, and L-BFGS takes few. Here it gets twelve.

regression = pep.models.PEPRegression(
    train, gpflow.kernels.SquaredExponential(), Z, alpha=0.5
)
record = pep.training.maximise(regression, max_iterations=12, progress=False)
density = np.mean(regression.predict_log_density(held_out))
print(f"{record.evaluations} evaluations of all rows: mean log density {density:.4f}")

# %%
# Minibatches
# -----------
#
# :class:`ARPEP <gpflow_pep.models.ARPEP>` is ``SVGP`` with another integral: parameters
# ``q_mu`` and ``q_sqrt``, any likelihood, ``num_data`` rows in all, of which it sees
# 500 a step. :func:`fit <gpflow_pep.training.fit>` is the loop: natural gradient steps
# for q, Adam for all else, and held-out rows scored on the way.

model = pep.models.ARPEP(
    gpflow.kernels.SquaredExponential(),
    gpflow.likelihoods.Gaussian(),
    Z.Z.numpy(),
    alpha=0.5,
    num_data=len(train[0]),
)


def evaluate(model):
    return {"nlpd": pep.metrics.mean_nlpd(model.predict_log_density(held_out).numpy())}


record = pep.training.fit(
    model,
    pep.training.shuffled_batches(train, 500, seed=0),
    num_steps=400,
    optimizer=tf_keras.optimizers.Adam(
        tf_keras.optimizers.schedules.CosineDecay(0.05, 400)
    ),
    natural_gradient=0.2,
    evaluate=evaluate,
    evaluate_every=25,
    progress=False,
)
best = record.evaluations[-1].metrics["nlpd"]
print(f"{record.num_steps} steps of 500 rows: mean log density {-best:.4f}")

# %%
# The noise makes more than -0.5 (1 + log(2 π 0.2²)) = 0.1905 nats a row impossible on average.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(
    [evaluation.step for evaluation in record.evaluations],
    [-evaluation.metrics["nlpd"] for evaluation in record.evaluations],
    "o-",
    label="ARPEP, minibatches",
)
ax.axhline(
    density, color="C1", linestyle="--", label="PEPRegression, all rows, 12 steps"
)
ax.set(xlabel="steps of 500 rows", ylabel="held-out log density")
ax.legend()

# %%
# The function that was learnt, and where the inducing points went:

side = np.linspace(-3.0, 3.0, 50)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
filled = ax.contourf(
    side, side, model.predict_f(grid)[0].numpy().reshape(50, 50), 12, cmap="PuOr"
)
ax.plot(
    *model.inducing_variable.Z.numpy().T, "+", color="black", label="inducing points"
)
figure.colorbar(filled, label="mean of f")
ax.set(xlabel="first input", ylabel="second input")
ax.legend()

# %%
# Above 100 000 rows the :doc:`estimators </estimators>` train like this by themselves. Checkpoints,
# early stopping, TensorBoard and rows from generators are in :doc:`/training`; several machines in
# :doc:`plot_07_many_machines`.
