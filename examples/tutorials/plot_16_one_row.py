"""
What Power EP does at one row
=============================

Power EP approximates the likelihood of each row by a site, a Gaussian factor. This tutorial looks
at single rows: what the others say of f there (the cavity), what the row's own likelihood makes of
it (the tilted distribution), and the site that has the same effect.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_pep as pep

# %%
# A label
# -------
#
# At power 1 the cavity is q without the whole site of the row. The likelihood of a label is no
# Gaussian, and so the tilted distribution, cavity times likelihood, is not quite one either. Power
# EP takes the Gaussian with its mean and variance for q, and the site is what the cavity has to be
# multiplied by for that.

rng = np.random.default_rng(1)
X = rng.uniform(-3.0, 3.0, (40, 1))
f = 3.0 * np.sin(1.5 * X)
labels = (f + rng.standard_normal(X.shape) > 0.0).astype(float)
Z = np.linspace(-3.0, 3.0, 10)[:, None]
kernel = gpflow.kernels.SquaredExponential(variance=9.0)
model = pep.models.PEPClassification((X, labels), kernel, None, Z, alpha=1.0)

terms = model.row_terms()
surprising = int(np.argmin(terms.loo_log_density))
expected = int(np.argmax(terms.loo_log_density))
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for number, ax in zip((surprising, expected), axes):
    pep.plotting.row(pep.plotting.row_curves(model, number), ax=ax)

# %%
# On the left is the row whose label the others expect least: its likelihood moves q a long way. On
# the right is the row whose label they expect most: its likelihood is flat where the cavity has
# mass, so that the site is nearly flat too, and the row might be left out.

table = terms.frame()
columns = ["nu", "tau", "cavity_mean", "tilted_mean", "mean", "loo_log_density"]
print(table.loc[[surprising, expected], columns].round(3).to_string())

# %%
# The tilted mean is the mean of q in both rows: this is the fixed point of Power EP. What the rows
# add to log Z adds up to it:

print(f"sum of contributions {np.sum(terms.contribution):.6f}")
print(f"log Z                {model.pep_log_marginal_likelihood():.6f}")

# %%
# The power
# ---------
#
# With a smaller power a smaller part of the site is taken out, and the cavity is closer to q. At 0
# nothing is taken out: cavity, tilted distribution and q are the same, and the site has the slope
# and curvature of the mean of the log likelihood.

figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
for alpha, ax in zip((1.0, 0.5, 0.0), axes):
    model.alpha = alpha
    pep.plotting.row(pep.plotting.row_curves(model, surprising), ax=ax)

# %%
# An outlier
# ----------
#
# Student's t has heavy tails. At a row that is far from what its neighbours say the likelihood
# falls more and more slowly, the tilted distribution is wider than the cavity, and no Gaussian of
# positive precision can do that: the precision of the site is negative.

Y = np.sin(1.5 * X) + 0.1 * rng.standard_normal(X.shape)
Y[5] += 3.0
robust = pep.models.PEP(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    gpflow.likelihoods.StudentT(scale=0.1, df=3.0),
    Z,
    alpha=0.5,
)
precisions = robust.row_terms().tau[:, 0].numpy()
print(f"precision of the outlier's site {precisions[5]:.3f}, median {np.median(precisions):.1f}")
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for number, ax in zip((5, 6), axes):
    pep.plotting.row(pep.plotting.row_curves(robust, number), ax=ax)

# %%
# Three classes
# -------------
#
# Every class has a latent function, and every row a site in each of them. The picture of one of
# them averages over the cavities of the others.

classes = np.digitize(f, [-1.0, 1.0]).astype(float)
several = pep.models.PEPClassification((X, classes), kernel, None, Z, alpha=0.5)
figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
for latent, ax in enumerate(axes):
    pep.plotting.row(pep.plotting.row_curves(several, 0, latent=latent), ax=ax)
    ax.set_title(f"function of class {latent}")
