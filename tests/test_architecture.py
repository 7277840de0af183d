"""The house: a module imports only from rooms below it, and no module is very long."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpflow_pep

PACKAGE = Path(gpflow_pep.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
FLOOR = {room: floor for floor, room in enumerate(gpflow_pep.ROOMS)}
#: They only say where names are, and import when one is asked for.
LAZY = [PACKAGE / "__init__.py", PACKAGE / "compare" / "__init__.py"]
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path not in LAZY)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


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
                yield target[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    room = room_of(path)
    assert room in FLOOR, f"{room} has no place in the house: give it one in gpflow_pep.ROOMS"
    for other in imported_rooms(path):
        assert other in FLOOR, f"{path.name} imports gpflow_pep.{other}, which has no place"
        assert other == room or FLOOR[other] < FLOOR[room], f"{room} imports {other} above it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_contributors_are_told_of_the_rooms() -> None:
    rows = [f"| `{room}` | {what} |" for room, what in gpflow_pep.ROOMS.items()]
    assert "\n".join(["|---|---|", *rows, ""]) in CONTRIBUTING.read_text(encoding="utf-8")


def test_every_room_is_named_at_the_door() -> None:
    assert set(gpflow_pep.ROOMS) == {room_of(path) for path in MODULES}
    for room in gpflow_pep.ROOMS:
        assert getattr(gpflow_pep, room).__doc__, f"{room} does not say what it is for"


def test_models_are_at_the_door_too() -> None:
    assert {*gpflow_pep.MODELS, "ConvergenceWarning", "Memory"} == set(gpflow_pep.models.__all__)
    for name in gpflow_pep.MODELS:
        assert getattr(gpflow_pep, name) is getattr(gpflow_pep.models, name)
