"""The main job: a table in, models compared on held-out rows, one of them and a report out.

Names are imported when they are first used, so that the help of the command line does not wait for
TensorFlow.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ..engine.refusals import absent

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
    **dict.fromkeys(("Cleaned", "clean", "make_preparation"), "..tables.cleaning"),
    **dict.fromkeys(("Comparison", "compare"), "run"),
    "Progress": "schedule",
    **{"Fit": "trials", "Settings": "settings", "read_table": "..tables.reading"},
    "predict_table": "predicting",
    **{"summarise": "findings", "write_report": "report"},
}
__all__ = sorted([*(module.name for module in iter_modules(__path__)), *_HOMES])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return absent(__name__)(name)
    home = _HOMES.get(name, name)
    module = import_module(home if home[0] == "." else f".{home}", __name__)
    return getattr(module, name) if name in _HOMES else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
