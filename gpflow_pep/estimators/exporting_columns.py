"""The columns of a table made numbers by TensorFlow, as a TableEncoder does it."""

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf

from ..tables import TableEncoder
from ..tables.conventions import MARKS_IN_WORDS
from ..tables.encodings import CYCLES, Encoding


def column_specs(encoder: TableEncoder) -> dict[str, tf.TensorSpec]:
    """Describe what :func:`encode_columns` takes: a vector for each column, words or floats."""
    dtypes = {"text": tf.string}
    return {
        name: tf.TensorSpec(
            [None], dtypes.get(form.kind, gpflow.default_float()), name=f"column_{d}"
        )
        for d, (name, form) in enumerate(encoder.formats.items())
    }


def encode_columns(encoder: TableEncoder, columns: dict[str, tf.Tensor]) -> tf.Tensor:
    """
    Turn columns into numbers, [N, number of names]: what ``encoder.transform`` gives for a table.

    :param encoder: A fitted one.
    :param columns: Each [N]: words, the empty one where there is none; numbers, and dates as days
        since 1970-01-01, NaN where there is none.
    """
    encoded, missing = [], []
    for name, form in encoder.formats.items():
        learnt, values = encoder.encodings_[name], columns[name]
        if form.kind == "text":
            absent, parts = _encode_words(values, learnt, form.missing or MARKS_IN_WORDS)
        else:
            for sentinel in form.sentinels:
                values = tf.where(values == sentinel, tf.constant(np.nan, values.dtype), values)
            absent, parts = _encode_numbers(values, learnt)
        encoded += [*parts, *[absent] * learnt.missing]
        missing.append(absent)
    numbers = tf.stack([tf.cast(part, gpflow.default_float()) for part in encoded], axis=1)
    unknown = tf.reduce_all(tf.stack(missing, axis=1), axis=1, keepdims=True)
    return tf.where(unknown, tf.constant(np.nan, numbers.dtype), numbers)


def _encode_words(
    words: tf.Tensor, learnt: Encoding, marks: Sequence[str]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    words = tf.strings.strip(words)
    missing = tf.reduce_any(tf.equal(words[:, None], ["", *marks]), axis=1)
    parts = [tf.equal(words, category) for category in learnt.categories]
    if learnt.others:
        known = tf.reduce_any(tf.stack([missing, *parts]), axis=0)
        parts.append(~known)
    return missing, parts


def _encode_numbers(values: tf.Tensor, learnt: Encoding) -> tuple[tf.Tensor, list[tf.Tensor]]:
    missing = tf.math.is_nan(values)
    values = tf.where(missing, tf.constant(learnt.median, values.dtype), values)
    parts = [values]
    for cycle in learnt.cycles:
        angle = 2.0 * np.pi * values / CYCLES[cycle]
        parts += [tf.sin(angle), tf.cos(angle)]
    return missing, parts
