"""The main job: a table in, models compared at several powers, the best one and a report out.

Names are imported when they are first used, so that the help of the command line does not wait for
TensorFlow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasets import Dataset as Dataset
    from .datasets import read_csv as read_csv
    from .fitted import FittedClassifier as FittedClassifier
    from .fitted import FittedModel as FittedModel
    from .fitted import FittedRegression as FittedRegression
    from .report import write_report as write_report
    from .run import Comparison as Comparison
    from .run import FitResult as FitResult
    from .run import Progress as Progress
    from .run import compare as compare
    from .saving import export_saved_model as export_saved_model
    from .saving import load_model as load_model
    from .saving import save_model as save_model

_NAMES = {
    "cli": (),
    "datasets": ("Dataset", "read_csv"),
    "figures": (),
    "fitted": ("FittedClassifier", "FittedModel", "FittedRegression"),
    "report": ("write_report",),
    "run": ("Comparison", "FitResult", "Progress", "compare"),
    "saving": ("export_saved_model", "load_model", "save_model"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted([*_NAMES, *_HOMES])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    return getattr(module, name) if name in _HOMES else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
