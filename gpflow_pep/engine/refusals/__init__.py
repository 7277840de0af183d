"""The common form of all refusals; its modules check numbers and arrays. They do not
need TensorFlow, so that nothing waits for it.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any

#: The largest number of names that are suggested.
MOST_SUGGESTED = 4
#: The least similarity of spellings, from 0 to 1. Five letters of which two are swapped
#: have 0.8; names of files that share only an ending have about 0.6.
LEAST_SIMILAR = 0.7


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


def similar(name: str, names: Iterable[Any]) -> list[str]:
    """Find the names that are spelt like a name, best first, by ``difflib``. Capitals,
    and the characters between words, do not count.
    """

    def plain(text: str) -> str:
        return re.sub(r"[\W_]+", " ", text.casefold()).strip()

    spellings: dict[str, list[str]] = {}
    for other in names:
        spellings.setdefault(plain(str(other)), []).append(str(other))
    close = get_close_matches(plain(name), spellings, cutoff=LEAST_SIMILAR)
    return [other for spelling in close for other in spellings[spelling]]


def did_you_mean(names: Iterable[Any]) -> str:
    """Ask whether one of some names was meant; empty if there are none."""
    shown = list(map(str, names))[:MOST_SUGGESTED]
    return f"Did you mean {' or '.join(shown)}?" if shown else ""


def with_suggestion(remedy: str, wrong: Iterable[Any], names: Iterable[Any]) -> str:
    """Begin a remedy with the names that are similar to wrong names, if there are any.

    :param wrong: The names that do not exist.
    :param names: The names that exist.
    """
    names = list(names)
    meant = [repr(other) for name in wrong for other in similar(str(name), names)]
    return f"{did_you_mean(dict.fromkeys(meant))} {remedy}".lstrip()


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


#: Held while a module is imported by :class:`ModuleWhenUsed`: if several threads enter
#: TensorFlow or GPflow by different modules, each finds the others half imported.
_importing = RLock()


class ModuleWhenUsed(ModuleType):
    """A module that is imported when one of its names is first used, by any thread::

        gpflow = ModuleWhenUsed("gpflow")  # instead of: import gpflow

    :param name: The full name of the module.
    """

    def __getattr__(self, name: str) -> Any:
        with _importing:
            if self.__name__ not in sys.modules:
                # What it warns of while it loads is not about the call that needs it.
                # Only this kind, because another thread may keep the filter.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    import_module(self.__name__)
            module = import_module(self.__name__)
        return getattr(module, name)
