"""Copies of models and of their parts."""

import sys
import threading
from collections.abc import Iterator

import gpflow
import pytest

from gpflow_pep.training.fitting.objectives import copy_of


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads that take turns all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hurried")
def test_threads_copy_at_the_same_time() -> None:
    """GPflow's own function fails here with a KeyError, in most threads."""
    copies, errors = [], []

    def work(number: int) -> None:
        try:
            for k in range(30):
                kernel = gpflow.kernels.SquaredExponential(variance=1.0 + number + k)
                values = [kernel.variance + 0.0 for _ in range(3)]  # enter the table
                copies.append((float(copy_of(kernel).variance.numpy()), float(values[0])))
        except Exception as error:  # of whatever kind
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(copies) == 120
    assert all(copy == own for copy, own in copies)


def test_a_copy_that_cannot_be_made_says_why() -> None:
    class Stubborn(gpflow.kernels.White):
        def __deepcopy__(self, memo: object) -> None:
            raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"):
        copy_of(Stubborn())
