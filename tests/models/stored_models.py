"""Models of the stored checkpoint; as a script it writes the checkpoint and what they give."""

import json
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

import gpflow_pep as pep

N = 12
X = np.linspace(-2.0, 2.0, 2 * N).reshape(N, 2) + 0.3 * np.cos(np.arange(2.0 * N).reshape(N, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * X[:, 1:]
LABELS = np.where(Y > 0.1, 1.0, 0.0)
XNEW = X[::4] + 0.1


def create(changed: float) -> dict[str, GPModel]:
    """Create each public model, and what of it has state of its own.

    :param changed: Is added to parameters and numbers that a checkpoint holds; 0: as created.
    """

    def kernel() -> gpflow.kernels.Kernel:
        return gpflow.kernels.SquaredExponential(1.2 + changed, 0.9 + changed)

    Z, power = X[1::3] + 0.1 * changed, 0.4 + 0.5 * changed

    def regression(data: Any = (X, Y), **options: Any) -> GPModel:
        options = {"alpha": power, **options}
        return pep.PEPRegression(data, kernel(), Z, noise_variance=0.1 + changed, **options)

    def tied(model_class: Any) -> GPModel:
        options = {"alpha": power, "q_mu": 0.3 + changed * np.ones([4, 1]), "num_data": 30}
        return model_class(kernel(), gpflow.likelihoods.Bernoulli(), Z, **options)

    powers = np.linspace(0.0, 1.0 - changed, N)
    memory = regression((X[::-1] + 0.2, Y + changed)).remember(alpha=0.3)
    variables = tuple(tf.Variable(part + changed, shape=[None, part.shape[1]]) for part in (X, Y))
    gaussian = gpflow.likelihoods.Gaussian(0.3 + changed)
    return {
        "regression": regression(),
        "powers": regression(alpha=powers),
        "variables": regression(variables),
        "blocks": regression(blocks=np.arange(N) // 4, alpha=powers[::4]),
        "scaled": regression(bound="tight", chunk_size=5),
        "memory": regression(memory=memory),
        "pep": pep.PEP((X, Y), kernel(), gaussian, Z, alpha=powers),
        "classification": pep.PEPClassification((X, LABELS), kernel(), None, Z, alpha=power),
        "apep": tied(pep.APEP),
        "arpep": tied(pep.ARPEP),
        "rpapep": tied(pep.RPAPEP),
    }


def numbers(model: GPModel) -> dict[str, Any]:
    """Compute what a model gives, as JSON takes it."""
    rows = [] if hasattr(model, "data") else [(X, LABELS)]
    mean, variance = model.predict_f(XNEW)
    return {
        "log_z": float(model.pep_log_marginal_likelihood(*rows)),
        "mean": np.asarray(mean).tolist(),
        "variance": np.asarray(variance).tolist(),
        "parameters": sorted(gpflow.utilities.parameter_dict(model)),
    }


def write(prefix: str) -> None:
    """Write the checkpoint and, beside it, what its models give."""
    models = create(0.2)
    given = {name: numbers(model) for name, model in models.items()}
    tf.train.Checkpoint(**models).write(prefix)
    Path(f"{prefix}.json").write_text(json.dumps(given), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
