"""Conversion of GPflow's objects to JSON and arrays, and back, without pickle."""

import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module
from gpflow.likelihoods.utils import inv_probit

from ... import inducing_variables, likelihoods
from ...engine.checks import refusal
from ...inducing_variables import BlurredInducingPoints
from ...models.arguments import VariationalParameter
from ...scoring.stored import Described, Reader, is_parameter

#: Loading makes objects of public classes of these modules, and of classes of other
#: modules that derive from ``gpflow.base.Module`` and are already imported. It does not
#: import modules.
MODULES: tuple[ModuleType, ...] = (
    gpflow.kernels,
    gpflow.likelihoods,
    gpflow.inducing_variables,
    gpflow.functions,
    likelihoods,
    inducing_variables,
)
#: Links of likelihoods. They are described by their names.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv_probit": inv_probit,
    "exp": tf.exp,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
}
#: Transforms and priors of parameters. They are described by the names of their classes
#: and their arguments.
_BIJECTORS = (
    "Ascending",
    "Chain",
    "Exp",
    "FillTriangular",
    "Identity",
    "Shift",
    "Sigmoid",
    "Softplus",
)
_DISTRIBUTIONS = (
    "Beta",
    "Cauchy",
    "Exponential",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "Laplace",
    "LogNormal",
    "Normal",
    "StudentT",
    "Uniform",
)
PROBABILITY: dict[str, Any] = {
    **{name: getattr(tfp.bijectors, name) for name in _BIJECTORS},
    **{name: getattr(tfp.distributions, name) for name in _DISTRIBUTIONS},
}
#: Arguments of bijectors and distributions that do not change what they compute.
_LEFT_OUT = ("name", "validate_args", "parameters", "allow_nan_stats")
#: Attributes that are not compared: constructors make them from arguments, which are
#: compared, or TensorFlow adds them.
_INTERNAL = ("_self_", "_name", "_tf_", "_keras_")
#: Types that are compared by value.
_VALUES = (
    *(bool, int, float, str, slice, type(None)),
    *(np.ndarray, tf.Tensor, tf.Variable),
)


class Describer:
    """Describe objects as JSON; their arrays are collected in ``arrays``.

    :param values: Whether to describe only the values of parameters, for
        :class:`~gpflow_pep.scoring.stored.Reader`.
    """

    def __init__(self, *, values: bool = False) -> None:
        self._values = values
        self.arrays: dict[str, AnyNDArray] = {}
        self._known: dict[int, tuple[int, Any]] = {}

    def __call__(self, value: Any, label: str) -> Described:
        """Describe a value: None, a number, text, an array, a list, a GPflow object."""
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, np.generic):
            return self(value.item(), label)
        if isinstance(value, float):
            if not np.isfinite(value):
                raise cannot_save(label, value, "a finite number")
            return value
        if isinstance(value, (Parameter, Module)):
            return self._described_once(value, label)
        if isinstance(value, (np.ndarray, tf.Tensor)):
            return self._array(np.asarray(value), label)
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, (list, tuple)):
            return self._collection(value, label)
        return self._of_tensorflow(value, label)

    def _collection(self, value: Any, label: str) -> Described:
        """Describe a named tuple, another tuple or a list."""
        if hasattr(value, "_asdict"):
            fields = value._asdict().items()
            return {name: self(item, f"{label}.{name}") for name, item in fields}
        return [self(item, f"{label}[{i}]") for i, item in enumerate(value)]

    def _of_tensorflow(self, value: Any, label: str) -> Described:
        """Describe a link, a bijector or a distribution that is listed in this
        module.
        """
        for name, function in FUNCTIONS.items():
            if value is function:
                return {"function": name}
        name = type(value).__name__
        if type(value) is not PROBABILITY.get(name):
            expected = "an object of GPflow or of this package, or numbers and words"
            raise cannot_save(label, _name(value), expected)
        arguments = {
            argument: self(part, f"{label}.{argument}")
            for argument, part in value.parameters.items()
            if argument not in _LEFT_OUT and part is not None
        }
        return {"probability": name, "arguments": arguments}

    def _array(self, value: AnyNDArray, label: str) -> Described:
        if value.dtype == object or value.dtype.kind == "T":
            texts = value.tolist()
            if value.ndim != 1 or not all(isinstance(word, str) for word in texts):
                raise cannot_save(
                    label, "an array of objects", "an array of numbers, or of words"
                )
            return {"words": texts}
        if value.dtype.kind not in "biufU":
            raise cannot_save(label, f"an array of {value.dtype}", "numbers or words")
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise cannot_save(label, "NaN or infinity", "finite numbers")
        # Components share their rows. They are written once.
        same = (k for k, v in self.arrays.items() if v.dtype == value.dtype)
        equal = (k for k in same if np.array_equal(self.arrays[k], value))
        key = next(equal, str(len(self.arrays)))
        self.arrays[key] = value
        return {"array": key}

    def _described_once(self, value: Any, label: str) -> Described:
        """Describe an object, or refer to its earlier description if it is shared."""
        if id(value) in self._known:
            return {"ref": self._known[id(value)][0]}
        place = len(self._known)
        self._known[id(value)] = place, value
        describe = self._parameter if isinstance(value, Parameter) else self._object
        return {"number": place, **describe(value, label)}

    def _parameter(self, value: Parameter, label: str) -> dict[str, Described]:
        if type(value) not in (Parameter, VariationalParameter):
            raise cannot_save(label, _name(value), "a gpflow.Parameter")
        if self._values:
            return {"value": self._array(value.numpy(), label)}
        # Constrained values would not be restored to the last digit, and if Kuu is
        # ill-conditioned, predictions would differ by more than that.
        return {
            "unconstrained": self._array(value.unconstrained_variable.numpy(), label),
            "transform": self(value.transform, f"{label}.transform"),
            "prior": self(value.prior, f"{label}.prior"),
            "prior_on": value.prior_on.value,
            "trainable": bool(value.trainable),
        }

    def _object(self, value: Module, label: str) -> dict[str, Described]:
        kind = type(value)
        modules = (m for m in MODULES if getattr(m, kind.__name__, None) is kind)
        module = next(modules, sys.modules.get(kind.__module__))
        name = kind.__qualname__
        path = "" if module is None else f"{module.__name__}.{name}"
        if "." in name or not path or _class_of(path) is not kind:
            raise cannot_save(
                label, f"a {_name(value)}", "a class that its module has by this name"
            )
        parameters = {n: p for n, p in vars(value).items() if isinstance(p, Parameter)}
        described = {n: self(p, f"{label}.{n}") for n, p in parameters.items()}
        arguments: dict[str, Described] = {}
        for name, argument in _signature(kind).items():
            if name in parameters:
                arguments[name] = {"value_of": name}
            elif kind is BlurredInducingPoints and name == "covariance":
                like_identity = _like_identity(value.covariance_sqrt)
                arguments[name] = self(like_identity, f"{label}.{name}")
            elif hasattr(value, name):
                arguments[name] = self(getattr(value, name), f"{label}.{name}")
            elif argument.default is inspect.Parameter.empty:
                expected = f"a class whose objects keep the argument {name}"
                raise cannot_save(label, f"a {_name(value)}", expected)
        return {"class": path, "arguments": arguments, "parameters": described}


class Loader(Reader):
    """Construct objects from their descriptions, only of the classes listed in this
    module.
    """

    def _dictionary(self, described: dict[str, Described]) -> Any:
        if "function" in described:
            return FUNCTIONS[described["function"]]
        if "probability" not in described:
            return super()._dictionary(described)
        name = described["probability"]
        if name not in PROBABILITY:
            raise ValueError(f"{name} is not a known bijector or distribution")
        return PROBABILITY[name](**super()._dictionary(described["arguments"]))

    def _parameter(self, described: dict[str, Described]) -> Parameter:
        unconstrained = self(described["unconstrained"])
        transform = self(described["transform"])
        parameter = Parameter(
            transform.forward(tf.zeros_like(unconstrained)),  # see _inside_domain
            transform=transform,
            prior=self(described["prior"]),
            prior_on=described["prior_on"],
            trainable=described["trainable"],
        )
        parameter.unconstrained_variable.assign(unconstrained)
        return parameter

    def _object(self, described: dict[str, Described]) -> Module:
        kind = _class_of(described["class"])
        if kind is None:
            raise ValueError(f"{described['class']} is not a known class")
        parameters = {n: self(part) for n, part in described["parameters"].items()}

        def construct(value: Callable[[Parameter], AnyNDArray]) -> Module:
            arguments = {
                # The values of parameters are replaced below.
                name: value(parameters[part["value_of"]])
                if is_parameter(part)
                else self(part)
                for name, part in described["arguments"].items()
            }
            made: Module = kind(**arguments)
            return made

        try:
            constructed = construct(lambda parameter: parameter.numpy()[()])
        except Exception as error:
            # Training can reach values at the very edge of a domain, which constructors
            # refuse.
            try:
                constructed = construct(_inside_domain)
            except Exception:
                raise ValueError(f"{described['class']}: {error}") from error
        for name, parameter in parameters.items():
            if not isinstance(getattr(constructed, name), Parameter):
                raise ValueError(f"{described['class']} has no parameter {name}")
            setattr(constructed, name, parameter)
        return constructed


def _class_of(path: str) -> type[Module] | None:
    """Find a class by its name. None if the module has no class of this name of which
    objects may be made.

    :raises ModuleNotFoundError: If the module of the class is not imported.
    """
    home, _, name = path.rpartition(".")
    if home not in sys.modules:
        raise ModuleNotFoundError(f"{home} is not imported", name=home)
    kind = vars(sys.modules[home]).get(name)
    is_ours = sys.modules[home] in MODULES or getattr(kind, "__module__", None) == home
    return (
        kind if is_ours and inspect.isclass(kind) and issubclass(kind, Module) else None
    )


def cannot_save(label: str, got: Any, expected: str) -> ValueError:
    """Make the error for an object that loading could not restore unchanged."""
    expected = (
        f"{expected}, because only objects that can be loaded unchanged are saved"
    )
    return refusal(label, got, expected, "Keep such a model with tf.train.Checkpoint.")


def check_same(
    loaded: Any, original: Any, label: str, seen: frozenset[int] = frozenset()
) -> None:
    """Refuse to save an object that loading would change. ``seen`` has the objects that
    contain it.
    """
    if id(original) in seen:
        return
    if isinstance(original, FunctionType) and loaded is not original:
        raise cannot_save(label, "a function that the constructor makes", "none")
    both_lists = isinstance(loaded, (list, tuple)) and isinstance(
        original, (list, tuple)
    )
    same = both_lists or type(loaded) is type(original)
    if isinstance(original, _VALUES):
        same = same and np.array_equal(np.asarray(loaded), np.asarray(original))
    new = _parts_of(loaded)
    old = _parts_of(original)
    if not same or (both_lists and len(new) != len(old)):
        raise cannot_save(
            label,
            _shown(original),
            f"{_shown(loaded)}, which is what loading would give",
        )
    for name, part in old.items():
        check_same(new.get(name), part, f"{label}{name}", seen | {id(original)})


def _parts_of(value: Any) -> dict[str, Any]:
    """Find the parts that have to be the same in two objects. The key of a part is how
    code writes it after the name of the object.
    """
    if isinstance(value, (list, tuple)):
        return {f"[{place}]": part for place, part in enumerate(value)}
    if isinstance(value, Parameter):
        parts = {"trainable": value.trainable, "value": value.numpy()}
        return {".unconstrained_variable": value.unconstrained_variable, **parts}
    if isinstance(value, Module):
        return {
            f".{n}": part
            for n, part in vars(value).items()
            if not n.startswith(_INTERNAL)
        }
    return {}


def _signature(kind: type) -> dict[str, inspect.Parameter]:
    """Find the arguments of a constructor. Kernels also have active_dims, an argument
    of their base class.
    """
    arguments = dict(inspect.signature(kind).parameters)
    required = [
        n for n, p in arguments.items() if p.kind is inspect.Parameter.VAR_KEYWORD
    ]
    for name in required:
        del arguments[name]
    if required and issubclass(kind, gpflow.kernels.Kernel):
        active_dims = inspect.signature(gpflow.kernels.Kernel).parameters["active_dims"]
        arguments["active_dims"] = active_dims
    return arguments


def _inside_domain(parameter: Parameter) -> AnyNDArray:
    """Return a value that constructors accept, because they refuse some values at the
    very edge of a domain.
    """
    transform: Any = parameter.transform
    return np.asarray(
        transform.forward(tf.zeros_like(parameter.unconstrained_variable))
    )


def _like_identity(root: Parameter) -> AnyNDArray:
    """Return identity matrices of the same shape; their values are replaced
    afterwards.
    """
    shape = tuple(root.shape)
    return (
        np.ones(shape)
        if len(shape) < 3
        else np.broadcast_to(np.eye(shape[-1]), shape).copy()
    )


def _name(value: Any) -> str:
    kind = (
        value
        if inspect.isclass(value) or isinstance(value, FunctionType)
        else type(value)
    )
    return f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
