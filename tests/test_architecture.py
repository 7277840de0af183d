"""The house: a module imports only from rooms below it, and no module is very long."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gpflow_pep"

#: From the ground up: a room may import from the rooms before it, and within itself. A module of a
#: room that stands on a later room has a place of its own, and nothing below may import it.
ROOMS = [
    ["ops"],
    ["covariances"],
    ["inducing_variables"],
    ["tilted"],
    ["likelihoods"],
    ["sites"],
    ["posterior"],
    ["surrogate"],
    ["cavity"],
    ["energies"],
    ["updates"],
    ["sweep"],
    ["sequential"],
    ["models"],
    ["selection"],
    ["recipes"],
    ["metrics", "training", "distributed"],
    ["compare"],
    ["plotting"],
    ["monitor", "compare.report"],
    ["compare.cli"],
]
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
#: They only say where names are, and import when one is asked for.
LAZY = [PACKAGE / "__init__.py", PACKAGE / "compare" / "__init__.py"]
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path not in LAZY)


def place(parts: Sequence[str]) -> str:
    """Where a module below the package stands: at a place of its own, or in its room."""
    own = ".".join(parts[:2])
    return own if own in FLOOR else parts[0]


def room_of(path: Path) -> str:
    return place(path.relative_to(PACKAGE).with_suffix("").parts)


def imported_rooms(path: Path) -> Iterator[str]:
    """Rooms of the package that a module imports from."""
    package = ("gpflow_pep", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = base + (node.module.split(".") if node.module else [])
            targets = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "gpflow_pep" and len(target) > 1 and target[1] != "__version__":
                yield place(target[1:])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    room = room_of(path)
    assert room in FLOOR, f"{room} has no place in the house: give it one in ROOMS"
    for other in imported_rooms(path):
        assert other in FLOOR, f"{path.name} imports gpflow_pep.{other}, which has no place"
        assert other == room or FLOOR[other] < FLOOR[room], f"{room} imports {other} above it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
