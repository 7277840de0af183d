#!/usr/bin/env python3
"""The package, from its wheel, among the oldest and the newest versions of what it
needs.

    python tests/tools/matrix.py                 # all: make test-matrix
    python tests/tools/matrix.py --pythons python3.12 --ends newest --tests rooms

A cell is a Python and an end of the versions that setup.cfg allows and that have wheels
for it: uv makes an environment with nothing else in it, and tests run from a copy of
this tree that has no package. pyproject.toml replaces what GPflow asks of NumPy. What
a cell showed is kept in a file of its own; the table is made of all these files.
"""

import argparse
import dataclasses
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packaging.metadata import Metadata
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
#: Of uv: direct requirements at their lowest or highest version.
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = ("dev", "parquet", "plots", "excel")
SHOWN = (
    "gpflow tensorflow tf-keras tensorflow-probability numpy scipy scikit-learn pandas"
    " pyarrow matplotlib check-shapes click rich threadpoolctl pytest"
)
FAST = ["-m", "not slow and not reliability"]
#: What is loaded, one after another; the seconds of each are shown.
LOADED = ("gpflow", "+ gpflow_pep", "+ its models", "+ all its rooms")
#: A file or more of each room: of tables and models on disk, pictures, every kind of
#: model.
ROOMS = (
    "test_architecture compare/test_compare compare/test_tables"
    " contracts/test_contract_of_predictions engine/factors/test_multiclass"
    " engine/inducing_variables/test_blurred engine/numerics/test_ops_natural"
    " engine/prior/test_kuf engine/sites/test_fixed_point"
    " estimators/test_save_estimator examples/test_code_of_pages metrics/test_metrics"
    " models/test_pep_rows models/test_regression models/test_tied"
    " plotting/test_pictures stored/test_stored_models tables/test_encoder"
    " training/starts/test_selection training/test_maximise training/test_training"
)
#: Arguments of pytest, by name.
TESTS: dict[str, list[str]] = {
    "fast": FAST,
    "rooms": [*FAST, *(f"tests/{name}.py" for name in ROOMS.split())],
    "none": [],
}
#: Seconds of the processor that each took after the one before: those of the clock
#: depend on what else the machine does.
IMPORTS = """
import importlib, json, time
def seconds(*names):
    before = time.process_time()
    for name in names:
        importlib.import_module(name)
    return time.process_time() - before
found = [seconds("gpflow"), seconds("gpflow_pep"), seconds("gpflow_pep.models")]
import gpflow_pep
rooms = ["gpflow_pep." + room for room in gpflow_pep.ROOMS]
print(json.dumps([*found, seconds(*rooms)]))
"""
#: What pyproject.toml replaces, as uv reports it if NumPy is of another version.
OVERRIDDEN = re.compile(r"The package `gpflow` requires `numpy\b.*")
#: What checks of the installed packages may find: nothing, or NumPy 2 alone.
ACCEPTED = ("ok", "NumPy 2")
REPEATS = 3
FAILURES_SHOWN = 12


@dataclasses.dataclass
class Cell:
    """What was found in one environment."""

    python: str  #: The name or path of an interpreter.
    end: str
    tests: str
    problem: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    pip_check: str = ""
    #: Medians: GPflow; and on top of it the package, its models, all rooms.
    imports: list[float] = dataclasses.field(default_factory=list)
    passed: int = 0
    skipped: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    minutes: float = 0.0

    @property
    def name(self) -> str:
        """Its interpreter without folders."""
        return Path(self.python).name


class Failed(Exception):
    """A command that did not do what it was to; with the end of what it printed."""


def run(*command: object, may_fail: bool = False, **options: Any) -> str:
    """Run a command where nothing of this tree can be imported."""
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
    }
    environ.update(TF_CPP_MIN_LOG_LEVEL="3", OPENBLAS_NUM_THREADS="1")
    environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1")
    environ.update(options.pop("environ", {}))
    options = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        **options,
    }
    done = subprocess.run([str(part) for part in command], env=environ, **options)
    if done.returncode and not may_fail:
        raise Failed(f"{command[0]} ...: " + " ".join(done.stdout.split())[-600:])
    return done.stdout or ""


def uv(*arguments: object, **options: Any) -> str:
    return run(
        sys.executable, "-m", "uv", "--no-python-downloads", *arguments, **options
    )


def copy_tree(folder: Path) -> Path:
    """Copy what git has, or would have, of this tree."""
    names = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    shutil.rmtree(folder, ignore_errors=True)
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(source: Path, dist: Path) -> tuple[Path, Path]:
    """Build an sdist, and of it a wheel."""
    shutil.rmtree(dist, ignore_errors=True)
    uv("build", source, "--out-dir", dist, "--quiet")
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    return sdist, wheel


def check_contents(source: Path, sdist: Path, wheel: Path) -> Metadata:
    """Refuse archives with more or less than the package in them, and metadata that
    indexes do.
    """
    files = filter(Path.is_file, (source / "gpflow_pep").rglob("*"))
    package = {str(path.relative_to(source)) for path in files}
    with zipfile.ZipFile(wheel) as archive:
        described = [name for name in archive.namelist() if ".dist-info/" in name]
        names = {*archive.namelist()} - {*described}
        (text,) = (
            archive.read(name) for name in described if name.endswith("/METADATA")
        )
        metadata = Metadata.from_email(text, validate=True)
    with tarfile.open(sdist) as archive:
        members = [
            member.name.partition("/")[2] for member in archive if member.isfile()
        ]
    inside = {name for name in members if ".egg-info/" not in name}
    meta = {
        "PKG-INFO",
        "pyproject.toml",
        "setup.cfg",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
    }
    for path, found, expected in (
        (wheel, names, package),
        (sdist, inside, package | meta),
    ):
        if found != expected:
            raise Failed(
                f"{path.name}: on one side only: {sorted(found ^ expected)[:20]}"
            )
        print(f"{path.name}: {len(found)} files", flush=True)
    if (
        not any("LICENSE" in name for name in described)
        or "gpflow_pep/py.typed" not in names
    ):
        raise Failed(f"{wheel.name}: no licence or no py.typed in it")
    return metadata


def interpreter(name: str) -> str:
    """Find an interpreter by its name or path."""
    found = shutil.which(name)
    if found is None:
        raise Failed(f"there is no {name} on this machine")
    return found


def requirements(
    metadata: Metadata, python: str, extras: tuple[str, ...] = EXTRAS
) -> str:
    """Of the package and its extras for an interpreter, one a line; extras that name
    others are resolved.
    """
    show = "import platform; print(platform.python_version())"
    version = run(interpreter(python), "-c", show).strip()
    environment = {
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
    }
    lines = set()
    for extra in ("", *extras):
        environment["extra"] = extra
        for one in map(Requirement, map(str, metadata.requires_dist or ())):
            wanted = one.marker is None or one.marker.evaluate(environment)
            if wanted and one.name != metadata.name:
                one.marker = None
                lines.add(str(one))
    return "\n".join(sorted(lines)) + "\n"


def make_environment(
    folder: Path, python: str, end: str, wheel: Path, needed: str
) -> Path:
    """Make an empty environment and install into it; its interpreter."""
    environment = folder / "environment"
    uv("venv", "--quiet", "--clear", "--python", interpreter(python), environment)
    inside = environment / "bin" / "python"
    wanted = folder / "wanted.txt"
    pinned = folder / "pinned.txt"
    wanted.write_text(needed)
    options = ["--resolution", RESOLUTIONS[end], "--only-binary", ":all:", "--quiet"]
    options += ["--output-file", pinned]
    # uv reads pyproject.toml in the folder where it runs.
    uv("pip", "compile", wanted, "--python", inside, *options, cwd=ROOT)
    uv(
        "pip",
        "install",
        "--quiet",
        "--python",
        inside,
        "--no-deps",
        "--requirement",
        pinned,
        wheel,
    )
    return inside


def check_installed(inside: Path) -> str:
    """Check what installed packages ask of each other: "ok", or what is wrong."""
    said = uv("pip", "check", "--python", inside, may_fail=True)
    wrong = [line for line in said.splitlines() if line.startswith("The package")]
    if "All installed packages are compatible" in said:
        return "ok"
    if wrong and all(OVERRIDDEN.fullmatch(line) for line in wrong):
        return "NumPy 2"
    return said


def measure_imports(inside: Path, folder: Path) -> list[float]:
    """Medians of interpreters one after the other; the first only compiles bytecode."""
    said = [
        run(inside, "-c", IMPORTS, cwd=folder).splitlines() for _ in range(REPEATS + 1)
    ][1:]
    found = [json.loads(lines[-1]) for lines in said]
    return [sorted(column)[REPEATS // 2] for column in zip(*found)]


def run_tests(cell: Cell, inside: Path, folder: Path, tree: Path, jobs: int) -> None:
    """Run them in a copy of the tree without the package."""
    outside = folder / "tree"
    report = folder / "report.xml"
    shutil.rmtree(outside, ignore_errors=True)
    shutil.copytree(tree, outside, ignore=shutil.ignore_patterns("gpflow_pep"))
    report.unlink(missing_ok=True)
    command = [inside, "-m", "pytest", *TESTS[cell.tests], f"--junitxml={report}", "-q"]
    command += ["-p", "no:cacheprovider", *(("-n", jobs) if jobs > 1 else ())]
    # The environment's commands are found by name in tests of the command line.
    environ = {"PATH": os.pathsep.join([str(inside.parent), os.environ["PATH"]])}
    with (folder / "log.txt").open("w") as log:
        run(*command, cwd=outside, may_fail=True, environ=environ, stdout=log)
    if not report.is_file():
        raise Failed(
            "pytest: " + " ".join((folder / "log.txt").read_text().split())[-600:]
        )
    suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    for case in suite.iter("testcase"):
        bad = [one for one in case if one.tag in ("failure", "error")]
        skipped = any(one.tag == "skipped" for one in case)
        name = f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
        said = " ".join((bad[0].get("message") or "").split()) if bad else ""
        cell.failures += [f"{name}: {said[:80]}"] if bad else []
        cell.skipped += skipped
        cell.passed += not (bad or skipped)
    cell.minutes = float(suite.get("time", "nan")) / 60.0


def try_cell(
    cell: Cell, folder: Path, tree: Path, wheel: Path, metadata: Metadata, jobs: int
) -> None:
    """Fill in what is found, up to what goes wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        needed = requirements(metadata, cell.python)
        inside = make_environment(folder, cell.python, cell.end, wheel, needed)
        frozen = uv("pip", "freeze", "--python", inside)
        cell.versions = dict(re.findall(r"^([\w.-]+)==(\S+)$", frozen, re.MULTILINE))
        said = run(inside, "-c", "import platform as p; print(p.python_version())")
        cell.versions["python"] = said.strip()
        cell.pip_check = check_installed(inside)
        cell.imports = measure_imports(inside, folder)
        if TESTS[cell.tests]:
            run_tests(cell, inside, folder, tree, jobs)
    except Failed as error:
        cell.problem = str(error)


def table(cells: list[Cell], version: str) -> str:
    """Print cells side by side, and below them what failed."""
    rows = [
        _row("", cells, lambda cell: cell.end),
        _row("python", cells, lambda cell: cell.versions.get("python", cell.name)),
    ]
    for name in SHOWN.split():
        rows.append(_row(name, cells, lambda cell, name=name: _version(cell, name)))
    rows += [
        "",
        _row("pip check", cells, _checked),
        _row("tests", cells, lambda cell: cell.tests),
        _row("  passed", cells, lambda cell: str(cell.passed)),
        _row("  failed", cells, lambda cell: str(len(cell.failures))),
        _row("  skipped", cells, lambda cell: str(cell.skipped)),
        _row("  minutes", cells, lambda cell: f"{cell.minutes:.0f}"),
        "",
        "CPU seconds of imports",
    ]
    for place, name in enumerate(LOADED):
        seconds = _row(
            f"  {name}", cells, lambda cell, place=place: _seconds(cell, place)
        )
        rows.append(seconds)
    for cell in cells:
        rows += _problems(cell)
    today = datetime.date.today().isoformat()
    head = (
        f"gpflow_pep {version}, installed from the wheel of its sdist; printed on"
        f" {today}\n"
    )
    return "\n".join([head, *rows, ""])


def _row(name: str, cells: list[Cell], text: Callable[[Cell], str]) -> str:
    """Write a line of the table."""
    columns = "".join(f"{text(cell):>11}" for cell in cells)
    return f"{name:24}{columns}".rstrip()


def _version(cell: Cell, name: str) -> str:
    return cell.versions.get(name, "-")


def _checked(cell: Cell) -> str:
    return cell.pip_check if cell.pip_check in ACCEPTED else "no"


def _seconds(cell: Cell, place: int) -> str:
    return f"{cell.imports[place]:.2f}" if cell.imports else "-"


def _problems(cell: Cell) -> list[str]:
    """List what went wrong in a cell, under a heading; empty if nothing did."""
    lines = [f"FAILED {name}" for name in cell.failures[:FAILURES_SHOWN]]
    more = len(cell.failures) - FAILURES_SHOWN
    if more > 0:
        lines.append(f"and {more} more")
    if cell.pip_check not in ACCEPTED:
        lines.insert(0, cell.pip_check)
    if cell.problem:
        lines.insert(0, cell.problem)
    if not lines:
        return []
    heading = f"{cell.end} versions, {cell.name}:"
    return ["", heading, *(f"  {line}" for line in lines)]


def kept(folder: Path) -> list[Cell]:
    """Every cell that was run, in order."""
    found = [
        Cell(**json.loads(path.read_text())) for path in folder.glob("*/cell.json")
    ]
    ends = list(RESOLUTIONS)
    return sorted(found, key=lambda cell: (ends.index(cell.end), cell.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    pythons = ["python3.10", "python3.11", "python3.12", "python3.13"]
    parser.add_argument("--pythons", nargs="+", default=pythons, help="names or paths")
    parser.add_argument(
        "--ends", nargs="+", default=["oldest", "newest"], choices=RESOLUTIONS
    )
    parser.add_argument("--tests", default="fast", choices=TESTS)
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest")
    parser.add_argument("--folder", type=Path, default=Path("matrix-output"))
    parser.add_argument("--table", type=Path, help="the file to write the table to")
    options = parser.parse_args()
    folder = options.folder.resolve()
    tree = copy_tree(folder / "source")
    sdist, wheel = build(tree, folder / "dist")
    metadata = check_contents(tree, sdist, wheel)
    for python, end in (
        (python, end) for python in options.pythons for end in options.ends
    ):
        cell = Cell(python, end, options.tests)
        place = folder / f"{cell.name}-{end}"
        try_cell(cell, place, tree, wheel, metadata, options.jobs)
        (place / "cell.json").write_text(json.dumps(dataclasses.asdict(cell)))
        ended = f"{cell.passed} passed, {len(cell.failures)} failed {cell.problem}"
        print(f"{cell.name}, {end}: {ended}", flush=True)
    cells = kept(folder)
    text = table(cells, str(metadata.version))
    print(text)
    if options.table:
        options.table.write_text(text, encoding="utf-8")
    sys.exit(
        any(
            cell.problem or cell.failures or cell.pip_check not in ACCEPTED
            for cell in cells
        )
    )


if __name__ == "__main__":
    main()
