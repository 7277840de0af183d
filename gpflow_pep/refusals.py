"""The one form of all refusals. It imports nothing, so that nothing waits for TensorFlow."""

from typing import Any


def message(name: str, got: Any, expected: str, remedy: str) -> str:
    """
    Say what was got, what was expected and what to do: the one form of all refusals.

    :param name: What it is, mostly the name of an argument.
    :param got: What was passed, in words.
    :param expected: What would have been right, in words.
    :param remedy: What to do: whole sentences.
    """
    return f"{name}: got {got}, expected {expected}. {remedy}"


def refusal(name: str, got: Any, expected: str, remedy: str) -> ValueError:
    """
    Make the error that refuses something, for ``raise``; see :func:`message` for the arguments.

    :param name: What it is, mostly the name of an argument.
    :param got: What was passed, in words.
    :param expected: What would have been right, in words.
    :param remedy: What to do: whole sentences.
    """
    return ValueError(message(name, got, expected, remedy))
