"""At which powers a model has what was asked for: a lower bound, or a scaled conditional."""

import tensorflow as tf

from .. import checks


def require_bound(alpha: tf.Tensor, name: str) -> list[tf.Operation]:
    """Refuse powers at which log Z is no lower bound, by the name of what needs one."""
    text = checks.message(
        name,
        "a power alpha above 0",
        "0 for all rows: log Z is a lower bound there only",
        "Use pep_log_marginal_likelihood, the estimate of the log marginal likelihood at any alpha"
        " (at 1 that of EP and FITC), or set the power first: model.alpha = 0.0.",
    )
    return checks.require(tf.reduce_all(tf.equal(alpha, 0.0)), text)


def check_powers(alpha: tf.Tensor) -> tf.Tensor:
    """Let powers pass at which a scaled conditional is known for any likelihood."""
    known = tf.reduce_all(tf.equal(alpha, 0.0) | tf.equal(alpha, 1.0))
    text = checks.message(
        "alpha",
        "a power between 0 and 1 with conditional='scaled'",
        "0 or 1 for each row: no scale is known for the powers between that is right for any"
        " likelihood",
        "Assign or pass alpha=0.0, leave conditional out, or use PEPRegression if the noise is"
        " Gaussian.",
    )
    with tf.control_dependencies(checks.require(known, text)):
        return tf.identity(alpha)
