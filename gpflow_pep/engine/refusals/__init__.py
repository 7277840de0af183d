"""The common form of all refusals; its modules check numbers and arrays. They do not
need TensorFlow, so that nothing waits for it.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def message(name: str, got: Any, expected: str, remedy: str) -> str:
    """Write a message with what was got, what was expected and what to do: the common
    form of all refusals.

    :param name: The name of what is refused, mostly of an argument.
    """
    return f"{name}: got {got}, expected {expected}. {remedy}"


def refusal(name: str, got: Any, expected: str, remedy: str) -> ValueError:
    """Make the error for ``raise``; see :func:`message` for the arguments.

    :param name: The name of what is refused, mostly of an argument.
    """
    return ValueError(message(name, got, expected, remedy))


def as_code(value: Any) -> str:
    """Write a value as Python code, like ``repr``, but with numbers and words of NumPy
    as in Python: 0.5 instead of np.float64(0.5), which NumPy 2 writes.
    """
    import numpy as np  # the help of the command line does not need NumPy

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
    :param homes: The names, and for each the module, relative to this one, that has it.
        A name that equals the name of its module is the module itself.
    """

    def missing(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = import_module(homes[name], module)
        return home if homes[name].endswith(f".{name}") else getattr(home, name)

    return missing
