"""The number of threads of BLAS; no TensorFlow."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_limits: list[threadpool_limits] = []
_users = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any caller is in this context.

    The limit holds for the whole process. If each caller restored the limit that it
    found, several callers at the same time would leave it at one thread.
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
