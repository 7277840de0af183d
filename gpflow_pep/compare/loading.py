"""How the command loads TensorFlow and GPflow: without their messages, and in less time."""

import atexit
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
#: With 1 TensorFlow takes Keras 2, which is loaded anyway, and does not load Keras 3 as well.
OLD_KERAS = "TF_USE_LEGACY_KERAS"


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Import what needs TensorFlow in this context."""
    with _silent_stderr(), _without_shape_checks():
        yield


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """
    Keep TensorFlow's messages about the machine off the terminal, unless the user set their level.

    Some are written before TensorFlow reads that level, so all that is written is kept back; it is
    shown if the import fails.
    """
    if LOG_LEVEL in os.environ:
        yield
        return
    os.environ[LOG_LEVEL] = "3"
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            yield
        except BaseException:
            messages.seek(0)
            os.write(terminal, messages.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


@contextmanager
def _without_shape_checks() -> Iterator[None]:
    """
    Leave out what takes seconds, where the command is alone in its process.

    GPflow's checks of shapes parse their own language when GPflow is loaded. They help those who
    write programs; a user's table is checked before. And Python's collector would search all that
    was loaded for garbage again and again, and once more at the end.
    """
    if "gpflow" in sys.modules:
        yield
        return
    os.environ.setdefault(OLD_KERAS, "1")
    gc.disable()
    try:
        import check_shapes

        check_shapes.set_enable_check_shapes(False)
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.freeze)
