"""Configuration of the Sphinx documentation; build it with ``make docs``."""

import os
import pkgutil
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow_pep

HERE = Path(__file__).parent

project = "gpflow_pep"
author = "The gpflow_pep contributors"
copyright = author
version = release = gpflow_pep.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
# Of the gallery, pages are sources; what it writes beside them is not.
exclude_patterns = [
    "_build",
    "tutorials/GALLERY_HEADER.rst",
    "tutorials/*.ipynb",
    "_templates",
]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
# What a class inherits from GPflow is documented there.
autodoc_inherit_docstrings = False
autosummary_generate = True
# A room says in __all__ what is public of it.
autosummary_ignore_module_all = False
autosummary_imported_members = False

html_theme = "furo"
html_title = f"gpflow_pep {release}"
html_css_files = ["style.css"]
# One file with all glyphs in it, so that formulas are drawn without a network.
mathjax = find_spec("sphinx-mathjax-offline")
assert mathjax is not None and mathjax.origin is not None, "call make setup"
html_static_path = [
    "_static",
    str(Path(mathjax.origin).parent / "static" / "mathjax" / "tex-svg.js"),
]
mathjax_path = "tex-svg.js"
# Long formulas scroll by themselves, and the reader's menu needs files that are not
# there.
mathjax3_config = {"options": {"enableMenu": False}}
# Prompts and output are not copied.
copybutton_prompt_text = r"^(\$|host\d\$) "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = False

intersphinx_mapping = run_path(str(HERE / "inventories.py"))["mapping"](
    HERE / "_build" / "inventories"
)

sphinx_gallery_conf = {
    "examples_dirs": "../examples/tutorials",
    "gallery_dirs": "tutorials",
    # One starts processes of its own, and shows what they printed.
    "filename_pattern": r"plot_(?!07)",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "default_thumb_file": str(HERE / "figures" / "snelson.png"),
    "capture_repr": (),
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "only_warn_on_example_error": True,  # a warning is an error
    "image_scrapers": ("matplotlib",),
}

# The rooms whose names users write: those that the reference lists.
REFERENCE = HERE / "reference"
INDEX = (REFERENCE / "index.rst").read_text(encoding="utf-8")
PUBLIC = re.findall(r"^   gpflow_pep\.([\w.]+)$", INDEX, re.MULTILINE)


def _public_names() -> dict[str, str]:
    """What users write, by the name of where it is defined."""
    names = {}
    for room in PUBLIC:
        module = import_module(f"gpflow_pep.{room}")
        for name in getattr(module, "__all__", ()):
            home = getattr(getattr(module, name), "__module__", None)
            if home is not None:
                names[f"{home}.{name}"] = f"gpflow_pep.{room}.{name}"
    return {home: name for home, name in names.items() if home != name}


PUBLIC_NAMES = _public_names()


def _write_inside() -> None:
    """Write the page of all other modules. Autosummary reads pages, and nothing they
    include.
    """
    rooms = "".join(
        f"#. :mod:`gpflow_pep.{room}`: {what.replace('`', '``')};\n"
        for room, what in (
            *(
                (f"engine.{inner}", what)
                for inner, what in gpflow_pep.engine.ROOMS.items()
            ),
            *gpflow_pep.ROOMS.items(),
        )
    )
    # A function may have the name of its module; the reference has the function.
    shown = {f"gpflow_pep.{room}" for room in PUBLIC} | set(PUBLIC_NAMES.values())
    found = {
        module.name
        for module in pkgutil.walk_packages(gpflow_pep.__path__, "gpflow_pep.")
    }
    modules = "".join(f"   {name}\n" for name in sorted(found - shown))
    page = (HERE / "_templates" / "inside.rst").read_text(encoding="utf-8")
    text = page.replace("ROOMS", rooms).replace("MODULES", modules)
    (REFERENCE / "inside.rst").write_text(text, encoding="utf-8")


def _write_forms() -> None:
    """Write the forms of cells, which a page includes."""
    text = run_path(str(HERE / "forms.py"))["page"]()
    (HERE / "_build" / "forms.rst").write_text(text, encoding="utf-8")


_write_inside()
_write_forms()


def _drop_stale() -> None:
    """Remove pages of names that are gone since the last build."""
    for page in [
        *REFERENCE.glob("generated/*.rst"),
        *REFERENCE.glob("internals/*.rst"),
    ]:
        try:
            pkgutil.resolve_name(page.stem)
        except (ImportError, AttributeError):
            page.unlink()


_drop_stale()


def _leave_out(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn adds to estimators, and of modules what users know
    from above.
    """
    if name in ("get_metadata_routing", "set_output", "fit_transform"):
        return True
    if name.startswith("set_") and name.endswith("_request"):
        return True
    home = f"{getattr(member, '__module__', '')}.{getattr(member, '__qualname__', '')}"
    return True if what == "module" and home in PUBLIC_NAMES else None


def _public_target(target: str) -> str | None:
    """Find the public name of what docstrings name by its place in the package."""
    parts = target.split(".")
    for end in range(len(parts), 2, -1):
        public = PUBLIC_NAMES.get(".".join(parts[:end]))
        if public is not None:
            return ".".join([public, *parts[end:]])
    return None


def _resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Lead references to the public name."""
    target = _public_target(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or target is None:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], target, node, contnode
    )


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-skip-member", _leave_out)
    app.connect("missing-reference", _resolve)
