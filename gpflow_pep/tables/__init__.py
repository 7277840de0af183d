"""Reading and cleaning of tables and files, and their conversion to numbers, without
TensorFlow.
"""

from typing import TYPE_CHECKING, Any

from .formats import Format, read_cells
from .readings import recognise

if TYPE_CHECKING:
    from .encoder import TableEncoder

__all__ = ["Format", "TableEncoder", "read_cells", "recognise"]


# Imported when first used, so that predictions without scikit-learn do not wait for it.
def __getattr__(name: str) -> Any:
    if name != "TableEncoder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .encoder import TableEncoder

    return TableEncoder
