"""
A table with words and gaps
===========================

From a table as people have it, words, missing values and an ID, to predictions with
intervals that were checked on rows held out: scikit-learn's tools around
:class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
"""

# %%
# Prices of used instruments: a number to predict, a word, two numbers of which one has gaps, and an
# ID.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from gpflow_pep.estimators import PEPRegressor

rng = np.random.default_rng(0)
table = pd.DataFrame(
    {
        "id": rng.permutation(10_000)[:300],
        "kind": rng.choice(["violin", "viola", "cello"], 300),
        "age": rng.gamma(2.0, 20.0, 300),
        "condition": rng.uniform(1.0, 5.0, 300),
    }
)
base = table["kind"].map({"violin": 900.0, "viola": 1100.0, "cello": 2000.0})
table["price"] = (
    base * (0.6 + 0.15 * table["condition"])
    + 300.0 * np.log1p(table["age"])
    + 120.0 * rng.standard_normal(300)
).round(-1)
table.loc[rng.random(300) < 0.15, "condition"] = np.nan
print(table.head())

# %%
# What is done to each column is part of the pipeline, and so of what is trained on each fold. The
# ID has no information and is left out. Numbers need no scaling: the estimator does that.

columns = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore"), ["kind"]),
    (SimpleImputer(add_indicator=True), ["age", "condition"]),
)
estimator = make_pipeline(
    columns, PEPRegressor(num_inducing=25, alpha=0.5, random_state=0)
)
inputs = table.drop(columns=["id", "price"])
price = table["price"]
train_in, test_in, train_price, test_price = train_test_split(
    inputs, price, random_state=0
)
scores = cross_val_score(
    estimator, train_in, train_price, cv=KFold(3, shuffle=True, random_state=0)
)
print(
    f"R² of three folds: {scores.mean():.3f}, from {scores.min():.3f} to"
    f" {scores.max():.3f}"
)

# %%
# The held-out quarter, once, at the end. The standard deviation is that of a new price.

estimator.fit(train_in, train_price)
mean, sd = estimator.predict(test_in, return_std=True)
inside = np.abs(test_price - mean) < 1.645 * sd
print(f"R² of the held-out rows: {estimator.score(test_in, test_price):.3f}")
print(f"inside the 90% interval: {inside.mean():.1%} of {len(inside)}")

# %%
# Columns are found by name: in another order they give the same predictions.

reordered = test_in[["condition", "kind", "age"]]
print("largest difference:", np.max(np.abs(estimator.predict(reordered) - mean)))

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].errorbar(test_price, mean, 1.645 * sd, fmt=".", color="C0", ecolor="0.75")
axes[0].axline((1500.0, 1500.0), slope=1.0, color="black", linewidth=1)
axes[0].set(xlabel="price", ylabel="predicted, with 90% interval")
ages = pd.DataFrame(
    {"kind": "cello", "age": np.linspace(0.0, 120.0, 60), "condition": 3.0}
)
for kind in ("violin", "viola", "cello"):
    ages["kind"] = kind
    mean, sd = estimator.predict(ages, return_std=True)
    axes[1].plot(ages["age"], mean, label=kind)
    axes[1].fill_between(ages["age"], mean - sd, mean + sd, alpha=0.15)
axes[1].set(xlabel="age", ylabel="price at condition 3")
axes[1].legend()

# %%
# From the command line, with the columns found out, several powers compared and a report:
# :doc:`/compare`. The results of scikit-learn's own checks: :doc:`/estimators`.
