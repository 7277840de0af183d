"""Checkpoints of earlier versions: they load, and the models give what they gave then. As a script
it writes a checkpoint of this version and, beside it, what its models give.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import GPModel

import gpflow_pep as pep
from gpflow_pep.models.pep import _record_of_run

N = 12
X = np.linspace(-2.0, 2.0, 2 * N).reshape(N, 2) + 0.3 * np.cos(np.arange(2.0 * N).reshape(N, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * X[:, 1:]
LABELS = np.where(Y > 0.1, 1.0, 0.0)
XNEW = X[::4] + 0.1


def create(changed: float) -> dict[str, GPModel]:
    """Each public model, and what of it has state of its own.

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
    """What a model gives, as JSON takes it."""
    rows = [] if hasattr(model, "data") else [(X, LABELS)]
    mean, variance = (np.asarray(part).tolist() for part in model.predict_f(XNEW))
    log_z = float(model.pep_log_marginal_likelihood(*rows))
    parameters = sorted(gpflow.utilities.parameter_dict(model))
    return {"log_z": log_z, "mean": mean, "variance": variance, "parameters": parameters}


STORED = Path(__file__).parent / "stored"
VERSIONS = sorted(path.stem for path in STORED.glob("*.json"))


@pytest.mark.parametrize("version", VERSIONS)
def test_models_continue_from_a_checkpoint(version: str) -> None:
    given = json.loads((STORED / f"{version}.json").read_text(encoding="utf-8"))
    del given["neighbours"]  # which models no longer have in training
    models = create(0.0)
    assert set(given) <= set(models)
    before = numbers(models["regression"])["log_z"]
    assert abs(before - given["regression"]["log_z"]) > 0.1
    checkpoint = tf.train.Checkpoint(**{name: models[name] for name in given})
    checkpoint.read(str(STORED / version)).assert_existing_objects_matched()
    for name, expected in given.items():
        actual = numbers(models[name])
        assert actual["parameters"] == expected["parameters"]
        for part in ("log_z", "mean", "variance"):
            value = expected[part]
            np.testing.assert_allclose(actual[part], value, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(
    ("index", "name"), [*enumerate(("", "continuation", "clipped", "clipped"))]
)
def test_records_of_earlier_versions_are_read(index: int, name: str) -> None:
    """The net was the third fallback, and of another name."""
    assert "0.1.0-2026-11-23" in VERSIONS
    assert _record_of_run(np.array([80.0, 3.0, 0.0, 11.0, index])).fallback == name


if __name__ == "__main__":
    given = create(0.2)
    tf.train.Checkpoint(**given).write(sys.argv[1])
    text = json.dumps({name: numbers(model) for name, model in given.items()})
    Path(f"{sys.argv[1]}.json").write_text(text, encoding="utf-8")
