"""
Several classes
===============

Three kinds of wine by what a chemist measured, two likelihoods that GPflow has for it,
and three powers.
"""

# %%
# The data come with scikit-learn. Inputs are standardised: the kernel starts with lengthscales that
# suit inputs of size one.

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import gpflow_pep as pep

X, labels = load_wine(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, labels[:, None], test_size=0.5, stratify=labels, random_state=0
)
centre = X_train.mean(axis=0)
scale = X_train.std(axis=0)
X_train = (X_train - centre) / scale
X_test = (X_test - centre) / scale
print(f"{len(X_train)} rows to train on, {len(X_test)} to test, {X.shape[1]} inputs")

# %%
# RobustMax (``MultiClass``) means: the class whose latent function is the largest is the label, but
# for one row in a thousand. Softmax is smooth, and takes longer, because its integral has no closed
# form. Each class has a latent function of its own; here they share the kernel and the inducing
# points.


def make_model(kernel, likelihood, points, alpha):
    return pep.models.PEPClassification(
        (X_train, y_train), kernel, likelihood, points, alpha=alpha
    )


models = {}
for alpha in (0.0, 0.5, 1.0):
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.sqrt(X.shape[1]))
    points = pep.training.starts.kmeans(X_train, 10, seed=0)
    model = make_model(kernel, gpflow.likelihoods.MultiClass(3), points, alpha)
    pep.training.maximise(
        model, tolerance=1e-4, window=10, max_iterations=40, progress=False
    )
    models[f"RobustMax, alpha {alpha}"] = model

# %%
# Softmax here has the kernel and the points that RobustMax learnt, and is not trained itself: its
# score is where training would start from.

trained = models["RobustMax, alpha 0.5"]
models["Softmax, alpha 0.5"] = make_model(
    trained.kernel, gpflow.likelihoods.Softmax(3), trained.inducing_variable, 0.5
)

# %%
# ``predict_log_density`` is the log probability of the true class, ``predict_y`` has all of them.

print("                       error   mean log density")
for name, model in models.items():
    probability, _ = model.predict_y(X_test)
    error = np.mean(np.argmax(probability, axis=1) != y_test[:, 0])
    density = np.mean(model.predict_log_density((X_test, y_test)))
    print(f"{name:22} {error:.3f}   {density:.4f}")

# %%
# The rows in the plane of two of the inputs, with circles around the five test rows that the model
# is least sure of, whose probabilities are printed.

model = models["RobustMax, alpha 0.5"]
probability = model.predict_y(X_test)[0].numpy()
unsure = np.argsort(probability.max(axis=1))[:5]
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for label, marker in enumerate("os^"):
    rows = X_test[y_test[:, 0] == label]
    ax.plot(rows[:, 0], rows[:, 6], marker, markersize=5, label=f"class {label}")
ax.plot(
    X_test[unsure, 0],
    X_test[unsure, 6],
    "o",
    markersize=14,
    color="black",
    fillstyle="none",
)
ax.set(xlabel="alcohol (standardised)", ylabel="flavanoids (standardised)")
ax.legend()
for row in unsure:
    print(
        f"true class {y_test[row, 0]}: "
        + " ".join(f"{p:.3f}" for p in probability[row])
    )

# %%
# On so few rows the scores do not separate the powers, and rows that are easily separated suit
# :math:`\alpha = 0`; :doc:`/choosing` has data where it is otherwise. **Next**: with many rows,
# minibatches in :doc:`plot_06_large_data`; labels that are words, in :doc:`plot_14_tables`.
