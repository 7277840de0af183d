"""
Active learning
===============

Labels are dear: which row should be labelled next? One that the model can learn from.
``condition_on`` adds rows to a trained classifier; rows that were there keep their
sites, so that a few sweeps are enough.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from sklearn.datasets import make_moons

import gpflow_pep as pep

X, labels = make_moons(900, noise=0.2, random_state=1)
labels = labels[:, None].astype(float)
NUM_POOL, NUM_FIRST, NUM_MORE = 500, 6, 30  # the last 400 rows are for the test

# %%
# The entropy of y is largest where the probability p of label 1 is near a half; but it is so too
# where classes overlap, and where no label will ever help. The information that a label has about f
# is what remains without the noise of the labels: the entropy of y less the mean entropy of y given
# f (Houlsby et al. 2011, *Bayesian Active Learning for Classification and Preference Learning*).

nodes, weights = np.polynomial.hermite_e.hermegauss(32)
weights = weights / weights.sum()


def entropy(p):
    return -p * np.log(p) - (1.0 - p) * np.log1p(-p)


def probability_and_information(likelihood, mean, variance):
    p = likelihood.invlink(mean + tf.sqrt(variance) * nodes).numpy()  # [N, nodes of f]
    return p @ weights, entropy(p @ weights) - entropy(p) @ weights


# %%
# One label at a time, by information and at random. Data that are ``tf.Variable`` of shape [None,
# D] let a prediction that was compiled once go on for more rows. The kernel stays as it is; with
# real data train it now and then.


def learn(choose):
    data = (
        tf.Variable(part[:NUM_FIRST], shape=[None, part.shape[1]])
        for part in (X, labels)
    )
    model = pep.models.PEPClassification(
        tuple(data),
        gpflow.kernels.SquaredExponential(variance=4.0, lengthscales=0.7),
        None,
        # Inputs are known, labels are not.
        pep.training.starts.kmeans(X[:NUM_POOL], 25, seed=0),
        alpha=0.5,
    )
    predict = tf.function(model.predict_f)
    known = list(range(NUM_FIRST))
    scores = []
    while True:
        p, information = probability_and_information(model.likelihood, *predict(X))
        of_label = np.where(
            labels[NUM_POOL:, 0] == 1.0, p[NUM_POOL:], 1.0 - p[NUM_POOL:]
        )
        scores.append((len(known), np.mean(np.log(of_label))))
        if len(known) == NUM_FIRST + NUM_MORE:
            return model, known, np.array(scores)
        information[known] = -np.inf
        row = choose(information[:NUM_POOL])
        model.condition_on((X[[row]], labels[[row]]))
        known.append(row)


rng = np.random.default_rng(0)
order = rng.permutation(np.arange(NUM_FIRST, NUM_POOL)).tolist()
model, asked, by_information = learn(np.argmax)
_, _, at_random = learn(lambda information: order.pop())
print("labels   by information   at random    (mean log density of 400 test rows)")
for (count, first), (_, second) in list(zip(by_information, at_random))[::6]:
    print(f"{count:6.0f}   {first:14.4f}   {second:9.4f}")

# %%
side = np.linspace(-1.7, 2.7, 50)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].plot(*by_information.T, "o-", label="by information")
axes[0].plot(*at_random.T, "s--", label="at random")
axes[0].set(xlabel="labels", ylabel="held-out log density")
axes[0].legend()
p = model.predict_y(grid)[0].numpy().reshape(50, 50)
axes[1].contourf(side, side, p, np.linspace(0.0, 1.0, 11), cmap="RdBu_r", alpha=0.6)
axes[1].plot(*X[:NUM_POOL].T, ".", color="0.5", markersize=2)
axes[1].plot(
    *X[asked].T, "o", color="black", markersize=5, fillstyle="none", label="labelled"
)
axes[1].legend()

# %%
# That is one run with one seed; :doc:`/streaming` has more on ``condition_on``. Where what is
# sought is a minimum, see :doc:`plot_10_bayesian_optimisation`.
