"""Sparse Gaussian processes with any likelihood by Power EP, and a classifier that
checks labels.
"""

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module, RegressionData, TensorData, TensorType
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from ..engine import checks
from ..engine.energies import mixed, point
from ..engine.energies.point import hessian_product
from ..engine.factors import check_num_latent, check_support, traits
from ..engine.factors.entries import check_entries, target_rule
from ..engine.numerics.chunks import num_rows
from ..engine.numerics.tapes import without_gradient
from ..engine.prior import is_mixed
from ..engine.prior.evaluate import unconverted
from ..engine.sites.implicit import AdjointInfo, Converged, ConvergedRows
from ..engine.sites.memory import Memory
from ..engine.sites.posterior import Natural, Sites, add_memory, natural_sums, no_sites
from ..engine.sites.record import FALLBACKS, FixedPoint, Goal, SiteUpdateInfo, Solver
from ..engine.sites.sweep import infer
from .arguments import (
    FixedParameter,
    mixed_arguments,
    record_unknown,
    refuse_mixed,
    warn_of_run,
)
from .base import ADVICE, InternalDataModel, PowerEPModel, labels_to_floats, refuse_data
from .context_predictions import ContextPredictions
from .memory import AttachedMemory
from .minibatch import MinibatchLoss
from .mixed import loo_log_density as mixed_loo_log_density
from .rows import Cut, Data, replace_rows


class PEP(ContextPredictions, InternalDataModel, PowerEPModel):
    r"""Sparse GP model with any likelihood by Power Expectation Propagation::

        likelihood = gpflow.likelihoods.StudentT()
        model = pep.PEP((X, Y), gpflow.kernels.RBF(), likelihood, X[:20], alpha=0.5)
        pep.training.maximise(model)
        mean, variance = model.predict_y(X_new)

    Each row n has a site, which is a Gaussian factor in the direction of the inducing
    variables on which the row depends. At the fixed point each site matches the moments
    of its tilted distribution. The objective is the Power EP energy,
    :mod:`gpflow_pep.engine.energies.point`: at :math:`\alpha = 0` it is the bound of
    :class:`gpflow.models.SVGP` at its best q, and at :math:`\alpha = 1` the energy of
    expectation propagation. Source: Bui, Yan & Turner (2017), sections 3.3-3.5;
    Villacampa-Calvo & Hernández-Lobato (2020), section 3.1, for several latent
    functions.

    The sites are a cache: the objective and every prediction bring them to the fixed
    point for the present parameters. If they are already there, that costs one sweep
    over the rows.

    :param data: Inputs X [N, D] and targets Y [N, P]; both may be non-trainable
        ``tf.Variable``\ s.
    :param kernel: A kernel of one output, which all latent functions share, or
        ``gpflow.kernels.SharedIndependent``, ``SeparateIndependent`` or
        ``LinearCoregionalization``. With the last, NaN in Y marks missing targets.
    :param likelihood: Any likelihood that :mod:`gpflow_pep.engine.factors` integrates.
    :param inducing_variable: The inducing variables, as in :class:`PEPRegression`; they
        may also be separate for each latent function.
    :param alpha: The power, in [0, 1]: a number, or one number for each row [N]. This
        argument, ``mean_function``, ``memory`` and ``chunk_size`` are as in
        :class:`PEPRegression`.
    :param num_latent_gps: The number of latent functions, L; by default as many as the
        likelihood needs.
    :param max_sweeps: The largest number of sweeps over the rows in one run of the
        inner loop.
    :param tolerance: The largest distance of a site from its target, in standard
        deviations of q, at which the inner loop has converged; 1e-6 by default. It is
        raised to what the float type can reach: 6e-5 in single precision. By default
        ``training_loss`` uses another criterion: half the sum of squared distances,
        averaged over rows, must be below 1e-7, or up to a hundred times more if the
        parameters moved far since the last run. If you pass a tolerance, it also
        applies to ``training_loss``. The default of 1e-7 is the variable
        ``loss_tolerance``; assign 0 to it to use ``tolerance`` instead.
    :param reset_sites: Whether each run starts without sites, not from the sites of the
        last run. This takes more sweeps. It makes log Z a function of the parameters
        alone if there are several fixed points, as at small alpha for likelihoods that
        are not log-concave. The attribute can be changed later.
    :raises ValueError: If data, powers or parts of the model do not fit together.

    .. seealso:: :class:`PEPRegression` for Gaussian noise, :class:`PEPClassification`
        for labels, :class:`ARPEP` for minibatches, :doc:`/likelihoods`, and
        :doc:`/choosing`.
    """

    # Records of what the model did and how exactly. They are not parameters and are not
    # trained.
    _TF_MODULE_IGNORED_PROPERTIES = (
        InternalDataModel._TF_MODULE_IGNORED_PROPERTIES.union(
            {"_last_run", "last_adjoint", "loss_tolerance"}
        )
    )

    last_adjoint: AdjointInfo | None = None
    """Record of the last derivative in eager mode that used converged sites; None
    before the first one.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariablesLike,
        *,
        alpha: TensorData = 0.5,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        memory: Memory | None = None,
        chunk_size: int | None = None,
        max_sweeps: int = 200,
        tolerance: float | None = None,
        reset_sites: bool = False,
    ) -> None:
        X, Y = self._check_data(data, kernel)
        if is_mixed(kernel):
            inducing_variable = mixed_arguments(
                kernel, inducing_variable, Y, num_latent_gps, memory=memory
            )
            num_latent_gps = None  # the likelihood has a likelihood for each column
            check_entries(likelihood, Y)
        else:
            check_support(likelihood, Y)
        num_latent_gps = check_num_latent(num_latent_gps, likelihood, Y)
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            mean_function,
            num_latent_gps,
            alpha,
            X,
        )
        self._check_latent()
        self._set_rows((X, Y), Cut(), chunk_size)
        self._powers()
        self.memory = None if memory is None else AttachedMemory(memory, self)
        # In nats per row. The error of the energy is then too small to disturb L-BFGS.
        # A smaller value needs more sweeps and leads to the same optima. The variable
        # is tracked only for its name in checkpoints.
        value = 1e-7 if tolerance is None else 0.0
        self.__dict__["loss_tolerance"] = tf.Variable(
            value, dtype=X.dtype, trainable=False
        )
        self._track_trackable(self.loss_tolerance, "loss_tolerance")
        self.max_sweeps, self.tolerance = checks.check_loop(
            max_sweeps, 1e-6 if tolerance is None else tolerance, X.dtype
        )
        self.reset_sites = reset_sites
        self.sites = _SiteParameters(no_sites(tf.shape(X)[0], num_latent_gps, X.dtype))
        self._last_run = tf.Variable(tf.zeros([5], X.dtype), trainable=False)

    @unconverted("return: []")
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """Compute log Z as exactly as training needs it: see ``tolerance`` of the
        class.
        """
        return self._energy(tf.convert_to_tensor(self.loss_tolerance))

    @tf.autograph.experimental.do_not_convert
    def pep_log_marginal_likelihood(self, *data: Any) -> tf.Tensor:
        """See
        :meth:`~gpflow_pep.models.base.PowerEPModel.pep_log_marginal_likelihood`.
        """
        refuse_data(self, "pep_log_marginal_likelihood", data)
        return self._energy(0.0)

    def _energy(self, mean_square: TensorType) -> tf.Tensor:
        def energy() -> tf.Tensor:
            problem = self.site_problem().keep_projections(point.KEPT_MATRICES)
            at_fixed_point = (mixed if is_mixed(self.kernel) else point).energy
            return at_fixed_point(problem, self._infer(problem, mean_square))

        if is_mixed(self.kernel) or not tf.executing_eagerly():
            value = energy()
        else:
            sources = self._parts.variables(*self.rows.read())
            product = lambda v: hessian_product(self._converge(), v)  # noqa: E731
            value = point.twice_differentiable(energy, sources, product)
        return checks.require_finite(value, "log marginal likelihood", ADVICE)

    @property
    def last_inference(self) -> SiteUpdateInfo:
        """The record of the last run of the inner loop."""
        return _record_of_run(self._last_run.numpy())

    @tf.autograph.experimental.do_not_convert
    def update_sites(
        self,
        max_sweeps: int | None = None,
        tolerance: float | None = None,
        damping: float | None = None,
        *,
        fresh: bool = False,
    ) -> SiteUpdateInfo:
        """Bring the sites towards their fixed point for the present parameters.

        Predictions and losses do this themselves. Call this method to try other
        settings.

        :param max_sweeps: The largest number of updates of all sites, after a first
            sweep that measures the residual. If it is passed, fallbacks are not tried;
            by default it is the model's limit, and fallbacks are tried.
        :param tolerance: As in the class; by default the tolerance of the model.
        :param damping: The largest step, in (0, 1]; 1 by default.
        :param fresh: Whether to start without sites, not from the present ones. If
            there are several fixed points, the one that is reached then depends on the
            parameters alone.
        :raises ValueError: If an argument is outside its range.
        """
        if damping is not None:
            checks.check_real("damping", damping, "(0, 1]", "A step of 1 is undamped.")
        sweeps, tolerance = checks.check_loop(
            self.max_sweeps if max_sweeps is None else max_sweeps,
            self.tolerance if tolerance is None else tolerance,
            self.data[0].dtype,
        )
        falls_back = max_sweeps is None
        sweeps += not falls_back  # one sweep that only measures
        limits = Solver(Goal(tolerance), sweeps, damping or 1.0, falls_back)
        self._run(self.site_problem(), fresh, limits)
        return self.last_inference

    def minibatch_training_loss_closure(
        self,
        batch_size: int,
        *,
        seed: int,
        compile: bool = True,
        refresh_every: int | None = None,
    ) -> MinibatchLoss:
        """Create the loss for stochastic optimisers, see
        :mod:`gpflow_pep.models.minibatch`.

        Each call updates the sites of the next batch and returns the batch's estimate
        of the training loss, in a time that does not depend on N. Use it with GPflow's
        and Keras's optimisers and :func:`fit <gpflow_pep.training.fitting.loop.fit>`.

        :param batch_size: The number of rows in a batch.
        :param seed: Seed of the batches: the same seed gives the same batches.
        :param compile: Whether to compile the loss.
        :param refresh_every: The number of steps between sums over all rows; one epoch
            by default.
        :raises ValueError: If an argument is outside its range.
        """
        remedy = (
            "The running totals of other batches hold one latent function each, but"
        )
        remedy += (
            " sites of mixed outputs correlate all of them. Use training_loss on all"
            " rows, or ARPEP"
        )
        remedy += " if Y is complete."
        refuse_mixed(self.kernel, "minibatch_training_loss_closure", remedy)
        return MinibatchLoss(self, batch_size, seed, refresh_every, compile)

    def update_data(
        self, new_data: RegressionData, *, alpha: TensorData | None = None
    ) -> None:
        """Train on other rows. Rows that are in the old data, with the same X and Y,
        keep their sites.

        If the data are ``tf.Variable``, the new rows are assigned to them, and compiled
        functions use the new rows. Otherwise functions that were compiled before raise
        an error.

        :param new_data: X [N, D] and Y [N, P], with as many columns as before.
        :param alpha: The power of the new rows, a number or one number for each, if the
            model has a power for each row.
        :raises ValueError: If rows or powers do not suit the model, which then remains
            unchanged.
        """
        self._replace(new_data, alpha, add=False)

    def condition_on(
        self, extra_data: RegressionData, *, alpha: TensorData | None = None
    ) -> None:
        """Add rows after the present ones, and train on all of them; see
        :meth:`update_data`.

        :param extra_data: X and Y of the rows to add.
        :param alpha: As in :meth:`update_data`.
        :raises ValueError: As in :meth:`update_data`.
        """
        self._replace(extra_data, alpha, add=True)

    @tf.autograph.experimental.do_not_convert
    def natural_of_v(self) -> Natural:
        """See :meth:`~gpflow_pep.models.base.InternalDataModel.natural_of_v`."""
        problem, fixed_point, *_ = converged = self._converge()
        solved = problem.by_substitution()
        natural = converged.natural(natural_sums(solved, fixed_point.sites))
        return add_memory(natural, problem.memory)

    @unconverted()
    def converged_rows(self) -> ConvergedRows:
        """Compute marginals, sites and residual variances of all rows at the fixed
        point.

        Use them to define criteria over rows; see
        :class:`~gpflow_pep.engine.sites.implicit.ConvergedRows`.
        """
        refuse_mixed(self.kernel, "converged_rows", "Use loo_log_density_of_entries.")
        return self._converge().numbers_of_rows()

    @unconverted("return: [N]")
    def loo_log_density(self) -> tf.Tensor:
        r"""Compute an approximation of :math:`\log p(y_n | y_{-n})` for each row.

        At any alpha the whole site of the row is removed from q, and the likelihood of
        the row is averaged over the remaining q.

        :raises ValueError: If a row's cavity is then improper, or if the result is not
            finite.
        """
        if is_mixed(self.kernel):
            return mixed_loo_log_density(self)
        value = point.leave_one_out(self._converge())
        return checks.require_finite(value, "leave-one-out log density", ADVICE)

    @unconverted("return: []")
    def total_loo_log_density(self) -> tf.Tensor:
        """Compute the sum of :meth:`loo_log_density`."""
        refuse_mixed(self.kernel, "total_loo_log_density", "Train by the evidence.")
        return tf.reduce_sum(self.loo_log_density())

    def _check_data(self, data: Any, kernel: Kernel | None = None) -> Data:
        return super()._check_data(labels_to_floats(data), kernel)

    def _assign_data(self, data: RegressionData) -> None:
        self.update_data(data)

    def read_sites(self) -> Sites:
        """Read the cached sites; they are empty if the data were replaced by another
        number of rows.
        """
        return self.sites.read(num_rows(self.data[0]))

    def write_sites(self, sites: Sites) -> None:
        """Replace all cached sites; their number may change."""
        self.sites.write(sites)

    def _converge(self) -> Converged:
        problem = self.site_problem().keep_projections()
        # TensorFlow would save an attribute.
        report = partial(self.__dict__.__setitem__, "last_adjoint")
        fixed_point = self._once("sites", partial(self._infer, problem))
        return Converged(problem, fixed_point, self.site_problem, report)

    def _converged_rows(self) -> tuple[Any, ...]:
        problem = self.site_problem()
        fixed_point = self._infer(problem)
        return problem, fixed_point.sites, fixed_point.extra.h

    def _infer(self, problem: Any, mean_square: TensorType = 0.0) -> FixedPoint:
        limits = Solver(Goal(self.tolerance, mean_square), self.max_sweeps)
        fixed_point = self._run(problem, self.reset_sites, limits)
        ell = fixed_point.extra.tilted.ell
        stops = problem.latents.require_resolved(problem, ell, *fixed_point.marginals)
        if not stops:
            return fixed_point
        with tf.control_dependencies(stops):
            sites, moments, extra = tf.nest.map_structure(tf.identity, fixed_point[:3])
        return FixedPoint(sites, moments, extra, fixed_point.info)

    def _run(self, problem: Any, restart: bool, limits: Solver) -> FixedPoint:
        """Run the inner loop, and store where it ended."""

        def run() -> FixedPoint:
            # The check of replaced rows comes first.
            with tf.control_dependencies([problem.rows.X]):
                initial = self.read_sites()
            if restart:
                initial = Sites(*map(tf.zeros_like, initial))
            return infer(problem, initial, limits)

        fixed_point: FixedPoint = without_gradient(run)
        ell = fixed_point.extra.tilted.ell
        fixed_point = fixed_point._replace(info=record_unknown(fixed_point.info, ell))
        self.write_sites(fixed_point.sites)
        dtype = fixed_point.sites.nu.dtype
        self._last_run.assign(
            tf.stack([tf.cast(field, dtype) for field in fixed_point.info])
        )
        info = self.last_inference if tf.executing_eagerly() else fixed_point.info
        warn_of_run(info, self.tolerance, ADVICE + traits(self.likelihood).advice)
        return fixed_point

    def _replace(
        self, data: RegressionData, alpha: TensorData | None, add: bool
    ) -> None:
        X, Y = map(tf.convert_to_tensor, self._check_data(data))
        target_rule(self).check(self.likelihood, Y)
        # All checks come first, so that an error leaves the model unchanged.
        rows, powers, index = replace_rows(self.data, self.alpha, (X, Y), alpha, add)
        stays = index[:, None] >= 0
        sites = (self.sites.nu.numpy(), self.sites.tau.numpy())
        taken_over = [
            tf.constant(np.where(stays, numbers[index], 0.0)) for numbers in sites
        ]
        replaced = self.rows.with_data(rows)
        self._take(replaced if powers is None else replaced.with_powers(powers))
        self.write_sites(Sites(*taken_over))


class PEPClassification(PEP):
    r"""Sparse GP classification, binary or of several classes, by Power Expectation
    Propagation::

        kernel = gpflow.kernels.RBF()
        model = pep.PEPClassification((X, labels), kernel, None, X[:20], alpha=0.5)
        pep.training.maximise(model)
        probability, _ = model.predict_y(X_new)

    This is :class:`~gpflow_pep.models.PEP` with two additions. Labels may have an
    integer type. The likelihood may be None: the model then uses
    ``gpflow.likelihoods.Bernoulli()``, with the probit link, for labels 0 and 1, and
    ``gpflow.likelihoods.MultiClass(C)``, with RobustMax, for labels
    :math:`0 \dots C - 1`, each of them in at least one row.

    :param data: Inputs X [N, D] and labels Y [N, 1], whole numbers from 0. With mixed
        outputs Y is [N, P].
    :param kernel: See :class:`~gpflow_pep.models.PEP`; with several classes, all latent
        functions share one kernel.
    :param likelihood: A likelihood of classes; None selects one for the labels.
    :param inducing_variable: See :class:`~gpflow_pep.models.PEP`.
    :param options: All other arguments of :class:`~gpflow_pep.models.PEP`.
    :raises ValueError: If labels are not whole numbers from 0, or if the likelihood is
        not a likelihood of classes.

    .. seealso:: :class:`~gpflow_pep.estimators.PEPClassifier` for tables and labels of
        any type, :class:`ARPEP` for minibatches, :doc:`/likelihoods`, and
        :ref:`imbalanced`.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood | None,
        inducing_variable: InducingVariablesLike,
        **options: Any,
    ) -> None:
        data = self._check_data(data, kernel)
        if likelihood is None:
            likelihood = _likelihood_for(data)
        elif traits(likelihood).num_classes is None:
            expected = (
                "a likelihood of classes, such as Bernoulli, MultiClass or Softmax,"
                " or None"
            )
            remedy = (
                "Pass None to have it chosen, or use gpflow_pep.models.PEP, which"
                " accepts any"
            )
            remedy += " likelihood."
            raise checks.refusal(
                "likelihood", type(likelihood).__name__, expected, remedy
            )
        super().__init__(data, kernel, likelihood, inducing_variable, **options)

    def _check_data(
        self, data: Any, kernel: Kernel | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        labels = data[1] if isinstance(data, (tuple, list)) and len(data) == 2 else 0.0
        if not tf.is_tensor(labels) and np.asarray(labels).dtype.kind not in "biuf":
            got = f"labels of type {np.asarray(labels).dtype}"
            remedy = (
                "Encode the labels, for instance with numpy.unique(Y,"
                " return_inverse=True)."
            )
            raise checks.refusal("Y", got, "whole numbers from 0", remedy)
        return super()._check_data(data, kernel)


def _likelihood_for(data: Any) -> Likelihood:
    labels = np.unique(np.asarray(data[1]))
    labels = labels[~np.isnan(labels)]  # NaN marks missing labels of mixed outputs
    classes = np.arange(len(labels))
    if len(labels) < 2 or not np.array_equal(labels, classes):
        got = f"the labels {', '.join(f'{label:g}' for label in labels[:10])}"
        expected = (
            "labels 0 to C - 1, each in at least one row, for two or more classes"
        )
        remedy = (
            "Recode the labels, for instance with numpy.unique(Y,"
            " return_inverse=True), or pass a"
        )
        remedy += " likelihood."
        raise checks.refusal("Y", got, expected, remedy)
    return Bernoulli() if len(labels) == 2 else MultiClass(len(labels))


class _SiteParameters(Module):
    """The cached sites of a model, which are never trained."""

    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"version", *Module._TF_MODULE_IGNORED_PROPERTIES}
    )

    def __init__(self, sites: Sites) -> None:
        super().__init__()
        shape = [None, sites.nu.shape[1]]
        self.nu = FixedParameter(sites.nu, shape=shape, dtype=sites.nu.dtype)
        self.tau = FixedParameter(sites.tau, shape=shape, dtype=sites.tau.dtype)
        self.version = tf.Variable(0, trainable=False)
        """The number of times that all sites were replaced at once."""

    def read(self, num_rows: Any) -> Sites:
        """Read the sites; empty sites if the cache has another number of rows."""
        cached = Sites(*map(tf.convert_to_tensor, (self.nu, self.tau)))
        empty = no_sites(num_rows, cached.nu.shape[1], cached.nu.dtype)
        if cached.nu.shape[0] is not None and cached.nu.shape[0] == empty.nu.shape[0]:
            return cached
        same = tf.equal(tf.shape(cached.nu)[0], num_rows)
        numbers = tf.cond(same, lambda: cached, lambda: empty)
        return Sites(*(tf.ensure_shape(number, empty.nu.shape) for number in numbers))

    def write(self, sites: Sites) -> None:
        """Replace all sites; their number may change."""
        for parameter, value in zip((self.nu, self.tau), sites, strict=True):
            # gpflow.utilities.freeze makes it a constant.
            if isinstance(parameter, Parameter):
                parameter.unconstrained_variable.assign(value)
        self.version.assign_add(1)


def _record_of_run(numbers: AnyNDArray) -> SiteUpdateInfo:
    """Convert the five numbers of a run to a record, with the name of the fallback."""
    sweeps, residual, converged, rejected, fallback = numbers
    name = FALLBACKS[int(fallback)]
    return SiteUpdateInfo(
        int(sweeps), float(residual), bool(converged), int(rejected), name
    )
