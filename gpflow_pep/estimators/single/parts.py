"""The GPflow objects for names in the arguments of estimators."""

from collections.abc import Callable, Mapping
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import RBF, IsotropicStationary, Kernel, Linear
from gpflow.likelihoods import Likelihood

from ...engine.checks import as_numbers, refusal
from ...likelihoods import LogLinear, NegativeBinomial, Ordinal, Tobit
from ...training.fitting.objectives import copy_of
from ...training.starts import greedy_variance, kmeans, random_subset
from .exact import ADDITIVE, LEAST_PARAMETER, SLOPE, SMOOTH, Hyperparameters
from .settings import ROWS

KERNELS: dict[str, Callable[..., Kernel]] = {
    "rbf": gpflow.kernels.SquaredExponential,
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
    "rational_quadratic": gpflow.kernels.RationalQuadratic,
}
#: Likelihoods of numbers, for
#: :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
NUMBERS: dict[str, type[Likelihood]] = {
    "gaussian": gpflow.likelihoods.Gaussian,
    "student_t": gpflow.likelihoods.StudentT,
    "log_normal": gpflow.likelihoods.Gaussian,  # for the logarithms
    "poisson": gpflow.likelihoods.Poisson,
    "negative_binomial": NegativeBinomial,
    "tobit": Tobit,
}
#: Likelihoods of classes, for
#: :class:`PEPClassifier <gpflow_pep.estimators.PEPClassifier>`.
CLASSES: dict[str, Callable[..., Likelihood]] = {
    "bernoulli": gpflow.likelihoods.Bernoulli,
    "multiclass": gpflow.likelihoods.MultiClass,
    # On five generated tables the log loss of the default was .459 with .01 and .455
    # with .03.
    "noisy_multiclass": lambda number: gpflow.likelihoods.MultiClass(
        number, invlink=gpflow.likelihoods.RobustMax(number, epsilon=0.03)
    ),
    "softmax": gpflow.likelihoods.Softmax,
    "ordinal": Ordinal.of_classes,
}
#: Inducing points are chosen from at most this number of rows: with a million rows
#: k-means takes 6 s.
MOST_CHOSEN_FROM = 100_000
#: The rules for initial inducing points.
RULES: dict[str, Callable[..., InducingVariables]] = {
    "kmeans": kmeans,
    "random": random_subset,
    "greedy_variance": greedy_variance,
    ROWS: kmeans,
}


def _choose(argument: str, name: Any, choices: Mapping[str, Any], others: str) -> Any:
    if isinstance(name, str) and name in choices:
        return choices[name]
    expected = f"{', '.join(map(repr, choices))} or {others}"
    raise refusal(argument, repr(name), expected, "Choose one of them.")


def make_kernel(
    kernel: str | Kernel, num_inputs: int, ard: bool | float = True
) -> Kernel:
    """Make a kernel for standardised inputs, or copy the given one.

    A kernel that is given by its name starts with unit variance and lengthscales √D,
    because squared distances between standardised rows grow in proportion to D. "auto"
    selects "rbf".

    :param ard: Whether a kernel that is given by its name has a lengthscale for each
        input, or one for all inputs (False).
    :raises ValueError: If a kernel object is given and ``ard`` is not True.
    """
    if isinstance(kernel, Kernel):
        if not (isinstance(ard, bool | np.bool_) and ard):
            got = f"{ard} with a {type(kernel).__name__} as the kernel"
            remedy = (
                "Leave ard out and set the lengthscales of your kernel, or pass the"
                " name of a kernel such as 'rbf'."
            )
            raise refusal(
                "ard", got, "True, because the kernel has its own lengthscales", remedy
            )
        return copy_of(kernel)
    kernel = "rbf" if kernel == "auto" else kernel
    lengthscales = np.full(num_inputs if ard else (), np.sqrt(num_inputs))
    if kernel == "additive":
        variances = np.full(num_inputs, ADDITIVE / num_inputs)
        return additive(gpflow.kernels.Matern52(lengthscales=lengthscales), variances)
    also = "'additive' or a GPflow kernel"
    return _choose("kernel", kernel, KERNELS, also)(lengthscales=lengthscales)


def additive(kernel: Kernel, variances: AnyNDArray) -> Kernel:
    """Add a smooth function of each input to a kernel; its lengthscale is not
    trained.
    """
    terms = [
        RBF(v, SMOOTH, active_dims=[d]) for d, v in enumerate(variances) if v > 0.0
    ]
    for term in terms:
        gpflow.set_trainable(term.lengthscales, False)
    return gpflow.kernels.Sum([kernel, *terms]) if terms else kernel


def with_line(kernel: Kernel, input_of_line: int | None) -> Kernel:
    """Add a linear function of one input to a kernel, so that predictions continue
    beyond the rows; its variance is not trained. None adds nothing.
    """
    if input_of_line is None:
        return kernel
    line = Linear(variance=SLOPE, active_dims=[input_of_line])
    gpflow.set_trainable(line.variance, False)
    return gpflow.kernels.Sum([*getattr(kernel, "kernels", [kernel]), line])


def start_at(start: Hyperparameters, kernel: Kernel, likelihood: Likelihood) -> None:
    """Assign initial lengthscales and variances to a kernel that was made by its name,
    and to Gaussian noise, which may be varying.
    """
    main, *_ = getattr(kernel, "kernels", [kernel])
    lengthscales = np.exp(start.log_lengthscales)
    if main.lengthscales.shape.rank == 0:
        lengthscales = np.exp(np.mean(start.log_lengthscales))
    main.lengthscales.assign(lengthscales)
    main.variance.assign(np.exp(start.log_variance))
    noise: Any = getattr(likelihood.variance, "variance", likelihood.variance)
    noise.assign(max(np.exp(start.log_noise), LEAST_PARAMETER))


def take_over(theta: Hyperparameters, kernel: Kernel, likelihood: Likelihood) -> None:
    """Assign all hyperparameters of an exact model to a kernel and a likelihood that
    were made with its settings.
    """
    start_at(theta, kernel, likelihood)
    for term in _terms_of(kernel):
        term.variance.assign(np.exp(theta.log_additive[term.active_dims[0]]))
    if isinstance(likelihood.variance, LogLinear):
        likelihood.variance.weights.assign(theta.noise_weights[:, None])


def hyperparameters_of(model: Any, skew: float, tails: float) -> Hyperparameters | None:
    """Read the hyperparameters of an exact model from a model of one output, whose
    targets have this warp. None if the model has other hyperparameters.
    """
    kernel = getattr(model.kernel, "kernels", [model.kernel])[0]
    terms = _terms_of(model.kernel)
    noise = getattr(model.likelihood, "variance", None)
    is_plain = all(
        type(term) is RBF and np.asarray(term.active_dims).shape == (1,)
        for term in terms
    )
    if not isinstance(kernel, IsotropicStationary) or noise is None or not is_plain:
        return None
    D = model.data[0].shape[1]
    lengthscales: AnyNDArray = np.broadcast_to(kernel.lengthscales.numpy(), [D])
    c = np.log(model.likelihood.variance_at(np.zeros([1, D])).numpy()[0, 0])
    w = noise.weights.numpy()[:, 0] if isinstance(noise, LogLinear) else np.zeros(D)
    log_v = np.full(D, -np.inf)
    for term in terms:
        log_v[term.active_dims] = np.log(term.variance.numpy())
    log_variance = np.log(kernel.variance.numpy())
    return Hyperparameters(np.log(lengthscales), log_variance, c, w, skew, tails, log_v)


def _terms_of(kernel: Kernel) -> list[Any]:
    """List the terms of a sum after the first one, without a linear function."""
    terms = getattr(kernel, "kernels", [kernel])[1:]
    return [term for term in terms if type(term) is not Linear]


def make_likelihood(
    likelihood: str | Likelihood,
    choices: Mapping[str, Callable[..., Likelihood]],
    *arguments: Any,
    **options: Any,
) -> Likelihood:
    """Make a likelihood from its name, with these arguments, or copy the given
    likelihood.
    """
    if isinstance(likelihood, Likelihood):
        return copy_of(likelihood)
    kind = _choose("likelihood", likelihood, choices, "a GPflow likelihood")
    return kind(*arguments, **options)


def make_inducing_variable(
    rule: Any, X: AnyNDArray, num_inducing: int, kernel: Kernel, seed: int
) -> InducingVariables:
    """Choose inducing variables in the units of X, or use the given ones."""
    if isinstance(rule, InducingVariables):
        return copy_of(rule)
    if rule is not None and not isinstance(rule, str):
        points = as_numbers("inducing", rule, gpflow.default_float())
        if not np.isfinite(points).all():
            raise refusal(
                "inducing", "NaN or infinite numbers", "finite ones", "Correct them."
            )
        if points.ndim == 2:
            return gpflow.inducing_variables.InducingPoints(points)
    select = _choose(
        "inducing", rule, RULES, "points [M, D] or GPflow's inducing variables"
    )
    if rule != ROWS and len(X) > MOST_CHOSEN_FROM:
        X = X[np.random.default_rng(seed).permutation(len(X))[:MOST_CHOSEN_FROM]]
    _, distinct = np.unique(X, axis=0, return_index=True)
    count = min(num_inducing, len(distinct))
    options = {"kernel": kernel} if select is greedy_variance else {}
    if rule != ROWS:
        return select(X, count, seed=seed, **options)
    points = (
        X[np.sort(distinct)]
        if count == len(distinct)
        else kmeans(X, count, seed=seed).Z
    )
    fixed = gpflow.inducing_variables.InducingPoints(points)
    gpflow.set_trainable(fixed, False)
    return fixed
