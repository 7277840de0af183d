"""BLAS threads of SciPy: they busy-wait, and so keep cores from TensorFlow."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_limits: list[threadpool_limits] = []
_users = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """
    Limit BLAS to one thread until the last caller of this has ended.

    The limit is one for the whole process: if each caller restored the limit that it found, the
    last of several that train at a time would leave it at one.
    """
    global _users
    with _lock:
        if _users == 0:
            _limits.append(threadpool_limits(1, user_api="blas"))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limits.pop().restore_original_limits()
