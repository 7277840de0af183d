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
from gpflow.config import default_float
from gpflow.likelihoods.utils import inv_probit

from .. import inducing_variables, likelihoods
from ..checks import refusal
from ..inducing_variables import BlurredInducingPoints

#: Objects are made of public classes of these modules, and of no others.
MODULES: tuple[ModuleType, ...] = (
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
_PROBABILITY = (
    ("bijector", tfp.bijectors, BIJECTORS),
    ("distribution", tfp.distributions, DISTRIBUTIONS),
)
#: Of the arguments of a class, those that its objects have by another name, or not at all.
_ARGUMENTS: dict[type, Callable[[Any], dict[str, Any]]] = {
    BlurredInducingPoints: lambda v: {"covariance": _like_identity(v.covariance_sqrt)},
    gpflow.functions.Additive: lambda v: {"first_part": v.add_1, "second_part": v.add_2},
    gpflow.functions.Product: lambda v: {"first_part": v.prod_1, "second_part": v.prod_2},
    gpflow.functions.SwitchedFunction: lambda v: {"function_list": v.functions},
    gpflow.likelihoods.HeteroskedasticTFPConditional: lambda v: {
        "distribution_class": type(v.conditional_distribution(tf.zeros([1, 2], default_float())))
    },
    gpflow.likelihoods.SwitchedLikelihood: lambda v: {"likelihood_list": v.likelihoods},
}
#: Attributes that constructors make of arguments, which are compared, or that TensorFlow keeps.
_INTERNAL = ("_self_", "_name", "_tf_", "_keras_", "conditional_distribution")
Described = Any
"""What JSON can hold."""


class Describer:
    """Describe objects as JSON; their arrays are collected in ``arrays``."""

    def __init__(self) -> None:
        self.arrays: dict[str, AnyNDArray] = {}
        self._known: dict[int, tuple[int, Any]] = {}

    def __call__(self, value: Any, label: str) -> Described:
        """
        Describe a value: None, a number, text, an array, a list, a GPflow object.

        :raises ValueError: If loading could not give the same value.
        """
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
            return [self(part, f"{label}[{i}]") for i, part in enumerate(value)]
        for kind, module, names in _PROBABILITY:
            name = type(value).__name__
            if name in names and type(value) is getattr(module, name):
                return {kind: name, "arguments": self._constructor_arguments(value, label)}
        for name, function in FUNCTIONS.items():
            if value is function:
                return {"function": name}
        for name in DISTRIBUTIONS:
            if value is getattr(tfp.distributions, name):
                return {"distribution_class": name}
        raise cannot_save(
            label, _name(value), "what GPflow or this package brings, or numbers and words"
        )

    def _array(self, value: AnyNDArray, label: str) -> Described:
        if value.dtype == object or value.dtype.kind == "T":
            words = value.tolist()
            if value.ndim != 1 or not all(isinstance(word, str) for word in words):
                raise cannot_save(label, "an array of objects", "numbers, or words only")
            return {"words": words}
        if value.dtype.kind not in "biufU":
            raise cannot_save(label, f"an array of {value.dtype}", "numbers or words")
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise cannot_save(label, "NaN or infinity", "finite numbers")
        key = str(len(self.arrays))
        self.arrays[key] = value
        return {"array": key}

    def _described_once(self, value: Any, label: str) -> Described:
        """Describe an object, or refer to an earlier description of it: it may be shared."""
        if id(value) in self._known:
            return {"ref": self._known[id(value)][0]}
        number = len(self._known)
        self._known[id(value)] = number, value
        describe = self._parameter if isinstance(value, Parameter) else self._object
        return {"number": number, **describe(value, label)}

    def _parameter(self, value: Parameter, label: str) -> dict[str, Described]:
        if type(value) is not Parameter:
            raise cannot_save(label, _name(value), "a gpflow.Parameter")
        # Not the constrained values: they do not come back to the last digit, and where Kuu is
        # ill-conditioned predictions would differ by more.
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
        module = next(modules, None)
        if module is None:
            raise cannot_save(label, f"a {_name(value)}", "a class of GPflow or this package")
        parameters = {n: p for n, p in vars(value).items() if isinstance(p, Parameter)}
        described = {n: self(p, f"{label}.{n}") for n, p in parameters.items()}
        special = _ARGUMENTS[kind](value) if kind in _ARGUMENTS else {}
        arguments: dict[str, Described] = {}
        for name, argument in _signature(kind).items():
            if name in parameters:
                arguments[name] = {"value_of": name}
            elif name in special or hasattr(value, name):
                part = special[name] if name in special else getattr(value, name)
                arguments[name] = self(part, f"{label}.{name}")
            elif argument.default is inspect.Parameter.empty:
                expected = f"a class whose objects keep the argument {name}"
                raise cannot_save(label, f"a {_name(value)}", expected)
        path = f"{module.__name__}.{kind.__name__}"
        return {"class": path, "arguments": arguments, "parameters": described}

    def _constructor_arguments(self, value: Any, label: str) -> dict[str, Described]:
        """Describe the arguments that a bijector or distribution was constructed with."""
        left_out = ("name", "validate_args", "parameters", "allow_nan_stats")
        return {
            name: self(part, f"{label}.{name}")
            for name, part in value.parameters.items()
            if name not in left_out and part is not None
        }


class Loader:
    """Construct objects from their descriptions; only of the classes that are named here."""

    def __init__(self, arrays: dict[str, AnyNDArray]) -> None:
        self._arrays = arrays
        self._known: dict[int, Any] = {}

    def __call__(self, described: Described) -> Any:
        """
        Construct the value that was described.

        :raises ValueError: If the description names a class that is not known. Other errors are
            possible where the description was changed.
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
        for ref in ("ref", "again"):  # "again" is that of format 4
            if ref in described:
                return self._known[described[ref]]
        if "function" in described:
            return FUNCTIONS[described["function"]]
        if described.get("distribution_class") in DISTRIBUTIONS:
            return getattr(tfp.distributions, described["distribution_class"])
        for kind, module, names in _PROBABILITY:
            if kind in described:
                if described[kind] not in names:
                    raise ValueError(f"{described[kind]} is no {kind} that is known")
                arguments = {name: self(part) for name, part in described["arguments"].items()}
                return getattr(module, described[kind])(**arguments)
        construct = self._object if "class" in described else self._parameter
        self._known[described["number"]] = constructed = construct(described)
        return constructed

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
        path, _, name = described["class"].rpartition(".")
        module = {module.__name__: module for module in MODULES}.get(path)
        kind = getattr(module, name, None)
        if not (inspect.isclass(kind) and issubclass(kind, Module)):
            raise ValueError(f"{described['class']} is no class that is known")
        parameters = {n: self(part) for n, part in described["parameters"].items()}
        arguments = {
            name: _valid_value(parameters[part["value_of"]])
            if isinstance(part, dict) and "value_of" in part
            else self(part)
            for name, part in described["arguments"].items()
        }
        constructed: Module = kind(**arguments)
        for name, parameter in parameters.items():
            if not isinstance(getattr(constructed, name), Parameter):
                raise ValueError(f"{described['class']} has no parameter {name}")
            setattr(constructed, name, parameter)
        return constructed


def cannot_save(label: str, got: Any, expected: str) -> ValueError:
    """Make the error for something that loading could not give back as it is."""
    expected = f"{expected}: what cannot be loaded as it is, is not saved"
    return refusal(label, got, expected, "Keep such a model with tf.train.Checkpoint.")


def check_same(loaded: Any, original: Any, label: str) -> None:
    """
    Refuse to save an object that loading would change.

    :raises ValueError: If a part differs that matters.
    """
    _check_same(loaded, original, label, set())


def _check_same(loaded: Any, original: Any, label: str, seen: set[int]) -> None:
    if id(original) in seen:
        return
    same = type(loaded) is type(original)
    if same and isinstance(original, (Module, Parameter)):
        seen.add(id(original))
    if same and isinstance(original, Parameter):
        values = (part.unconstrained_variable.numpy() for part in (loaded, original))
        same = loaded.trainable == original.trainable and np.array_equal(*values)
        same = same and np.array_equal(loaded.numpy(), original.numpy())
    elif same and isinstance(original, Module):
        for name, value in vars(original).items():
            if not name.startswith(_INTERNAL):
                _check_same(vars(loaded).get(name), value, f"{label}.{name}", seen)
    elif isinstance(original, (list, tuple)) and isinstance(loaded, (list, tuple)):
        same = len(loaded) == len(original)
        for i, pair in enumerate(zip(loaded, original)):
            _check_same(*pair, f"{label}[{i}]", seen)
    elif isinstance(original, (FunctionType, bool, int, float, str, slice, type(None))):
        same = same and loaded == original
    elif isinstance(original, (np.ndarray, tf.Tensor, tf.Variable)):
        same = same and np.array_equal(np.asarray(loaded), np.asarray(original))
    if not same:
        raise cannot_save(label, _shown(original), f"{_shown(loaded)}, as loading would give it")


def _signature(kind: type) -> dict[str, inspect.Parameter]:
    """Find the arguments of a constructor; kernels pass active_dims on to their base class."""
    arguments = dict(inspect.signature(kind).parameters)
    others = [n for n, p in arguments.items() if p.kind is inspect.Parameter.VAR_KEYWORD]
    for name in others:
        del arguments[name]
    if others and issubclass(kind, gpflow.kernels.Kernel):
        active_dims = inspect.signature(gpflow.kernels.Kernel).parameters["active_dims"]
        arguments["active_dims"] = active_dims
    return arguments


def _valid_value(parameter: Parameter) -> AnyNDArray:
    """Give a value that the constructor of its owner accepts: it is replaced afterwards."""
    transform: Any = parameter.transform
    value = parameter.numpy()
    if np.all(np.isfinite(transform.inverse(value))):
        return np.asarray(value)
    return np.asarray(transform.forward(tf.zeros_like(parameter.unconstrained_variable)))


def _like_identity(root: Parameter) -> AnyNDArray:
    """Give covariances of the same shape: their values are replaced afterwards."""
    shape = tuple(root.shape)
    return np.ones(shape) if len(shape) < 3 else np.broadcast_to(np.eye(shape[-1]), shape).copy()


def _name(value: Any) -> str:
    kind = value if inspect.isclass(value) or isinstance(value, FunctionType) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
