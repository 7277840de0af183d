"""
Models for Bayesian optimisation by trieste: an adapter, and samplers by functions of
the posterior.

:class:`PEPModel` has the methods that trieste's acquisition functions and loops need of
a model, whatever the likelihood. Thompson sampling minimises functions that
:mod:`gpflow_pep.engine.paths` draws, and Monte Carlo acquisition functions average over
them. Nothing here imports trieste, except to hand it a data set: its interfaces are
protocols, which need methods and no base class.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.conditionals.util import sample_mvn
from gpflow.utilities.ops import leading_transpose

from gpflow_pep.engine.checks import check_positive, check_seed, refusal
from gpflow_pep.engine.factors import predict_mean_and_var, traits
from gpflow_pep.engine.paths import Paths
from gpflow_pep.engine.predictions.posterior import f_under
from gpflow_pep.engine.prior import is_mixed, latent_kernels
from gpflow_pep.engine.prior.evaluate import covariance, project
from gpflow_pep.engine.prior.evaluate import mean as mean_at
from gpflow_pep.engine.sites.posterior import WhitenedGaussian
from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.models.arguments import set_unchecked
from gpflow_pep.training import MaximiseRecord, maximise
from gpflow_pep.training.fitting.objectives import WholeLoss


class PEPModel:
    """A model for trieste, with any likelihood::

        model = pep.PEPClassification((X, labels), kernel, None, Z)
        optimizer = trieste.bayesian_optimizer.BayesianOptimizer(observer, space)
        result = optimizer.optimize(20, data, PEPModel(model), rule)

    ``predict``, ``predict_joint``, ``sample``, ``covariance_between_points`` and the
    samplers are of f, ``predict_y`` of observations. Leading axes of inputs are kept.
    What is known of q is computed in :meth:`update` and :meth:`optimize`, so that
    predictions cost no sweep over rows.

    :param model: ``PEP``, ``PEPRegression`` or ``PEPClassification``, without blocks
        and near rows. Its rows become variables, so that compiled functions go on with
        others; its inducing points stay as many as they are: spread them over the space
        that is searched.
    :param num_features: The random frequencies of functions, see ``model.paths``.
    :param seed: For functions that are drawn.
    :param options: Of :func:`~gpflow_pep.training.maximise`, for :meth:`optimize`.
    :raises ValueError: If the model is another.
    """

    def __init__(
        self, model: Any, *, num_features: int = 1024, seed: int = 0, **options: Any
    ) -> None:
        ours = isinstance(model, (PEP, PEPRegression)) and not is_mixed(model.kernel)
        if not ours or model.rows.cut.block_rows is not None:
            expected = (
                "PEP or PEPRegression without blocks, near rows and mixed outputs"
            )
            raise refusal("model", type(model).__name__, expected, "Leave those out.")
        rows = map(tf.convert_to_tensor, model.data)
        shapes = ((part, [None, *part.shape[1:]]) for part in rows)
        data = tuple(
            tf.Variable(part, shape=shape, trainable=False) for part, shape in shapes
        )
        set_unchecked(model, data=data)
        self.model = model
        self._num_features = check_positive("num_features", num_features)
        self._seeds = count(check_seed(seed))
        self._options = {"progress": False, **options}
        self._loss: WholeLoss | None = None
        q = model._posterior_of_v()
        self._q = WhitenedGaussian(*(tf.Variable(part, trainable=False) for part in q))

    def __repr__(self) -> str:
        return f"PEPModel({type(self.model).__name__})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PEPModel":
        """Copy the model as it is; the copy compiles its own loss."""
        options = {
            "num_features": self._num_features,
            "seed": next(self._seeds),
            **self._options,
        }
        copied = memo[id(self)] = PEPModel(
            gpflow.utilities.deepcopy(self.model, memo), **options
        )
        return copied

    def update(self, dataset: Any) -> None:
        """Take other rows, without training.

        :param dataset: trieste's, with ``query_points`` [N, D] and ``observations`` [N,
            P].
        :raises ValueError: If the model does not take them.
        """
        self.model.data = dataset.query_points, dataset.observations
        self._refresh()

    def optimize(self, dataset: Any = None) -> MaximiseRecord:
        """Train the model on its rows, after an :meth:`update`; only the first call
        compiles.
        """
        if self._loss is None:
            objective = self._options.get("objective", "evidence")
            self._loss = WholeLoss(self.model, objective=objective)
        record = maximise(self._loss, **self._options)
        self._refresh()
        return record

    def _refresh(self) -> None:
        for variable, value in zip(self._q, self.model._posterior_of_v(), strict=True):
            variable.assign(value)

    def _f(self, X: TensorType, full_cov: bool = False) -> MeanAndVariance:
        kernel, variables, mean_function, _ = self.model._parts
        return f_under(self._q, kernel, variables, mean_function, X, full_cov)

    def predict(self, query_points: TensorType) -> MeanAndVariance:
        """Predict f at points [..., D]: mean and variance, [..., L] each."""
        X, restore = _as_rows(query_points)
        mean, variance = self._f(X)
        return restore(mean), restore(variance)

    def predict_y(self, query_points: TensorType) -> MeanAndVariance:
        """Predict observations at points [..., D]: mean and variance, [..., P] each."""
        X, restore = _as_rows(query_points)
        mean, variance = predict_mean_and_var(self.model.likelihood, X, *self._f(X))
        return restore(mean), restore(variance)

    def predict_joint(self, query_points: TensorType) -> MeanAndVariance:
        """Predict f at points [..., B, D] together: mean [..., B, L], covariance [...,
        L, B, B].
        """
        return self._f(query_points, full_cov=True)

    def sample(self, query_points: TensorType, num_samples: int) -> tf.Tensor:
        """Draw f at points [..., N, D] together, [..., S, N, L]."""
        mean, covariance = self.predict_joint(query_points)
        draws = sample_mvn(
            tf.linalg.matrix_transpose(mean), covariance, True, num_samples
        )
        return tf.linalg.matrix_transpose(draws)

    def covariance_between_points(
        self, query_points_1: TensorType, query_points_2: TensorType
    ) -> tf.Tensor:
        """Compute the covariances of f, [..., L, N, M], between points [..., N, D] and
        [M, D]: :math:`k(x, x') - A_x^T A_{x'} + A_x^T S A_{x'}` with the covariance S
        of q(v).
        """
        parts = self.model._parts
        root = self._q.q_sqrt
        X, restore = _as_rows(query_points_1)
        L = parts.whiten().L
        first, second = (
            project(
                L,
                parts.inducing_variable,
                parts.kernel,
                rows,
                tf.linalg.triangular_solve,
            ).A
            for rows in (X, query_points_2)
        )
        kernels = latent_kernels(parts.kernel)
        prior = tf.stack([covariance(kernel, X, query_points_2) for kernel in kernels])
        rest = prior - tf.matmul(first, second, transpose_a=True)
        first, second = (tf.matmul(root, A, transpose_a=True) for A in (first, second))
        # [L, N, M] of all rows
        joint = rest + tf.matmul(first, second, transpose_a=True)
        return leading_transpose(
            restore(tf.transpose(joint, [1, 0, 2])), [..., -2, -3, -1]
        )

    def trajectory_sampler(self) -> "_PathSampler":
        """Make a sampler of functions, for Thompson sampling."""
        return _PathSampler(self)

    def reparam_sampler(self, num_samples: int) -> "_PathReparametrization":
        """Make a sampler of joint values, for Monte Carlo acquisition functions."""
        return _PathReparametrization(num_samples, self)

    def draw_paths(self, num_paths: int) -> Paths:
        """Draw functions, in a graph too: they are drawn before it runs."""

        def q():
            return WhitenedGaussian(*map(tf.convert_to_tensor, self._q))

        def source():
            return (self.model._parts, q())

        with tf.init_scope():
            return Paths(source, num_paths, self._num_features, self.next_seed())

    def next_seed(self) -> int:
        """Give another seed for each draw."""
        return next(self._seeds)

    def get_kernel(self) -> gpflow.kernels.Kernel:
        """Give the kernel."""
        return self.model.kernel

    def get_mean_function(self) -> Callable[[TensorType], TensorType]:
        """Give the mean function."""
        return lambda X: mean_at(self.model.mean_function, X)

    def get_observation_noise(self) -> tf.Tensor:
        """Give the variance of Gaussian noise; refuse others than one number."""
        likelihood = self.model.likelihood
        if not traits(likelihood).is_gaussian or not hasattr(
            likelihood.variance, "numpy"
        ):
            remedy = "Use an acquisition function that does not need it."
            raise refusal(
                "noise", type(likelihood).__name__, "Gaussian noise of a number", remedy
            )
        return tf.convert_to_tensor(likelihood.variance)

    def get_internal_data(self) -> Any:
        """Give the rows as trieste's ``Dataset``, which must be installed."""
        from trieste.data import Dataset

        return Dataset(*map(tf.convert_to_tensor, self.model.data))

    def log(self, dataset: Any = None) -> None:
        """Do nothing: trieste lets a model log something."""

    def get_module_with_variables(self, *dependencies: Any) -> tf.Module:
        """Make a module with the model's variables, to be saved with
        functions of it.
        """
        module = tf.Module()
        others = [v for part in dependencies for v in getattr(part, "variables", ())]
        module.saved_variables = [*self.model.variables, *self._q, *others]
        return module


class _Draws:
    """Functions of the posterior that are drawn when they are needed, and anew in
    place.
    """

    def __init__(self, model: PEPModel) -> None:
        self._model = model
        self._paths: Paths | None = None

    def _drawn(self, num_paths: int) -> Paths:
        if self._paths is None:
            self._paths = self._model.draw_paths(num_paths)
        return self._paths

    def resample(self) -> None:
        """Draw other functions in place, of the model as it is."""
        if self._paths is not None:
            with tf.init_scope():
                self._paths.update()
                self._paths.resample(self._model.next_seed())


class _PathTrajectory(_Draws):
    """
    B functions of the posterior, each evaluated at its own inputs: what trieste calls a
    trajectory.

    B is that of the first call.
    """

    def __call__(self, x: TensorType) -> tf.Tensor:
        """Evaluate them at x [N, B, D], [N, B, L].

        :raises ValueError: If B is not known, or another one than before.
        """
        x = tf.convert_to_tensor(x)
        num_paths = x.shape[1] if x.shape.rank == 3 else None
        if num_paths is None or (self._paths and num_paths != self._paths.num_paths):
            number = self._paths.num_paths if self._paths else "B"
            remedy = "Get a new trajectory for another number of functions."
            raise refusal("x", f"shape {tuple(x.shape)}", f"[N, {number}, D]", remedy)
        each = self._drawn(num_paths).each(tf.transpose(x, [1, 0, 2]))
        return tf.transpose(each, [1, 0, 2])


class _PathSampler:
    """A sampler of trajectories, see :class:`_PathTrajectory`."""

    def __init__(self, model: PEPModel) -> None:
        self._model = model

    def get_trajectory(self) -> _PathTrajectory:
        """Draw functions; how many is what the first call needs."""
        return _PathTrajectory(self._model)

    def resample_trajectory(self, trajectory: _PathTrajectory) -> _PathTrajectory:
        """Draw other functions in place: what was compiled goes on with them."""
        trajectory.resample()
        return trajectory

    update_trajectory = resample_trajectory


class _PathReparametrization(_Draws):
    """Joint values of f at batches of points, from the same S functions until it is
    reset.

    :param sample_size: S.
    """

    def __init__(self, sample_size: int, model: PEPModel) -> None:
        super().__init__(model)
        self._sample_size = check_positive("sample_size", sample_size)

    def sample(self, at: TensorType, *, jitter: float = 0.0) -> tf.Tensor:
        """Evaluate the functions at points [..., B, D], [..., S, B, L].

        :param jitter: Not needed: no covariance of these points is factorised.
        """
        X, restore = _as_rows(at)
        values = restore(tf.transpose(self._drawn(self._sample_size)(X), [1, 0, 2]))
        return leading_transpose(values, [..., -2, -3, -1])  # from [..., B, S, L]

    reset_sampler = _Draws.resample


def _as_rows(X: InputData) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Make rows [N, D] of points [..., D]; and what puts a tensor [N, ...] in their
    form.
    """
    X = tf.convert_to_tensor(X)
    leading = tf.shape(X)[:-1]

    def restore(values: tf.Tensor) -> tf.Tensor:
        shaped = tf.reshape(values, tf.concat([leading, tf.shape(values)[1:]], axis=0))
        return tf.ensure_shape(shaped, [*X.shape[:-1], *values.shape[1:]])

    return tf.reshape(X, [-1, X.shape[-1]]), restore
