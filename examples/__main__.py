"""Run an example: ``python -m examples NAME``, or list them: ``python -m examples``."""

import ast
import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = ("", "benchmarks", "papers")


def commands() -> dict[str, tuple[str, str]]:
    """The module of each name, and the first line of its docstring, read without
    importing it.
    """
    found = {}
    for folder in FOLDERS:
        for path in sorted((HERE / folder).glob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {getattr(node, "name", None) for node in tree.body}
            names |= {
                getattr(t, "id", "")
                for n in tree.body
                for t in getattr(n, "targets", ())
            }
            if "main" in names:
                module = ".".join(filter(None, ("examples", folder, path.stem)))
                found[path.stem] = (
                    module,
                    (ast.get_docstring(tree) or "").partition("\n")[0],
                )
    return found


def run(arguments: list[str]) -> None:
    """Run the example that the first argument names, with the others."""
    known = commands()
    if not arguments or arguments[0] in ("-h", "--help"):
        print("python -m examples NAME [--quick] [--help] [OPTIONS]\n")
        width = max(map(len, known))
        for name, (module, about) in known.items():
            print(
                f"{name:{width}} {about}"
                + (" (papers)" if ".papers." in module else "")
            )
        return
    name, *rest = arguments
    if name not in known:
        sys.exit(f"Got the example {name}, expected one of {', '.join(known)}.")
    sys.argv = [f"python -m examples {name}", *rest]
    import_module(known[name][0]).main()


if __name__ == "__main__":
    run(sys.argv[1:])
