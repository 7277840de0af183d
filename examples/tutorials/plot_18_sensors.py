"""
A sensor that fails
===================

Two sensors measure something in common, and one of them fails for a while. A model of
both fills in what it would have read from what the other one reads; a model of the one
that failed cannot.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_pep as pep

# %%
# Two sensors
# -----------
#
# Both follow the weather, the second less, and it drifts. Gusts last for minutes: they
# are in both readings of the same moment, and they do not determine the next one. Each
# sensor has some noise of its own too. The second fails for two and a half days.

rng = np.random.default_rng(3)
t = np.sort(rng.uniform(0.0, 10.0, (250, 1)), axis=0)
weather = np.sin(2.0 * t) + 0.7 * np.sin(4.7 * t + 1.0)
gust = 0.35 * rng.standard_normal(t.shape)
drift = 0.12 * (t - 5.0)
complete = np.hstack([weather + gust, 0.8 * weather + 0.9 * gust + drift])
complete += 0.08 * rng.standard_normal(complete.shape)

failed = (t[:, 0] > 5.5) & (t[:, 0] < 8.0)
Y = complete.copy()
Y[failed, 1] = np.nan

# %%
# A model of both, and one of the second alone
# --------------------------------------------
#
# :func:`~gpflow_pep.training.starts.coregionalization` makes a kernel whose outputs are
# mixtures of two latent functions. NaN in Y is what was not observed.


def points():
    return np.linspace(0.0, 10.0, 20)[:, None]


def train(model):
    pep.training.maximise(
        model, tolerance=1e-4, window=10, max_iterations=100, progress=False
    )
    return model


def mixture(alpha):
    kernel = pep.training.starts.coregionalization((t, Y), 2)
    return train(
        pep.models.PEPRegression(
            (t, Y), kernel, points(), alpha=alpha, noise_variance=[0.1, 0.1]
        )
    )


both = mixture(alpha=1.0)
alone = train(
    pep.models.PEPRegression(
        (t[~failed], Y[~failed, 1:]),
        gpflow.kernels.SquaredExponential(),
        points(),
        alpha=1.0,
        noise_variance=0.1,
    )
)

# %%
# ``impute_y`` predicts the targets of the rows that the model has, given all that was observed, the
# other sensor's reading of the same moment included.


def filled_in(model):
    mean, variance = (part.numpy()[failed, 1] for part in model.impute_y())
    return mean, np.sqrt(variance)


def separately():
    mean, variance = (part.numpy()[:, 0] for part in alone.predict_y(t[failed]))
    return mean, np.sqrt(variance)


guesses = {"both sensors": filled_in(both), "the second alone": separately()}
figure, axes = plt.subplots(3, 1, figsize=(9, 7.5), sharex=True, layout="constrained")
axes[0].plot(t, Y[:, 0], ".", color="black", markersize=3)
axes[0].set(title="first sensor")
for ax, (name, (mean, deviation)) in zip(axes[1:], guesses.items()):
    ax.plot(t, Y[:, 1], ".", color="black", markersize=3)
    ax.plot(
        t[failed],
        complete[failed, 1],
        ".",
        color="C3",
        markersize=4,
        label="not observed",
    )
    band = mean - 2.0 * deviation, mean + 2.0 * deviation
    ax.fill_between(t[failed, 0], *band, color="C0", alpha=0.25)
    ax.plot(t[failed], mean, color="C0", linewidth=1, label="filled in")
    ax.set(title=f"second sensor, filled in from {name}", ylim=(-3.0, 3.0))
    ax.legend(frameon=False, loc="upper left", ncols=2)
axes[-1].set(xlabel="days")

# %%
# The band holds 95% of what would have been read. Without the first sensor it is soon as wide as
# the prior; with it, it is narrow, and follows the gusts.


def scores(mean, deviation):
    error = complete[failed, 1] - mean
    nlpd = 0.5 * np.log(2.0 * np.pi * deviation**2) + 0.5 * (error / deviation) ** 2
    return f"RMSE {np.sqrt(np.mean(error**2)):.2f}, NLPD {np.mean(nlpd):.2f}"


for name, guess in guesses.items():
    print(f"{name:17} {scores(*guess)}")

# %%
# What of a moment is used
# ------------------------
#
# ``predict_y`` uses the readings of a moment by way of the inducing variables alone,
# and 20 of these cannot follow gusts. ``impute_y`` takes the readings of the same
# moment as they are. For a moment that was not among the data,
# ``predict_y(new_t, given=new_Y)`` does the same.
#
# And the power matters. At 0 what inducing variables leave open must be independent
# noise of each sensor, because the bound has a penalty for the rest. Above it the
# outputs of a row share what is left open, and gusts are something that both sensors
# have.

for alpha in (0.0, 0.5, 1.0):
    model = both if alpha == 1.0 else mixture(alpha)
    mean, variance = (part.numpy()[failed, 1] for part in model.predict_y(t))
    print(f"alpha {alpha:3}: predict_y {scores(mean, np.sqrt(variance))}", end=";  ")
    print(f"impute_y {scores(*filled_in(model))}")

# %%
# When there is nothing to gain
# -----------------------------
#
# A mixture gains where one output is missing and others have information on it. If all
# of them are observed in all rows that you have, and none in those that you predict,
# separate models are as good and simpler: :doc:`/several_outputs` has the numbers.
