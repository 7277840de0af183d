"""Size that no layout changes: nodes of the syntax tree, branches, big functions.

    python tests/tools/size.py gpflow_pep
    python tests/tools/size.py gpflow_pep tests

Nodes are those of ``ast.walk`` without docstrings, contexts and operators. A branch is
an if, a ternary, a loop, a comprehension, a try, an except, an and/or, a match. A
function is big with 15 branches or more, or 60 lines of body or more.
"""

import ast
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

LEFT_OUT = (
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
)
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.Try,
    ast.ExceptHandler,
    ast.comprehension,
    ast.BoolOp,
    ast.Match,
)
MOST_BRANCHES = 15
MOST_LINES = 60
COLUMNS = 88


class Function(NamedTuple):
    """The body of a function, without its docstring."""

    name: str  #: The file and the name.
    nodes: int
    branches: int
    lines: int

    def is_big(self) -> bool:
        return self.branches >= MOST_BRANCHES or self.lines >= MOST_LINES


class Size(NamedTuple):
    """The size of a folder."""

    nodes: int
    branches: int
    lines: int
    wide_lines: int  #: Of more than 88 columns.
    open_names: int  #: Functions and classes of modules, without an underscore.
    functions: Sequence[Function]


def is_docstring(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def count(node: ast.AST) -> tuple[int, int]:
    """Count nodes and branches of a tree."""
    kept = [n for n in ast.walk(node) if not isinstance(n, LEFT_OUT)]
    docstrings = sum(map(is_docstring, kept))
    branches = sum(isinstance(n, BRANCHES) for n in kept)
    return len(kept) - 2 * docstrings, branches


def functions_of(path: Path, tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        body = node.body[1:] if is_docstring(node.body[0]) else node.body
        if body:
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
            nodes, branches = map(sum, zip(*map(count, body)))
            yield Function(f"{path}:{node.name}", nodes, branches, lines)


def measure(folder: Path) -> Size:
    nodes = branches = lines = wide = names = 0
    functions: list[Function] = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        of_file = count(tree)
        nodes = nodes + of_file[0]
        branches = branches + of_file[1]
        lines += len(text.splitlines())
        wide += sum(len(line) > COLUMNS for line in text.splitlines())
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names += not node.name.startswith("_")
        functions += functions_of(path, tree)
    return Size(nodes, branches, lines, wide, names, functions)


def main(folders: Sequence[str]) -> None:
    for folder in folders:
        size = measure(Path(folder))
        dense = statistics.median(f.nodes / f.lines for f in size.functions)
        big = sorted(filter(Function.is_big, size.functions), key=lambda f: -f.branches)
        print(
            f"{folder}: nodes {size.nodes}, branches {size.branches}, lines"
            f" {size.lines}, nodes a line, median of bodies {dense:.1f}, big functions"
            f" {len(big)}, open names {size.open_names}, lines of more than"
            f" {COLUMNS} columns {size.wide_lines}"
        )
        for function in big:
            print(
                f"  {function.branches:3} branches {function.lines:4} lines  ", end=""
            )
            print(function.name)


if __name__ == "__main__":
    main(sys.argv[1:])
