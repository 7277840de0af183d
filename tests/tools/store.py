#!/usr/bin/env python3
"""Write small models of this version, with what they predict, for later versions to
read.

    python tests/tools/store.py            # once for each format of files

The folder is tests/stored/format_8, with the number of this version's format, and must
not exist yet: ``tests/stored/test_stored_models.py`` reads all such folders.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
import tf_keras

from gpflow_pep.compare import predict_table
from gpflow_pep.compare.cli import main as gpflow_pep_command
from gpflow_pep.estimators import (
    DrawingPipeline,
    PEPClassifier,
    PEPRegressor,
    export_numpy,
    load_estimator,
    save_estimator,
)
from gpflow_pep.models import ARPEP, PEP, PEPClassification, PEPRegression
from gpflow_pep.scoring.stored import FORMAT
from gpflow_pep.tables import Format, TableEncoder
from gpflow_pep.training import EarlyStopping, FitRecord, fit

FOLDER = Path(__file__).parents[1] / "stored" / f"format_{FORMAT}"
#: The file with what was predicted, the checkpoint of models, and the folder of a run.
PREDICTIONS = "predictions.json"
CHECKPOINT = "checkpoint/models"
RUN = "run"
#: The steps of a run before its last checkpoint, and those after it.
STEPS = 4
MORE_STEPS = 2

AREAS = np.round(60.0 + 35.0 * np.sin(1.7 * np.arange(16.0)), 1)
TABLE = pd.DataFrame(
    {
        "area": AREAS,
        "region": ["Nord", "Ost", None, "Nord"] * 4,
        "day": pd.date_range("2024-01-05", periods=16, freq="9D").strftime("%Y-%m-%d"),
    }
)
PRICES = np.round(300.0 + 2.0 * AREAS + 20.0 * np.cos(np.arange(16.0)), 1)
CLASSES = np.where(PRICES > 420.0, "dear", "cheap")
#: With a word that is new, and an empty cell.
ROWS = pd.DataFrame(
    {
        "area": [48.5, np.nan, 71.2],
        "region": ["Ost", "Nord", "Mitte"],
        "day": ["2024-02-11", "2024-03-01", "2024-05-30"],
    }
)
X = np.column_stack([np.linspace(-2.0, 2.0, 16), np.sin(3.0 * np.arange(16.0))])
Y = np.sin(2.0 * X[:, :1]) + 0.3 * X[:, 1:]
LABELS = np.where(Y > 0.1, 1.0, 0.0)
XNEW = X[::5] + 0.1


def compare(folder: Path) -> None:
    """Write the model and the scorer of a comparison, with the scores they promise."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "flats.csv"
        TABLE.assign(price=PRICES).to_csv(path, index=False)
        options = ["--inducing", "5", "--max-iterations", "20", "--no-baselines"]
        arguments = [path, "--target", "price", "--folds", "2", "--out", path.parent]
        gpflow_pep_command(
            ["compare", *map(str, arguments), *options], standalone_mode=False
        )
        for name in ("model", "scorer"):
            shutil.copytree(path.parent / name, folder / name)


def save(folder: Path, estimator: Any, targets: Any) -> None:
    """Fit an estimator of one sparse model, with a table's encoder, and write it for
    TensorFlow and for NumPy.
    """
    formats = {
        "area": Format("number"),
        "region": Format("text"),
        "day": Format("date", pattern="ymd"),
    }
    pipeline = DrawingPipeline(
        [("prepare", TableEncoder(formats)), ("model", estimator)]
    )
    pipeline.fit(TABLE, targets)
    save_estimator(folder / "model", pipeline)
    export_numpy(folder / "scorer", pipeline)


def models(changed: float = 0.0) -> dict[str, gpflow.models.GPModel]:
    """Make the models of the checkpoint.

    :param changed: A number that is added to values that a checkpoint has.
    """
    Z = X[1::3] + 0.1 * changed

    def kernel() -> gpflow.kernels.Kernel:
        return gpflow.kernels.Matern52(1.2 + changed, 0.9 + changed)

    return {
        "regression": PEPRegression(
            (X, Y), kernel(), Z, noise_variance=0.1 + changed, alpha=0.4 + changed
        ),
        "pep": PEP((X, Y), kernel(), gpflow.likelihoods.StudentT(0.3 + changed), Z),
        "classification": PEPClassification((X, LABELS), kernel(), None, Z, alpha=0.5),
    }


def train(folder: Path, num_steps: int) -> tuple[ARPEP, FitRecord]:
    """Train a model with minibatches, or continue from the checkpoint in a folder."""
    kernel = gpflow.kernels.SquaredExponential()
    likelihood = gpflow.likelihoods.Bernoulli()
    model = ARPEP(kernel, likelihood, X[1::3], num_data=len(X), alpha=0.5)
    record = fit(
        model,
        tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(4),
        num_steps=num_steps,
        optimizer=tf_keras.optimizers.Adam(0.05),
        natural_gradient=0.3,
        evaluate=lambda one: {"nlpd": -np.mean(one.predict_log_density((X, LABELS)))},
        evaluate_every=STEPS // 2,
        early_stopping=EarlyStopping("nlpd", patience=9),
        checkpoint_dir=folder,
        progress=False,
    )
    return model, record


def of_table(model: Any) -> dict[str, Any]:
    """Predict the rows of the table by an estimator or a scorer."""
    predicted = predict_table(model, ROWS)
    return {name: predicted[name].tolist() for name in predicted}


def of_model(model: gpflow.models.GPModel) -> dict[str, Any]:
    """Predict new inputs by a model of GPflow."""
    mean, variance = model.predict_f(XNEW)
    return {"mean": mean.numpy().tolist(), "variance": variance.numpy().tolist()}


def of_run(model: ARPEP, record: FitRecord) -> dict[str, Any]:
    """Describe a run and the predictions of its model."""
    evaluations = [list(each.metrics.values()) for each in record.evaluations]
    losses = record.losses.tolist()
    return {**of_model(model), "losses": losses, "evaluations": evaluations}


def main() -> None:
    if FOLDER.exists():
        sys.exit(
            f"{FOLDER} exists: got a format that has its models, expected a new one."
            " Raise FORMAT in gpflow_pep/scoring/stored.py if the content of files"
            " changed."
        )
    compare(FOLDER / "compared")
    sparse = {"num_inducing": 4, "random_state": 0, "max_iterations": 20}
    save(FOLDER / "sparse", PEPRegressor(alpha=0.5, **sparse), PRICES)
    save(FOLDER / "classes", PEPClassifier(alpha=0.5, **sparse), CLASSES)
    predictions = {
        name: of_table(load_estimator(FOLDER / name / "model"))
        for name in ("compared", "sparse", "classes")
    }
    changed = models(changed=0.2)
    tf.train.Checkpoint(**changed).write(str(FOLDER / CHECKPOINT))
    predictions.update({name: of_model(model) for name, model in changed.items()})
    train(FOLDER / RUN, STEPS)
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(FOLDER / RUN, Path(place) / RUN)
        predictions[RUN] = of_run(*train(copy, STEPS + MORE_STEPS))
    text = json.dumps(predictions, indent=1) + "\n"
    (FOLDER / PREDICTIONS).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
