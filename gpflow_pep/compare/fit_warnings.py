"""Warnings of a fit in words for users of the command: what each means for the
table.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sklearn.exceptions import ConvergenceWarning as NotConverged

from ..engine.numerics.linalg import JitterWarning
from ..likelihoods import AccuracyWarning
from ..models import ConvergenceWarning
from ..models.base import NO_FACTOR, TrialWarning

_NOT_CONVERGED = (
    "the optimiser or the sites stopped at the limit of steps; the scores may be"
    " worse than possible."
)
#: For each kind of warning of the library and of NumPy: what it means for a row of the
#: table of scores.
MEANINGS: dict[type[Warning], str] = {
    ConvergenceWarning: _NOT_CONVERGED,
    NotConverged: _NOT_CONVERGED,
    TrialWarning: (
        "training met parameters at which the model cannot be computed, and continued"
        " from others; the scores may be worse than possible."
    ),
    JitterWarning: (
        "some inducing points nearly coincide, and a little noise was added to them;"
        " the scores hardly change."
    ),
    AccuracyWarning: (
        "an integral of the likelihood is not exact; the scores are approximate."
    ),
    RuntimeWarning: (  # of NumPy: overflows, divisions by 0, means of no numbers
        "a computation met numbers that are too large, or none; the scores may be worse"
        " than possible."
    ),
}
#: Replaces the advice of the library, which is for people who write programs.
_NO_FACTOR = (
    "the model cannot be computed at the parameters that training met. Columns or rows"
    " that nearly repeat others are a likely cause."
)
#: SciPy's message at the limit of iterations or evaluations, and what users read.
_LIMIT_OF_SCIPY = re.compile(r"STOP: TOTAL NO\.[A-Z,& ]+ LIMIT")
_NO_STEPS_LEFT = "The steps ran out. A larger --max-iterations may help."


def with_warnings(fit: Any, caught: Sequence[warnings.WarningMessage]) -> Any:
    """Add the warnings of a fit to its record.

    :param fit: A :class:`~gpflow_pep.compare.trials.Fit`.
    """
    texts = sentences(caught)
    if _NOT_CONVERGED in texts:
        texts = tuple(text for text in texts if text != _NOT_CONVERGED)
        if fit.converged:  # otherwise the fit has its own message
            fit = fit._replace(converged=False, message=_NOT_CONVERGED)
    return fit._replace(warnings=texts)


def sentences(caught: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """Write warnings in words, each meaning once. A warning of another kind keeps its
    words.
    """
    worded = [_sentence(warning.message, warning.category) for warning in caught]
    return tuple(dict.fromkeys(worded))


def _sentence(message: Warning | str, category: type[Warning]) -> str:
    for kind, meaning in MEANINGS.items():
        if issubclass(category, kind):
            return meaning
    return " ".join(str(message).split())


def plain(message: str) -> str:
    """Write the message of a fit that failed or did not converge in words for users."""
    message = message.replace(NO_FACTOR, _NO_FACTOR)
    return _LIMIT_OF_SCIPY.sub(_NO_STEPS_LEFT, message)


@contextmanager
def warnings_named(name: str) -> Iterator[None]:
    """Repeat the warnings of this context when it ends, in words for users and with a
    name.
    """
    with warnings.catch_warnings(record=True) as caught:
        yield
    for sentence in sentences(caught):
        warnings.warn(f"{name}: {sentence}", stacklevel=3)
