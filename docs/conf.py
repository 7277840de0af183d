"""Configuration of the Sphinx documentation; build it with ``make docs``."""

from pathlib import Path
from typing import Any

import gpflow_pep

project = "gpflow_pep"
author = "The gpflow_pep contributors"
copyright = author
version = release = gpflow_pep.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_click",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
# What a class inherits from GPflow is documented there.
autodoc_inherit_docstrings = False
autosummary_generate = True
# Each object appears once, under the module that defines it.
autosummary_ignore_module_all = True
autosummary_imported_members = False

html_theme = "furo"
html_title = f"gpflow_pep {release}"

# What the reference says of the rooms is what the package says of them.
(Path(__file__).parent / "reference" / "rooms.inc").write_text(
    "".join(
        f"#. :mod:`gpflow_pep.{room}`: {what.replace('`', '``')};\n"
        for room, what in gpflow_pep.ROOMS.items()
    ),
    encoding="utf-8",
)


def _leave_out(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn adds to estimators: its documentation has that."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-skip-member", _leave_out)
