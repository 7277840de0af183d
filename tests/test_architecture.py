"""What the package is held to: imports, small functions, levels, one home for each
mechanism.
"""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from tools import faults, matrix, size

import gpflow_pep
from gpflow_pep.estimators.single import when_used

PACKAGE = Path(gpflow_pep.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
#: Rooms, lowest first; those of `engine`, `training`, `estimators` one by one.
INNER = {
    "engine": tuple(gpflow_pep.engine.ROOMS),
    "training": ("starts", "fitting", "choosing", "__init__"),
    "estimators": ("single", "recipe", "__init__"),
}
FLOORS = [f"{room}.{i}" for room in gpflow_pep.ROOMS for i in INNER.get(room, ("",))]
FLOOR = {room.strip("."): floor for floor, room in enumerate(FLOORS)}
#: They only say where names are, and import when one is asked for.
LAZY = [PACKAGE / name / "__init__.py" for name in ("", "engine", "compare")]
SOURCES = {
    path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))
}
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}
MODULES = [path for path in SOURCES if path not in LAZY]

#: Rooms, and parts of rooms, that do not load TensorFlow when they are imported; and
#: the modules in them that do. The estimators import these from
#: `estimators/single/when_used.py`.
WITHOUT_TENSORFLOW = (
    *(f"engine.{room}" for room in ("refusals", "files", "left_out_rows", "records")),
    *("engine.numerics.threads", "tables", "distributions", "scoring", "estimators"),
)
WITH_TENSORFLOW = {
    f"estimators.single.{name}"
    for name in ("describing", "left_out_labels", "numpy_parts", "parts", "trainer")
}
#: What NamedTuple calls its methods.
NAMED_TUPLES = "._replace", "._asdict", "._fields"
#: What models compute with has no public name, and two files of estimators need it: to
#: leave rows of labels out, and to describe near rows for NumPy.
PARTS_OF_MODELS = {
    "left_out_labels.py: model._parts",
    "numpy_parts.py: posterior._parts",
}
#: The most functions with a body of 60 lines or more.
LONG_FUNCTIONS = 5
#: The most levels of our own classes from a public model, itself included, to GPflow's.
LEVELS = 3
#: The most files of the package that the loss of a model passes, eager.
#: Two of them are passed by every loss since products and row counts have fewer
#: operations: ``numerics/tapes.py`` and ``numerics/chunks.py``.
FILES = {"PEPRegression": 11, "PEP": 17, "ARPEP": 14}
#: A mechanism has one home: where a pattern may occur. Each other occurrence needs a
#: reason here.
HOMES = {
    # TensorFlow's private parts: what is compiled by XLA, and what no tape records.
    r"tensorflow\.python|tf\.__internal__|_registry": {
        "engine/checks/graph.py",
        "engine/numerics/tapes.py",
    },
    r"\.set_enable_check_shapes|disable_check_shapes\(": {"compare/process.py"},
    # process.py does so for its whole process, once all is loaded.
    r"\bgc\.": {"compare/process.py", "engine/numerics/graphs.py"},
    # process.py keeps what TensorFlow writes to stderr while it loads: no file that
    # stays.
    r"os\.replace|\btempfile\b": {"compare/process.py", "engine/files.py"},
    r"_rows_version": {"models/base.py"},
    r"isinstance\([^)]*[lL]ikelihood": {
        "engine/checks/arguments.py",
        "estimators/single/parts.py",
    },
}
#: How many errors a room still words by itself, and not by `refusal`; the numbers only
#: fall.
OWN_WORDS = {
    "likelihoods": 5,
    "engine": 2,
    "training": 1,
    "compare": 2,
    "tables": 1,
    "estimators": 6,
}
#: Public names that still have two meanings; none is to be added.
TWO_MEANINGS: set[str] = set()


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def floor_of(module: Sequence[str]) -> str:
    """The room of a module, given by its names below the package: one of `FLOOR`."""
    room = module[0]
    if room not in INNER:
        return room
    return (
        f"{room}.{module[1] if module[1:] and module[1] in INNER[room] else '__init__'}"
    )


def imported_rooms(path: Path) -> Iterator[str]:
    """Rooms of the package that a module imports from, as in `FLOOR`."""
    package = ("gpflow_pep", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = base + (node.module.split(".") if node.module else [])
            targets = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if (
                target[0] == "gpflow_pep"
                and len(target) > 1
                and target[1] != "__version__"
            ):
                yield floor_of(target[1:])


def test_every_room_has_a_place_and_says_what_it_is_for() -> None:
    rooms = {room_of(path) for path in MODULES}
    assert rooms == set(gpflow_pep.ROOMS), "give each room a place in gpflow_pep.ROOMS"
    for room in gpflow_pep.ROOMS:
        assert getattr(gpflow_pep, room).__doc__, f"{room} does not say what it is for"
    folders = {path.name for path in (PACKAGE / "engine").glob("[a-z]*")}
    assert {name.removesuffix(".py") for name in folders} == set(INNER["engine"])


def test_imports_go_down() -> None:
    places = {
        path: floor_of(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in MODULES
    }
    upwards = [
        f"{path.relative_to(PACKAGE)} imports gpflow_pep.{other}"
        for path, place in places.items()
        for other in imported_rooms(path)
        if other != place and not FLOOR.get(other, len(FLOOR)) < FLOOR[place]
    ]
    assert not upwards, "these rooms stand above, or have no place in ROOMS"


def test_contributors_are_told_of_the_rooms() -> None:
    rooms = {
        **gpflow_pep.ROOMS,
        **{f"engine.{n}": w for n, w in gpflow_pep.engine.ROOMS.items()},
    }
    rows = [f"| `{room}` | {what} |" for room, what in rooms.items()]
    assert "\n".join(["|---|---|", *rows, ""]) in CONTRIBUTING.read_text(
        encoding="utf-8"
    )


def test_models_are_at_the_door_too() -> None:
    assert {*gpflow_pep.MODELS, "ConvergenceWarning", "Memory"} == set(
        gpflow_pep.models.__all__
    )
    for name in gpflow_pep.MODELS:
        assert getattr(gpflow_pep, name) is getattr(gpflow_pep.models, name)


def name_of(path: Path) -> str:
    """The name of the module in a file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def test_modules_that_need_no_tensorflow_do_not_load_it() -> None:
    """TensorFlow takes seconds to load, and exact estimators compute with NumPy."""
    names = sorted(map(name_of, SOURCES))
    assert {f"gpflow_pep.{name}" for name in WITH_TENSORFLOW} <= set(names)
    light = [
        name
        for name in names
        if name.removeprefix("gpflow_pep.").startswith(WITHOUT_TENSORFLOW)
        and name.removeprefix("gpflow_pep.") not in WITH_TENSORFLOW
    ]
    code = (
        f"import sys, importlib\nfor name in {light}:\n"
        "    importlib.import_module(name)\n"
        "    if {'gpflow', 'tensorflow'} & sys.modules.keys(): sys.exit(name)"
    )
    assert len(light) > 60
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, f"{ended.stderr} loads TensorFlow"


def test_modules_that_are_imported_when_used_are_those_that_mypy_reads() -> None:
    path = PACKAGE / "estimators/single/when_used.py"
    (for_mypy,) = (node for node in TREES[path].body if isinstance(node, ast.If))
    package = name_of(path).split(".")[:-1]
    names = {}
    for node in for_mypy.body:
        home = []
        if isinstance(node, ast.ImportFrom):
            home = package[: len(package) - node.level + 1]
            home += [node.module] if node.module else []
        assert isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names:
            names[alias.asname or alias.name] = ".".join([*home, alias.name])
    assert sorted([*names, "load_tensorflow"]) == when_used.__all__
    assert {n: getattr(when_used, n).__name__ for n in names} == names


def private_uses(tree: ast.AST) -> Iterator[str]:
    """Attributes whose names begin with one underscore, of other objects."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        name = node.attr
        owner = ast.unparse(node.value)
        is_private = name.startswith("_") and not name.startswith("__")
        if is_private and owner not in ("self", "cls", "super()"):
            yield f"{owner}.{name}"


def test_estimators_use_public_names_of_other_objects() -> None:
    """Single models, recipes and estimators meet by what each of them documents."""
    assert list(private_uses(ast.parse("part._fit(x._y), self._z"))) == [
        "part._fit",
        "x._y",
    ]
    found = {
        f"{path.name}: {use}"
        for path in MODULES
        if room_of(path) == "estimators"
        for use in private_uses(TREES[path])
        if not use.endswith(NAMED_TUPLES)
    }
    assert found <= PARTS_OF_MODELS, found - PARTS_OF_MODELS


def test_files_of_estimators_import_in_one_direction() -> None:
    """Which file is read first is clear, because none imports those that import it."""
    imports: dict[str, set[str]] = {}
    for path in MODULES:
        if room_of(path) == "estimators" and path.name != "__init__.py":
            package = path.relative_to(PACKAGE).parent.parts
            nodes = (n for n in ast.walk(TREES[path]) if isinstance(n, ast.ImportFrom))
            imports[".".join((*package, path.stem))] = {
                ".".join((*package[: len(package) - node.level + 1], node.module or ""))
                for node in nodes
                if node.level
            }
    left = dict(imports)
    while left:
        free = [name for name, used in left.items() if not used & left.keys()]
        assert free, f"a circle: {sorted(left)}"
        for name in free:
            del left[name]
    assert "estimators.single.model" in imports["estimators.recipe.mixture"]


@functools.cache
def measured() -> Any:
    return size.measure(PACKAGE)


def test_functions_are_small() -> None:
    """A function is read once, top down."""
    functions = measured().functions
    branchy = [f.name for f in functions if f.branches >= size.MOST_BRANCHES]
    assert not branchy, "make named steps of these functions"
    long = [f.name for f in functions if f.lines >= size.MOST_LINES]
    assert len(long) <= LONG_FUNCTIONS, long


def test_lines_have_88_columns() -> None:
    assert measured().wide_lines == 0


def levels(model: type) -> int:
    """How many of our own classes stand between a class and those it derives from, with
    it.
    """
    if not model.__module__.startswith("gpflow_pep"):
        return 0
    return 1 + max(levels(base) for base in model.__bases__)


def test_models_derive_from_few_classes() -> None:
    depths = {name: levels(getattr(gpflow_pep, name)) for name in gpflow_pep.MODELS}
    assert max(depths.values()) <= LEVELS, depths


def files_passed(call: Callable[[], Any]) -> set[str]:
    """Files of the package whose functions a call runs, eager."""
    files = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}/"):
            files.add(frame.f_code.co_filename)

    tf.config.run_functions_eagerly(True)
    try:
        call()
        sys.setprofile(note)
        call()
    finally:
        sys.setprofile(None)
        tf.config.run_functions_eagerly(False)
    return files


def losses() -> dict[str, Callable[[], Any]]:
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (30, 2))
    Y = np.sin(X[:, :1])
    Z = X[:6]
    labels = (Y > 0.0).astype(float)
    kernel = gpflow.kernels.SquaredExponential()
    bernoulli = gpflow.likelihoods.Bernoulli()
    tied = gpflow_pep.ARPEP(kernel, bernoulli, Z.copy(), num_data=30)
    return {
        "PEPRegression": (
            gpflow_pep.PEPRegression((X, Y), kernel, Z.copy()).training_loss
        ),
        "PEP": gpflow_pep.PEP((X, labels), kernel, bernoulli, Z.copy()).training_loss,
        "ARPEP": lambda: tied.training_loss((X, labels)),
    }


@pytest.mark.parametrize("name", FILES)
def test_a_loss_passes_few_files(name: str) -> None:
    files = files_passed(losses()[name])
    # It only puts texts together.
    files.discard(f"{PACKAGE}/engine/refusals/__init__.py")
    assert 5 <= len(files) <= FILES[name], sorted(files)


@pytest.mark.parametrize("pattern", HOMES)
def test_a_mechanism_has_one_home(pattern: str) -> None:
    homes = [path for path, text in SOURCES.items() if re.search(pattern, text)]
    homes = [path.relative_to(PACKAGE) for path in homes if "factors" not in path.parts]
    assert {*map(str, homes)} <= HOMES[pattern]


def test_refusals_have_one_form() -> None:
    errors: Counter[str] = Counter()
    for path, text in SOURCES.items():
        errors[room_of(path)] += len(re.findall(r"raise ValueError\(\s*f?\"", text))
    over = [room for room in gpflow_pep.ROOMS if errors[room] > OWN_WORDS.get(room, 0)]
    assert not over, "raise checks.refusal(name, got, expected, remedy)"


def definitions() -> dict[str, set[str]]:
    """Where each class without underscore, and each name that a room exports, is
    defined.
    """
    homes = defaultdict(set)
    for path in MODULES:
        for node in TREES[path].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(f"{name_of(path)}.{node.name}")
    for room in gpflow_pep.ROOMS:
        module = getattr(gpflow_pep, room)
        rooms = {
            name: str(getattr(v, "__module__", "")) for name, v in vars(module).items()
        }
        ours = [
            n for n, of in rooms.items() if n[0] != "_" and of.startswith("gpflow_pep")
        ]
        for name in getattr(module, "__all__", ours):
            value = getattr(module, name)
            where = getattr(value, "__module__", None) or f"{module.__name__}.{name}"
            qualified = getattr(value, "__qualname__", name)
            homes[name].add(f"{where.removesuffix('.__init__')}.{qualified}")
    return homes


def test_public_names_have_one_meaning() -> None:
    twice = {name: where for name, where in definitions().items() if len(where) > 1}
    assert set(twice) <= TWO_MEANINGS, twice


def test_what_the_tools_name_is_there() -> None:
    """The package moves on: the text that a fault replaces has to be there once."""
    tree = Path(__file__).parents[1]
    if not (tree / "gpflow_pep").is_dir():
        pytest.skip("needs the package beside the tests")
    assert faults.check(tree, faults.FAULTS)
    assert all(
        (tree / "tests" / f"{name}.py").is_file() for name in matrix.ROOMS.split()
    )
