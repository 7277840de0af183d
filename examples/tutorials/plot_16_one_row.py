"""
What Power EP does at one row
=============================

Power EP approximates the likelihood of each row by a site, a Gaussian factor. This
tutorial looks at single rows: what all other rows make f there (the cavity), what the
row's own likelihood makes of it (the tilted distribution), and the site that has the
same effect.
"""

from typing import Any

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import gpflow_pep as pep

# %%
# Labels
# ------
#
# ``converged_rows`` has the marginal N(m, s) of each row under q and its site, whose
# precision is tau and whose precision times mean is nu. The cavity is q without the
# power alpha of the site. The likelihood stands for f, which has the residual variance
# d beside h, so it is averaged over d.

rng = np.random.default_rng(1)
X = rng.uniform(-3.0, 3.0, (40, 1))
f = 3.0 * np.sin(1.5 * X)
labels = (f + rng.standard_normal(X.shape) > 0.0).astype(float)
Z = np.linspace(-3.0, 3.0, 10)[:, None]
kernel = gpflow.kernels.SquaredExponential(variance=9.0)
model = pep.models.PEPClassification((X, labels), kernel, None, Z, alpha=1.0)


def draw(model: Any, number: int, ax: Any) -> None:
    """Draw cavity, tilted distribution and q at one row, for a power above 0."""
    m, s, nu, tau, d = (np.asarray(part)[number, 0] for part in model.converged_rows())
    alpha = float(model.alpha.numpy())
    variance = 1.0 / (1.0 / s - alpha * tau)
    mean = variance * (m / s - alpha * nu)
    h = m + np.sqrt(variance) * np.linspace(-4.5, 4.5, 401)
    rows = (
        np.repeat(np.asarray(part)[[number]], len(h), axis=0) for part in model.data
    )
    inputs, targets = rows
    ell = pep.likelihoods.log_power_expectation(
        model.likelihood, inputs, h[:, None], np.full([len(h), 1], d), targets, alpha
    )
    cavity = norm.pdf(h, mean, np.sqrt(variance))
    tilted = cavity * np.exp(alpha * ell)
    tilted /= np.sum(tilted) * (h[1] - h[0])
    ax.fill_between(h, cavity, alpha=0.25, label="cavity")
    ax.plot(h, tilted, linewidth=2.0, label="tilted")
    ax.plot(h, norm.pdf(h, m, np.sqrt(s)), "--", label="q")
    ax.set(title=f"row {number}: y = {targets[0, 0]:.3g}, alpha {alpha:g}", xlabel="f")
    ax.legend()


density = model.loo_log_density().numpy()
surprising = int(np.argmin(density))
expected = int(np.argmax(density))
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for number, ax in zip((surprising, expected), axes):
    draw(model, number, ax)

# %%
# On the left is the row whose label the others expect least: its likelihood moves q a long way. On
# the right is the row whose label they expect most: its likelihood is flat where the cavity has
# mass, so that the site is nearly flat too, and the row might be left out. The tilted distribution
# has the mean and variance of q in both rows: this is the fixed point of Power EP.

for number in (surprising, expected):
    print(f"row {number}: log density when it is left out {density[number]:.3f}")

# %%
# The power
# ---------
#
# With a smaller power a smaller part of the site is taken out, and the cavity is closer
# to q.

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for alpha, ax in zip((1.0, 0.3), axes):
    model.alpha = alpha
    draw(model, surprising, ax)

# %%
# An outlier
# ----------
#
# Student's t has heavy tails. At a row that is far from its neighbours the likelihood
# falls more and more slowly, the tilted distribution is wider than the cavity, and no
# Gaussian of positive precision can do that: the precision of the site is negative.

Y = np.sin(1.5 * X) + 0.1 * rng.standard_normal(X.shape)
Y[5] += 3.0
student = gpflow.likelihoods.StudentT(scale=0.1, df=3.0)
robust = pep.models.PEP(
    (X, Y), gpflow.kernels.SquaredExponential(), student, Z, alpha=0.5
)
precisions = robust.converged_rows().tau[:, 0].numpy()
print(
    f"precision of the outlier's site {precisions[5]:.3f}, median"
    f" {np.median(precisions):.1f}"
)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for number, ax in zip((5, 6), axes):
    draw(robust, number, ax)
