"""The one form of all refusals. It imports nothing, so that nothing waits for TensorFlow."""

from typing import Any


def message(name: str, got: Any, expected: str, remedy: str) -> str:
    """
    Say what was got, what was expected and what to do: the one form of all refusals.

    :param name: What it is, mostly the name of an argument.
    """
    return f"{name}: got {got}, expected {expected}. {remedy}"


def refusal(name: str, got: Any, expected: str, remedy: str) -> ValueError:
    """
    Make the error that refuses something, for ``raise``; see :func:`message` for the arguments.

    :param name: What it is, mostly the name of an argument.
    """
    return ValueError(message(name, got, expected, remedy))
