"""Active learning: one row after another gets its label, and the model goes on from
where it is.

The model holds its rows in ``tf.Variable``; ``condition_on`` adds one, and with it a
site, while those of the other rows stay where they are. Nothing is compiled twice.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.preprocessing import StandardScaler

from examples.papers.tasks import MakeKernel
from examples.papers.waveform import waveform
from gpflow_pep.likelihoods import class_probabilities
from gpflow_pep.metrics import error_rate, mean_nlpd
from gpflow_pep.models import PEPClassification
from gpflow_pep.training import maximise
from gpflow_pep.training.starts import kmeans, predictive_entropy

#: Rows that train at first, that may get a label, and that are held out (section 5.6).
TRAIN = 100
POOL = 400
TEST = 500
NUM_INDUCING = 10
#: Steps of L-BFGS before the first label, and after each (the paper's, of PEP).
FIRST_STEPS = 50
STEPS = 5
NUM_CLASSES = 3
#: Every so many labels there is a row in the table.
SCORED = 5
#: Of the generator of rows, away from those of the tables.
FIRST_SEED = 10_000


class Learner(NamedTuple):
    """A model whose rows are variables, and what of it is compiled."""

    model: PEPClassification
    optimizer: gpflow.optimizers.Scipy
    start: dict[str, AnyNDArray]
    inputs: tf.Variable
    """Of the rows that may get a label, and after them of those held out."""

    look: Callable[[], tuple[tf.Tensor, tf.Tensor]]
    """The entropy of each row that may get a label, and the probabilities of those held
    out.
    """


@lru_cache(maxsize=1)
def _learner(kernel: MakeKernel) -> Learner:
    X, classes = waveform(0, POOL + TEST)
    Y = classes[:, None].astype(float)
    data = tuple(
        tf.Variable(part[:TRAIN], shape=[None, part.shape[1]], trainable=False)
        for part in (X, Y)
    )
    likelihood = gpflow.likelihoods.MultiClass(NUM_CLASSES)
    model = PEPClassification(
        data, kernel(X.shape[1]), likelihood, X[:NUM_INDUCING].copy()
    )
    start = {
        name: value
        for name, value in gpflow.utilities.read_values(model).items()
        if not name.startswith((".data", ".sites"))
    }
    inputs = tf.Variable(X, trainable=False)

    @tf.function(autograph=False)
    def look() -> tuple[tf.Tensor, tf.Tensor]:
        pool = inputs[:POOL]
        held = inputs[POOL:]
        found = class_probabilities(
            likelihood, held, *model.predict_f(held), NUM_CLASSES
        )
        return predictive_entropy(model, pool), found

    return Learner(model, gpflow.optimizers.Scipy(), start, inputs, look)


def learn(
    seed: int, num_labels: int, rule: str, alpha: float, kernel: MakeKernel
) -> list[Any]:
    """Scores of the held-out rows before the first label and after each."""
    X, classes = waveform(FIRST_SEED + seed, TRAIN + POOL + TEST)
    # Inputs are known before labels.
    X = StandardScaler().fit(X[: TRAIN + POOL]).transform(X)
    Y = classes[:, None].astype(float)
    learner = _learner(kernel)
    model = learner.model
    model.update_data((X[:TRAIN], Y[:TRAIN]))
    gpflow.utilities.multiple_assign(model, learner.start)
    model.inducing_variable.Z.assign(kmeans(X[:TRAIN], NUM_INDUCING, seed=seed).Z)
    model.alpha.assign(alpha)
    learner.inputs.assign(X[TRAIN:])
    random = np.random.default_rng(seed)
    left = np.arange(POOL)
    rows = []
    for number in range(num_labels + 1):
        steps = STEPS if number else FIRST_STEPS
        maximise(
            model, max_iterations=steps, progress=False, optimizer=learner.optimizer
        )
        scored = number % SCORED == 0
        if scored or rule == "entropy":
            entropy, probability = (part.numpy() for part in learner.look())
        if scored:
            rows.append(
                {"labels": number, **_scores(probability, classes[TRAIN + POOL :])}
            )
        chosen = (
            left[np.argmax(entropy[left])] if rule == "entropy" else random.choice(left)
        )
        left = left[left != chosen]
        place = slice(TRAIN + chosen, TRAIN + chosen + 1)
        model.condition_on((X[place], Y[place]))
    return rows


def _scores(probability: AnyNDArray, classes: AnyNDArray) -> dict[str, float]:
    return {
        "error_rate": error_rate(classes, probability.argmax(axis=1)),
        "nlpd": mean_nlpd(np.log(probability[np.arange(len(classes)), classes])),
    }
