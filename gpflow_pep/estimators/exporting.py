"""Fitted estimators as TensorFlow SavedModels, to predict wherever TensorFlow runs."""

import json
from os import PathLike
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..engine.checks import refusal
from ..engine.files import SAVED_MODEL, files_in, replaced_folder
from ..engine.numerics.graphs import without_collector
from ..engine.numerics.linalg import graphs_exported
from ..scoring.inputs import FARTHEST, YeoJohnson
from ..tables import TableEncoder
from .base import PEPEstimator
from .classifier import PEPClassifier
from .exporting_columns import column_specs, encode_columns
from .regressor import PEPRegressor
from .target_units import predict_in


class Prediction(NamedTuple):
    """Mean and variance of y at new rows, noise included, in original units: [N, 1] each."""

    mean: TensorType
    variance: TensorType


class ClassProbabilities(NamedTuple):
    """The probability of each class at new rows, [N, C]."""

    probability: TensorType


def export_saved_model(folder: str | PathLike[str], estimator: Any) -> None:
    """
    Export the predictions as a TensorFlow SavedModel, which needs neither this package nor GPflow::

        predictor = tf.saved_model.load("pep_results/saved_model")
        mean, variance = predictor.predict_y(X)  # X: [N, D] of GPflow's float, original units

    For a classifier it gives the probabilities of ``classes_``, [N, C]. It keeps q(u), not the
    training data, but for estimators whose predictions use near rows (``near_rows_`` is not 0):
    these rows are in the file. Of a pipeline it is the last step, whose inputs are what the steps
    before it make; ``predictor.columns``, a variable of strings, names them. Of a
    :class:`~gpflow_pep.tables.TableEncoder` with an estimator after it there is also
    ``predictor.predict_table``, which takes the columns of a table: a dictionary of vectors,
    numbers with NaN where one is missing, dates as days since 1970-01-01, and words, empty where
    one is missing, spelled as in the training rows::

        predictor.predict_table({"area": [71.5, nan], "region": ["Nord", ""]})

    :param folder: As of :func:`~gpflow_pep.estimators.saving.save_estimator`.
    :param estimator: A fitted estimator, or a pipeline that ends with one.
    :raises ValueError: If it is another; or if the folder has other files.
    """
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not isinstance(last, PEPEstimator):
        expected = "a PEPRegressor or PEPClassifier, or a pipeline that ends with one"
        remedy = "Export what it is made of."
        raise refusal("estimator", f"a {type(last).__name__}", expected, remedy)
    check_is_fitted(last)
    parts = last.components_
    posteriors, weights = [part.posterior_ for part in parts], last.weights_
    classes = parts if isinstance(last, PEPClassifier) else ()
    columns = [part.columns_of(last) for part in classes]
    dtype = gpflow.default_float()
    rows = tf.TensorSpec([None, last.n_features_in_], dtype, name="X")
    with graphs_exported():

        @without_collector
        def predict(X: tf.Tensor) -> Any:
            changed = [_scaled(part.input_scaler_, X) for part in parts]
            if isinstance(last, PEPRegressor):
                units = [part._target for part in last.components_]
                moments = [*map(predict_in, units, posteriors, changed)]
                return Prediction(
                    *(moments[0] if last._stack is None else last._stack.moments(moments))
                )
            every = zip(posteriors, changed, columns, strict=True)
            mixed = [tf.gather(p.predict_probabilities(x), c, axis=1) for p, x, c in every]
            p = tf.tensordot(tf.constant(weights, dtype), tf.stack(mixed), 1)
            power = last.recalibration_.scale**-2.0
            p = (p / tf.reduce_max(p, axis=1, keepdims=True)) ** power
            return ClassProbabilities(p / tf.reduce_sum(p, axis=1, keepdims=True))

        @tf.function(input_signature=[rows])
        def predict_y(X: tf.Tensor) -> Any:
            return predict(X)

        module = tf.Module()
        module.posteriors = posteriors
        names = [str(name) for name in _columns(estimator)]
        module.columns = tf.Variable(names, trainable=False)
        module.predict_y = predict_y
        steps = [step for _, step in getattr(estimator, "steps", ())]
        if len(steps) == 2 and type(steps[0]) is TableEncoder:
            encoder = steps[0]
            specs = column_specs(encoder)
            module.predict_table = tf.function(
                lambda columns: predict(encode_columns(encoder, columns)), input_signature=[specs]
            )
            module.predict_table.get_concrete_function(specs)
        with replaced_folder(folder, SAVED_MODEL) as new:
            try:
                tf.saved_model.save(module, str(new), signatures=predict_y)
            except tf.errors.OpError as error:  # of a full disk, for example
                raise OSError(error.message) from error
            description = {"versions": {"gpflow_pep": __version__, "tensorflow": tf.__version__}}
            files = sorted({*files_in(new), SAVED_MODEL})
            (new / SAVED_MODEL).write_text(json.dumps(description | {"files": files}))


def _scaled(scaler: Any, X: tf.Tensor) -> tf.Tensor:
    """Change inputs to those of a model, as its estimator does."""
    if not isinstance(scaler, YeoJohnson):
        offset: Any = np.asarray(
            0.0 if scaler.mean_ is None else scaler.mean_, X.dtype.as_numpy_dtype
        )
        scale: Any = np.asarray(1.0 if scaler.scale_ is None else scaler.scale_, offset.dtype)
        return (X - offset) / scale
    parts = (tf.constant(part, X.dtype) for part in scaler)
    mean, scale, powers, second_mean, second_scale = parts
    z = (X - mean) / scale
    power = tf.where(z < 0.0, 2.0 - powers, powers)
    is_log = tf.abs(power) < 1e-12
    logs = tf.math.log1p(tf.abs(z))
    bent = tf.where(
        is_log, logs, tf.math.expm1(power * logs) / tf.where(is_log, tf.ones_like(z), power)
    )
    return tf.clip_by_value((tf.sign(z) * bent - second_mean) / second_scale, -FARTHEST, FARTHEST)


def _columns(estimator: Any) -> list[str]:
    if isinstance(estimator, Pipeline) and len(estimator.steps) > 1:
        return list(estimator[:-1].get_feature_names_out())
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    return list(getattr(last, "feature_names_in_", map("x{}".format, range(last.n_features_in_))))
