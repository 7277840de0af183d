#!/usr/bin/env python3
"""Build the archives of a release in dist, and try the wheel where nothing else is.

    python tests/tools/release.py            # make dist

The sdist and the wheel have to hold the package and nothing else, and metadata that
indexes take. The wheel is installed into an empty environment, with the newest versions
of what it needs and without extras; there the code of its README runs, in a folder
outside of the repository, and the command line too.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from matrix import (
    ACCEPTED,
    Failed,
    build,
    check_contents,
    check_installed,
    copy_tree,
    make_environment,
    requirements,
    run,
    uv,
)

#: It runs in an environment of its own, since nothing else here needs it.
TWINE = ("tool", "run", "--quiet", "twine==7.0.0")
COMMANDS = (
    ("--help",),
    (
        "compare",
        "--example",
        "diabetes",
        "--inducing",
        "10",
        "--folds",
        "2",
        "--no-baselines",
    ),
)


def python_of(readme: str) -> str:
    """Join the Python of a page, which is one program."""
    return "\n".join(
        re.findall(r"^```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    )


def try_wheel(python: str, wheel: Path, needed: str, readme: str, folder: Path) -> None:
    """Install a wheel alone, and run what its README shows."""
    inside = make_environment(folder, python, "newest", wheel, needed)
    checked = check_installed(inside)
    if checked not in ACCEPTED:
        raise Failed(checked)
    show = "import gpflow_pep as pep; print(pep.__version__, pep.__file__)"
    version, place = run(inside, "-c", show, cwd=folder).split(maxsplit=1)
    if not place.startswith(str(inside.parents[1])):
        raise Failed(f"gpflow_pep {version} was imported from {place.strip()}")
    print(f"gpflow_pep {version} is in an environment of its own")
    (folder / "readme.py").write_text(python_of(readme), encoding="utf-8")
    run(inside, "readme.py", cwd=folder)
    print("the code of the README runs")
    for arguments in COMMANDS:
        run(inside.parent / "gpflow-pep", *arguments, cwd=folder)
        print("gpflow-pep", *arguments, "runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="of the environment")
    parser.add_argument(
        "--dist", type=Path, default=Path("dist"), help="where archives are left"
    )
    options = parser.parse_args()
    dist = options.dist.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = copy_tree(folder / "source")
        sdist, wheel = build(tree, dist)
        metadata = check_contents(tree, sdist, wheel)
        print(uv(*TWINE, "check", "--strict", sdist, wheel).strip())
        place = folder / "elsewhere"
        place.mkdir()
        readme = metadata.description or ""
        try_wheel(
            options.python,
            wheel,
            requirements(metadata, options.python, extras=()),
            readme,
            place,
        )
    print(f"{sdist}\n{wheel}")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(str(error))
