"""The one form of all refusals; checks of numbers and arrays in its modules. They need
no TensorFlow, so that nothing waits for it.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def message(name: str, got: Any, expected: str, remedy: str) -> str:
    """Describe what was got, what was expected and what to do: the one form of all
    refusals.

    :param name: What it is, mostly the name of an argument.
    """
    return f"{name}: got {got}, expected {expected}. {remedy}"


def refusal(name: str, got: Any, expected: str, remedy: str) -> ValueError:
    """Make the error that refuses something, for ``raise``; see :func:`message` for the
    arguments.

    :param name: What it is, mostly the name of an argument.
    """
    return ValueError(message(name, got, expected, remedy))


def as_code(value: Any) -> str:
    """Write a value as Python code, as ``repr`` does, but with numbers and words of
    NumPy as Python's: 0.5 and not np.float64(0.5), as NumPy 2 writes it.
    """
    import numpy as np  # the help of the command line needs none of it

    if isinstance(value, (np.number, np.bool_, np.str_)):
        return repr(value.item())
    if type(value) is list:
        return f"[{', '.join(map(as_code, value))}]"
    if type(value) is tuple:
        comma = "," if len(value) == 1 else ""
        return f"({', '.join(map(as_code, value))}{comma})"
    if type(value) is dict:
        items = (f"{as_code(key)}: {as_code(each)}" for key, each in value.items())
        return f"{{{', '.join(items)}}}"
    return repr(value)


def counted(number: int, noun: str) -> str:
    """Write a number and its noun: "1 input", "2 inputs", "3 classes"."""
    if number == 1:
        return f"{number} {noun}"
    ending = "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def imported_when_used(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a module whose names are imported when they are first
    used.

    :param module: ``__name__`` of the module.
    :param homes: These names, and the module, relative to this one, that each is in; or
        that it is, where its name is the same.
    """

    def missing(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = import_module(homes[name], module)
        return home if homes[name].endswith(f".{name}") else getattr(home, name)

    return missing
