"""Threads of SciPy's linear algebra, which wait for more by keeping the cores from TensorFlow."""

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
    Limit it to one thread, in the whole process, until the last that asked for it has ended.

    The limit is not of a thread but of the process: were each to put back what it had found, the
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
