"""GPflow's objects as JSON and arrays, and back, without pickle."""

import inspect
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

from .. import inducing_variables, likelihoods
from ..inducing_variables import BlurredInducingPoints

#: Objects are made of public classes of these modules, and of no others.
ROOMS: tuple[ModuleType, ...] = (
    gpflow.kernels,
    gpflow.likelihoods,
    gpflow.inducing_variables,
    gpflow.functions,
    likelihoods,
    inducing_variables,
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv_probit": inv_probit,
    "exp": tf.exp,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
    "identity": tf.identity,
    "square": tf.square,
}
BIJECTORS = ("Chain", "Exp", "FillTriangular", "Identity", "Shift", "Sigmoid", "Softplus")
DISTRIBUTIONS = (
    "Beta", "Cauchy", "Exponential", "Gamma", "HalfCauchy", "HalfNormal", "InverseGamma", "Laplace",
    "LogNormal", "Normal", "StudentT", "Uniform",
)  # fmt: skip
#: Of the arguments of a class, those that its objects have by another name, or not at all.
_ARGUMENTS: dict[type, Callable[[Any], dict[str, Any]]] = {
    BlurredInducingPoints: lambda v: {"covariance": _like_identity(v.covariance_sqrt)},
    gpflow.functions.Additive: lambda v: {"first_part": v.add_1, "second_part": v.add_2},
    gpflow.functions.Product: lambda v: {"first_part": v.prod_1, "second_part": v.prod_2},
    gpflow.functions.SwitchedFunction: lambda v: {"function_list": v.functions},
    gpflow.likelihoods.SwitchedLikelihood: lambda v: {"likelihood_list": v.likelihoods},
}
_INTERNAL = ("_self_", "_name", "_tf_", "_keras_")
Described = Any
"""What JSON can hold."""


class Describer:
    """Describe objects, of which the arrays are put aside."""

    def __init__(self) -> None:
        self.arrays: dict[str, AnyNDArray] = {}
        self._known: dict[int, tuple[int, Any]] = {}

    def __call__(self, value: Any, what: str) -> Described:
        """
        Describe a value.

        :param value: None, a number, text, an array, a list, a GPflow object...
        :param what: What it is, for messages.
        :raises ValueError: If it would not come back as it is.
        """
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, np.generic):
            return self(value.item(), what)
        if isinstance(value, float):
            if not np.isfinite(value):
                raise self._refusal(what, str(value), "a finite number")
            return value
        if isinstance(value, (Parameter, Module)):
            return self._described_once(value, what)
        if isinstance(value, (np.ndarray, tf.Tensor)):
            return self._array(np.asarray(value), what)
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, (list, tuple)):
            return [self(part, f"{what}[{i}]") for i, part in enumerate(value)]
        for kind, module, names in (
            ("bijector", tfp.bijectors, BIJECTORS),
            ("distribution", tfp.distributions, DISTRIBUTIONS),
        ):
            name = type(value).__name__
            if name in names and type(value) is getattr(module, name):
                return {kind: name, "arguments": self._parameters_of(value, what)}
        for name, function in FUNCTIONS.items():
            if value is function:
                return {"function": name}
        raise self._refusal(
            what, _name(value), "what GPflow or this package brings, or numbers and words"
        )

    def _array(self, value: AnyNDArray, what: str) -> Described:
        if value.dtype == object or value.dtype.kind == "T":
            words = value.tolist()
            if value.ndim != 1 or not all(isinstance(word, str) for word in words):
                raise self._refusal(what, "an array of objects", "numbers, or words only")
            return {"words": words}
        if value.dtype.kind not in "biufU":
            raise self._refusal(what, f"an array of {value.dtype}", "numbers or words")
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise self._refusal(what, "NaN or infinity", "finite numbers")
        key = str(len(self.arrays))
        self.arrays[key] = value
        return {"array": key}

    def _described_once(self, value: Any, what: str) -> Described:
        """Describe an object, or refer to it where it was met before: it may be shared."""
        if id(value) in self._known:
            return {"again": self._known[id(value)][0]}
        number = len(self._known)
        self._known[id(value)] = number, value
        make = self._parameter if isinstance(value, Parameter) else self._object
        return {"number": number, **make(value, what)}

    def _parameter(self, value: Parameter, what: str) -> dict[str, Described]:
        if type(value) is not Parameter:
            raise self._refusal(what, _name(value), "a gpflow.Parameter")
        # Not the constrained values: they do not come back to the last digit, and where Kuu is
        # ill-conditioned predictions would differ by more.
        return {
            "unconstrained": self._array(value.unconstrained_variable.numpy(), what),
            "transform": self(value.transform, f"{what}.transform"),
            "prior": self(value.prior, f"{what}.prior"),
            "prior_on": value.prior_on.value,
            "trainable": bool(value.trainable),
        }

    def _object(self, value: Module, what: str) -> dict[str, Described]:
        kind = type(value)
        room = next((room for room in ROOMS if getattr(room, kind.__name__, None) is kind), None)
        if room is None:
            raise self._refusal(what, f"a {_name(value)}", "a class of GPflow or this package")
        parameters = {n: p for n, p in vars(value).items() if isinstance(p, Parameter)}
        described = {n: self(p, f"{what}.{n}") for n, p in parameters.items()}
        special = _ARGUMENTS[kind](value) if kind in _ARGUMENTS else {}
        arguments: dict[str, Described] = {}
        for name, argument in _signature(kind).items():
            if name in parameters:
                arguments[name] = {"value_of": name}
            elif name in special or hasattr(value, name):
                given = special[name] if name in special else getattr(value, name)
                arguments[name] = self(given, f"{what}.{name}")
            elif argument.default is inspect.Parameter.empty:
                raise self._refusal(what, f"a {_name(value)}", f"one that tells its {name}")
        place = f"{room.__name__}.{kind.__name__}"
        return {"class": place, "arguments": arguments, "parameters": described}

    def _parameters_of(self, value: Any, what: str) -> dict[str, Described]:
        """Describe what a bijector or distribution was made of."""
        left_out = ("name", "validate_args", "parameters", "allow_nan_stats")
        return {
            name: self(part, f"{what}.{name}")
            for name, part in value.parameters.items()
            if name not in left_out and part is not None
        }

    @staticmethod
    def _refusal(what: str, got: str, expected: str) -> ValueError:
        return ValueError(
            f"{what}: got {got}, expected {expected}: what would not come back is not saved. Keep"
            " such a model with tf.train.Checkpoint."
        )


class Rebuilder:
    """
    Make objects from their descriptions; only of the classes that are named here.

    :param arrays: What the describer put aside.
    """

    def __init__(self, arrays: dict[str, AnyNDArray]) -> None:
        self._arrays = arrays
        self._known: dict[int, Any] = {}

    def __call__(self, described: Described) -> Any:
        """
        Make an object.

        :param described: As the describer gave it.
        :raises ValueError: If there is something in it that the describer does not write. Other
            errors are possible where the description was changed.
        """
        if isinstance(described, list):
            return [self(part) for part in described]
        if not isinstance(described, dict):
            return described
        if "array" in described:
            return self._arrays[described["array"]]
        if "words" in described:
            return np.array(described["words"], dtype=object)
        if "slice" in described:
            return slice(*described["slice"])
        if "again" in described:
            return self._known[described["again"]]
        if "function" in described:
            return FUNCTIONS[described["function"]]
        for kind, module, names in (
            ("bijector", tfp.bijectors, BIJECTORS),
            ("distribution", tfp.distributions, DISTRIBUTIONS),
        ):
            if kind in described:
                if described[kind] not in names:
                    raise ValueError(f"{described[kind]} is no {kind} that is known")
                arguments = {name: self(part) for name, part in described["arguments"].items()}
                return getattr(module, described[kind])(**arguments)
        make = self._object if "class" in described else self._parameter
        made = make(described)
        self._known[described["number"]] = made
        return made

    def _parameter(self, described: dict[str, Described]) -> Parameter:
        unconstrained = self(described["unconstrained"])
        transform = self(described["transform"])
        # From a place inside the domain: at its very edge GPflow would refuse the value.
        parameter = Parameter(
            transform.forward(tf.zeros_like(unconstrained)),
            transform=transform,
            prior=self(described["prior"]),
            prior_on=described["prior_on"],
            trainable=described["trainable"],
        )
        parameter.unconstrained_variable.assign(unconstrained)
        return parameter

    def _object(self, described: dict[str, Described]) -> Module:
        place, _, name = described["class"].rpartition(".")
        room = {room.__name__: room for room in ROOMS}.get(place)
        kind = getattr(room, name, None)
        if not (inspect.isclass(kind) and issubclass(kind, Module)):
            raise ValueError(f"{described['class']} is no class that is known")
        parameters = {n: self(part) for n, part in described["parameters"].items()}
        arguments = {
            name: _start(parameters[part["value_of"]])
            if isinstance(part, dict) and "value_of" in part
            else self(part)
            for name, part in described["arguments"].items()
        }
        made = kind(**arguments)
        for name, parameter in parameters.items():
            if not isinstance(getattr(made, name), Parameter):
                raise ValueError(f"{described['class']} has no parameter {name}")
            setattr(made, name, parameter)
        return made


def check_same(found: Any, expected: Any, what: str) -> None:
    """
    Refuse an object that came back as another.

    :param found: What came back.
    :param expected: What it was.
    :param what: What it is, for messages.
    :raises ValueError: If something differs that matters.
    """
    _check_same(found, expected, what, set())


def _check_same(found: Any, expected: Any, what: str, seen: set[int]) -> None:
    if id(expected) in seen:
        return
    same = type(found) is type(expected)
    if same and isinstance(expected, (Module, Parameter)):
        seen.add(id(expected))
    if same and isinstance(expected, Parameter):
        values = (part.unconstrained_variable.numpy() for part in (found, expected))
        same = found.trainable == expected.trainable and np.array_equal(*values)
        same = same and np.array_equal(found.numpy(), expected.numpy())
    elif same and isinstance(expected, Module):
        for name, value in vars(expected).items():
            if not name.startswith(_INTERNAL):
                _check_same(vars(found).get(name), value, f"{what}.{name}", seen)
    elif isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        same = len(found) == len(expected)
        for i, pair in enumerate(zip(found, expected)):
            _check_same(*pair, f"{what}[{i}]", seen)
    elif isinstance(expected, (FunctionType, bool, int, float, str, slice, type(None))):
        same = same and found == expected
    elif isinstance(expected, (np.ndarray, tf.Tensor, tf.Variable)):
        same = same and np.array_equal(np.asarray(found), np.asarray(expected))
    if not same:
        raise ValueError(
            f"{what}: {_shown(expected)} would come back as {_shown(found)}, so it is not saved."
            " Keep such a model with tf.train.Checkpoint."
        )


def _signature(kind: type) -> dict[str, inspect.Parameter]:
    """Find the arguments of a constructor; kernels hand active_dims on to their base class."""
    taken = dict(inspect.signature(kind).parameters)
    others = [n for n, p in taken.items() if p.kind is inspect.Parameter.VAR_KEYWORD]
    for name in others:
        del taken[name]
    if others and issubclass(kind, gpflow.kernels.Kernel):
        taken["active_dims"] = inspect.signature(gpflow.kernels.Kernel).parameters["active_dims"]
    return taken


def _start(parameter: Parameter) -> AnyNDArray:
    """Give a value that the constructor of its owner accepts: it is replaced afterwards."""
    transform: Any = parameter.transform
    value = parameter.numpy()
    if np.all(np.isfinite(transform.inverse(value))):
        return np.asarray(value)
    return np.asarray(transform.forward(tf.zeros_like(parameter.unconstrained_variable)))


def _like_identity(root: Parameter) -> AnyNDArray:
    """Covariances of the same shape, whose values are replaced afterwards."""
    shape = tuple(root.shape)
    return np.ones(shape) if len(shape) < 3 else np.broadcast_to(np.eye(shape[-1]), shape).copy()


def _name(value: Any) -> str:
    kind = value if inspect.isclass(value) or isinstance(value, FunctionType) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
