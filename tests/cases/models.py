"""Every public model of the package, how to create it, and one of each compiled for all
tests.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import RegressionProblem, regression_problem, value_and_gradients

import gpflow_pep as pep

N = 15
D = 2
M = 4
Data = tuple[Any, Any]
Z = np.random.default_rng(5).uniform(-2.0, 2.0, [M, D])
XNEW = np.random.default_rng(6).uniform(-2.0, 2.0, [5, D])


class ModelCase(NamedTuple):
    """How to create one model from data, and data that suit it."""

    name: str
    model_class: type
    create: Callable[..., gpflow.models.GPModel]  # (data, Z, **options) -> model
    data: Callable[[int], Data]  # seed -> NumPy arrays of N rows


def _regression_data(seed: int) -> Data:
    return regression_problem(seed, num_data=N).data


def _label_data(seed: int) -> Data:
    X, Y = _regression_data(seed)
    return X, np.where(Y > 0.4, 1.0, 0.0)


def _incomplete_data(seed: int) -> Data:
    """Two columns, of which the second is known of every other row."""
    X, Y = regression_problem(seed, num_data=N, num_outputs=2).data
    Y[1::2, 1] = np.nan
    return X, Y


def _incomplete_label_data(seed: int) -> Data:
    X, Y = _incomplete_data(seed)
    Y[:, 1] = np.where(np.isnan(Y[:, 1]), np.nan, Y[:, 1] > 0.4)
    return X, Y


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=[0.8, 1.1])


def mixing_kernel() -> gpflow.kernels.LinearCoregionalization:
    W = np.array([[1.0, 0.4], [0.5, -0.8]])
    return gpflow.kernels.LinearCoregionalization(
        [kernel(), gpflow.kernels.Matern52()], W
    )


def points(model: gpflow.models.GPModel) -> gpflow.inducing_variables.InducingPoints:
    """The inducing points, which all latent functions of a model share."""
    shared = model.inducing_variable
    return getattr(shared, "inducing_variable", shared)


def first_kernel(model: gpflow.models.GPModel) -> gpflow.kernels.SquaredExponential:
    return getattr(model.kernel, "kernels", [model.kernel])[0]


def _with_mean(options: dict[str, Any]) -> dict[str, Any]:
    return {"mean_function": gpflow.functions.Constant(0.1), "alpha": 0.7, **options}


def _tolerance() -> float:
    """Far below those of the comparisons, whose models start from different sites."""
    return 1e-11 if gpflow.default_float() == np.float64 else 1e-4


def _regression(
    make_kernel: Any, data: Data, Z: Any, **options: Any
) -> gpflow.models.GPModel:
    options = {"noise_variance": 0.1, **_with_mean(options)}
    return pep.models.PEPRegression(data, make_kernel(), Z, **options)


def _pep(parts: Any, data: Data, Z: Any, **options: Any) -> gpflow.models.GPModel:
    options = {"tolerance": _tolerance(), **_with_mean(options)}
    return pep.models.PEP(data, *(create() for create in parts), Z, **options)


def _mixed_likelihood() -> Any:
    return pep.likelihoods.PerOutput(
        [_gaussian_noise(), gpflow.likelihoods.Bernoulli()]
    )


_gaussian_noise = functools.partial(gpflow.likelihoods.Gaussian, 0.1)
_plain = functools.partial(_regression, kernel)
_probit = functools.partial(_pep, (kernel, gpflow.likelihoods.Bernoulli))
_gaussian = functools.partial(_pep, (kernel, _gaussian_noise))
_mixed_regression = functools.partial(
    _regression, mixing_kernel, noise_variance=[0.1, 0.2]
)
_mixed_pep = functools.partial(_pep, (mixing_kernel, _mixed_likelihood))


def _pep_classification(data: Data, Z: Any, **options: Any) -> gpflow.models.GPModel:
    options = {"alpha": 0.7, "tolerance": _tolerance(), **options}
    # Given, because data that replace others here may all be of one class.
    likelihood = gpflow.likelihoods.Bernoulli()
    return pep.models.PEPClassification(data, kernel(), likelihood, Z, **options)


def _tied(model_class: type) -> Callable[..., gpflow.models.GPModel]:
    def create(data: Data, Z: Any, **options: Any) -> gpflow.models.GPModel:
        likelihood = gpflow.likelihoods.Bernoulli()
        return model_class(kernel(), likelihood, Z, num_data=100, **_with_mean(options))

    return create


def gaussian_model(name: str, problem: RegressionProblem, **options: Any) -> Any:
    """A model by its name, of a problem with Gaussian noise; the tied ones are given no
    rows.
    """
    noise = options.pop("noise_variance", 0.1)
    options = {"kernel": problem.kernel(), "inducing_variable": problem.Z, **options}
    if name == "PEPRegression":
        return pep.PEPRegression(
            **{"data": problem.data, "noise_variance": noise, **options}
        )
    options = {"likelihood": gpflow.likelihoods.Gaussian(noise), **options}
    if name == "PEP":
        return pep.PEP(**{"data": problem.data, "tolerance": 1e-10, **options})
    return getattr(pep, name)(**{"num_data": len(problem.X), **options})


#: For the fast tests one of the tied models: the other two have the same code but for
#: the energy.
each_tied = pytest.mark.parametrize(
    "name",
    [
        "APEP",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("ARPEP", "RPAPEP")),
    ],
)


def _case(kind: Any, create: Any, data: Any, name: str | None = None) -> ModelCase:
    return ModelCase(name or kind.__name__, kind, create, data)


#: Targets of which some are missing, and outputs mixed from latent functions.
OUTPUTS = [
    _case(pep.PEPRegression, _plain, _incomplete_data, "missing targets"),
    _case(pep.PEPRegression, _mixed_regression, _incomplete_data, "mixed regression"),
    _case(pep.PEP, _mixed_pep, _incomplete_label_data, "mixed rows"),
]
#: One of each public model. Their plumbing does not depend on the likelihood, and the
#: sweeps of PEP take least time with the Gaussian one.
MODELS = [
    _case(pep.PEPRegression, _plain, _regression_data),
    _case(pep.PEP, _gaussian, _regression_data),
    _case(pep.PEPClassification, _pep_classification, _label_data),
    *(
        _case(kind, _tied(kind), _label_data)
        for kind in (pep.APEP, pep.ARPEP, pep.RPAPEP)
    ),
    _case(pep.PEP, _probit, _label_data, "PEP of labels"),
    *OUTPUTS,
]
BY_CHUNKS = [
    _case(
        kind,
        functools.partial(create, chunk_size=4),
        data,
        f"{kind.__name__} by chunks",
    )
    for kind, create, data in (
        (pep.PEPRegression, _plain, _regression_data),
        (pep.PEP, _probit, _label_data),
    )
]
#: All their code but some lines is that of another model: their tests are slow ones.
NEARLY_ANOTHER = "PEPClassification", "APEP", "RPAPEP", "PEP of labels"
NEARLY_ANOTHER += tuple(case.name for case in (*OUTPUTS, *BY_CHUNKS))
#: Enough for what is GPflow's code around any model's objective or prediction of f.
ENOUGH = ("PEPRegression", "ARPEP")


def params(cases: list[ModelCase], slow: tuple[str, ...] = NEARLY_ANOTHER) -> list[Any]:
    """Cases as parameters; those named `slow` run with the slow tests."""
    marks = {name: [pytest.mark.slow] for name in slow}
    return [
        pytest.param(case, marks=marks.get(case.name, []), id=case.name)
        for case in cases
    ]


def but(*names: str) -> tuple[str, ...]:
    return tuple(case.name for case in (*MODELS, *BY_CHUNKS) if case.name not in names)


def loss_closure(
    model: gpflow.models.GPModel, data: Data, compile: bool
) -> Callable[[], Any]:
    """By GPflow's own helper; it compares the data with the model's, and NaN equals
    nothing.
    """
    if np.isnan(data[1]).any():
        return model.training_loss_closure(compile=compile)
    return gpflow.models.training_loss_closure(model, data, compile=compile)


class Compiled:
    """A model compiled once for all tests, which borrow it; its variables are
    put back.
    """

    def __init__(self, case: ModelCase) -> None:
        # Of any number of rows.
        shapes = ([None, part.shape[1]] for part in case.data(0))
        pairs = zip(case.data(0), shapes)
        self.data = tuple(
            tf.Variable(part, shape=shape, trainable=False) for part, shape in pairs
        )
        self.model = case.create(self.data, Z)
        self.variables = self.model.trainable_variables
        self.loss = loss_closure(self.model, self.data, compile=True)
        # Traced while all is trainable: of what is not, a graph may hold no gradient.
        self.loss()
        self.predict_f = _of_rows(lambda Xnew: self.model.predict_f(Xnew))
        self.predict_f_full_cov = _of_rows(
            lambda Xnew: self.model.predict_f(Xnew, full_cov=True)
        )
        self._kept = [
            (variable, variable.numpy()) for variable in self._all_variables()
        ]
        self._trainable = [(part, part.trainable) for part in self.model.parameters]

    def _all_variables(self) -> list[tf.Variable]:
        return list(
            {id(one): one for one in (*self.model.variables, *self.data)}.values()
        )

    def loss_and_gradients(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return value_and_gradients(self.loss, self.variables)

    def minimize(self, max_steps: int, **options: Any) -> Any:
        # The loss is.
        options = {
            "compile": False,
            "options": {"maxiter": max_steps},
            **options,
        }
        variables = self.model.trainable_variables
        return gpflow.optimizers.Scipy().minimize(self.loss, variables, **options)

    def assign_data(self, data: Data) -> None:
        for variable, value in zip(self.data, data):
            variable.assign(value)

    def restore(self) -> None:
        for parameter, trainable in self._trainable:
            gpflow.set_trainable(parameter, trainable)
        for variable, value in self._kept:
            variable.assign(value)


def _of_rows(function: Callable[[tf.Tensor], Any]) -> Callable[[Any], Any]:
    return tf.function(
        function, input_signature=[tf.TensorSpec([None, None], dtype=tf.float64)]
    )


def saved_and_loaded(model: gpflow.models.GPModel, method: str, directory: str) -> Any:
    """The model with one prediction, ``compiled``, for any number of rows, through a
    file.
    """
    function = getattr(model, method)
    model.compiled = _of_rows(lambda Xnew: function(Xnew))
    tf.saved_model.save(model, directory)
    del model.compiled
    return tf.saved_model.load(directory)


_of_case = functools.cache(Compiled)


@contextlib.contextmanager
def borrowed(case: ModelCase) -> Iterator[Compiled]:
    """The compiled model of a case; put back afterwards."""
    compiled = _of_case(case)
    try:
        yield compiled
    finally:
        compiled.restore()
