"""Reading and cleaning of tables and files, and their conversion to numbers, without
TensorFlow.
"""

from typing import TYPE_CHECKING

from ..engine.refusals import imported_when_used
from .formats import Format, read_cells
from .readings import recognise

if TYPE_CHECKING:
    from .encoder import TableEncoder

__all__ = ["Format", "TableEncoder", "read_cells", "recognise"]


# Imported when first used, so that predictions without scikit-learn do not wait for it.
__getattr__ = imported_when_used(__name__, {"TableEncoder": ".encoder"})
