"""Functions are traced without a search for garbage."""

import gc

import pytest
import tensorflow as tf

from gpflow_pep.engine.numerics.graphs import without_collector


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_searched_for_while_tracing(enabled: bool) -> None:
    searches, due = [], []

    @without_collector
    def function(x: tf.Tensor) -> tf.Tensor:
        searches.append(gc.isenabled())
        due.append(gc.get_count()[1])
        if x.dtype == tf.int32:
            raise ValueError("refused")
        return 2.0 * x

    try:
        if not enabled:
            gc.disable()
        compiled = tf.function(function)
        gc.collect(0)
        compiled(tf.constant(1.0))
        with pytest.raises(ValueError, match="refused"):
            compiled(tf.constant(1))
        assert searches == [False, False] and gc.isenabled() is enabled
        # What follows does not at once search for what came before: see `without_collector`.
        assert not enabled or due == [0, 0]
    finally:
        gc.enable()
