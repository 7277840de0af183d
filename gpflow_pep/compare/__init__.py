"""Comparison of models on the held-out rows of a table, which saves one model and a
report.

Names are imported when they are first used, so that the help of the command line does
not wait for TensorFlow. TensorFlow's messages about the machine do not appear then, as
with the command.
"""

import sys
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ..engine.refusals import imported_when_used
from .process import silent_stderr

if TYPE_CHECKING:
    from ..tables.cleaning import Cleaned as Cleaned
    from ..tables.cleaning import clean as clean
    from ..tables.cleaning import make_preparation as make_preparation
    from ..tables.reading import read_table as read_table
    from .findings import summarise as summarise
    from .predicting import predict_table as predict_table
    from .report import write_report as write_report
    from .run import Comparison as Comparison
    from .run import compare as compare
    from .schedule import Progress as Progress
    from .settings import Settings as Settings
    from .trials import Fit as Fit

_HOMES = {
    **{module.name: f".{module.name}" for module in iter_modules(__path__)},
    **dict.fromkeys(("Cleaned", "clean", "make_preparation"), "..tables.cleaning"),
    **{"Comparison": ".run", "compare": ".run", "read_table": "..tables.reading"},
    **{"Progress": ".schedule", "Fit": ".trials", "Settings": ".settings"},
    **{
        "predict_table": ".predicting",
        "summarise": ".findings",
        "write_report": ".report",
    },
}
__all__ = sorted(_HOMES)
_imported = imported_when_used(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if "tensorflow" in sys.modules:
        return _imported(name)
    with silent_stderr():
        return _imported(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
