"""
Saving and serving
==================

Ways to keep a trained model: a checkpoint and parameters as a dictionary, which need
the script that made the model; a SavedModel that predicts, which needs only TensorFlow;
and estimators in a folder, or pickled.
"""

import pickle
import tempfile
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_pep as pep

directory = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
X = rng.uniform(0.0, 6.0, (150, 1))
Y = np.sin(2.0 * X) + 0.2 * rng.standard_normal(X.shape)
X_new = np.array([[1.0], [4.0]])


def make_model():
    kernel = gpflow.kernels.SquaredExponential()
    return pep.models.PEPRegression((X, Y), kernel, X[:12].copy(), alpha=0.5)


model = make_model()
pep.training.maximise(model, tolerance=1e-4, window=10, progress=False)
expected = model.predict_f(X_new)[0].numpy()
print(expected.ravel())

# %%
# A checkpoint
# ------------
#
# ``tf.train.Checkpoint`` keeps all parameters, sites of ``PEP`` included. To read it,
# make the same model again, from the same rows: a checkpoint has no code and no data.

path = tf.train.Checkpoint(model=model).write(str(directory / "checkpoint"))
other = make_model()
tf.train.Checkpoint(model=other).read(path).assert_existing_objects_matched()
print(other.predict_f(X_new)[0].numpy().ravel())

# %%
# Parameters as a dictionary
# --------------------------
#
# GPflow's functions give every parameter a name; values can go to any file.

values = gpflow.utilities.read_values(model)
np.savez(directory / "parameters.npz", **values)
other = make_model()
gpflow.utilities.multiple_assign(other, dict(np.load(directory / "parameters.npz")))
print(other.predict_f(X_new)[0].numpy().ravel())

# %%
# A SavedModel that predicts
# --------------------------
#
# Where predictions are made, the training rows and this package need not be. A
# posterior keeps what predictions need, M numbers and an M x M matrix; a compiled
# function of it is what is saved.

posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)
posterior.served = tf.function(
    lambda X: posterior.predict_f(X),
    input_signature=[tf.TensorSpec([None, 1], tf.float64)],
)
tf.saved_model.save(posterior, str(directory / "served"))
loaded = tf.saved_model.load(str(directory / "served"))  # TensorFlow alone is enough
mean, variance = loaded.served(X_new)
print(mean.numpy().ravel())
size = sum(
    file.stat().st_size for file in (directory / "served").rglob("*") if file.is_file()
)
print(f"{size / 1024:.0f} KiB")

# %%
# An estimator
# ------------
#
# The :doc:`estimators </estimators>` are saved in a folder of numbers and descriptions:
# reading it runs no code, and files that somebody changed are refused.

estimator = pep.estimators.PEPRegressor(num_inducing=12, random_state=0).fit(X, Y[:, 0])
pep.estimators.save_estimator(directory / "estimator", estimator)
print(pep.estimators.load_estimator(directory / "estimator").predict(X_new))

# %%
# They can be pickled too, and so kept with ``joblib`` and sent to other processes. A pickle runs
# code when it is read: read only those that you wrote.

(directory / "estimator.pickle").write_bytes(pickle.dumps(estimator))
again = pickle.loads((directory / "estimator.pickle").read_bytes())
print(estimator.predict(X_new), again.predict(X_new))

# %%
# Which one
# ---------
#
# .. list-table::
#    :header-rows: 1
#
#    * - kept by
#      - needs to be read
#      - for
#    * - checkpoint
#      - the script, the rows
#      - going on with training
#    * - dictionary of parameters
#      - the script, the rows
#      - looking at values, other programs
#    * - SavedModel
#      - TensorFlow
#      - predictions in production
#    * - folder of an estimator
#      - this package
#      - estimators and pipelines; what :doc:`/compare` writes
#    * - pickle of an estimator
#      - the same versions, and trust
#      - scikit-learn's tools
