"""Public model classes that choose a more special class from their arguments."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Variant = TypeVar("Variant", bound=type)
#: ``(data, kernel, ...)`` as a model is called, to whether the special class is for them.
Suits = Callable[..., bool]

_VARIANTS: dict[type, list[tuple[Suits, type]]] = {}


class _SignatureOfInit:
    """The arguments of a class, which Python would otherwise take from ``__new__``."""

    def __get__(self, _: Any, model: Any) -> inspect.Signature:
        parameters = list(inspect.signature(model.__init__).parameters.values())
        return inspect.Signature(parameters[1:])


def _choose(model: type, *args: Any, **kwargs: Any) -> Any:
    suiting = (variant for suits, variant in _VARIANTS.get(model, ()) if suits(*args, **kwargs))
    return object.__new__(next(suiting, model))


def public_class(model: Any) -> type:
    """Give the class that is called to make a model: of a variant, the general one."""
    kind = type(model)
    owners = [general for general, pairs in _VARIANTS.items() if kind in (v for _, v in pairs)]
    return owners[0] if owners else kind


def variant_of(general: Any, suits: Suits) -> Callable[[Variant], Variant]:
    """
    Decorate a subclass of a model that takes its place for the arguments that suit it.

    A call of the general class then makes an object of the first variant that suits. Its other
    subclasses do not.
    """

    def register(variant: Variant) -> Variant:
        _VARIANTS.setdefault(general, []).append((suits, variant))
        general.__new__ = _choose
        general.__signature__ = _SignatureOfInit()
        return variant

    return register
