"""Classification for scikit-learn."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import type_of_target

from ..distributions.cutting import cuts_reported
from ..distributions.mixtures import mixed_probabilities
from ..engine import factors
from ..engine.checks import refusal
from ..models import PEPClassification
from ..scoring.components import predict_probabilities
from ..tables.grades import order_of_labels, places_in
from ..training import Ensemble, ensemble_with_near_labels
from ..training.choosing.near import LEAST_ROWS, STEPS, takes_near_labels
from .base import PREDICTION_CHUNK, PEPEstimator
from .recipe.classes import fit_class_stack
from .single.inputs import check_table, filled, refuse_missing
from .single.parts import CLASSES, make_likelihood, wants_near_rows

#: The share of ``max_seconds`` that is spent on training predictions from near rows.
SHARE_OF_NEAR_ROWS = 0.25


class PEPClassifier(ClassifierMixin, PEPEstimator):
    """Sparse Gaussian process classification by Power EP, as a scikit-learn estimator::

        from gpflow_pep.estimators import PEPClassifier

        model = PEPClassifier(random_state=0).fit(X, labels)
        probability = model.predict_proba(X_new)

    Labels are words, whole numbers or booleans. By default, the classifier mixes
    several models (:mod:`gpflow_pep.estimators.recipe.classes`). All mixed models use
    the values that you set for ``inputs``, ``ard``, ``standardize``, ``likelihood``,
    and ``kernel`` if it is "matern52", "rbf" or "additive". If you set another kernel,
    or ``num_inducing``, ``alpha``, ``inducing`` or ``batch_size``, the classifier
    trains a single model. ``summary()`` shows which setting selected it.

    In each model all latent functions share the kernel and the inducing points, because
    separate ones would multiply the work and each would be learnt from fewer rows.

    :param likelihood: The likelihood of the labels. "bernoulli" (probit) is for two
        classes; "softmax" is for any number. "multiclass" is RobustMax: the label is
        the class of the largest function, except for one label in 1000.
        "noisy_multiclass" allows three wrong labels in 100. "ordinal" is for classes
        with an order (:class:`~gpflow_pep.likelihoods.Ordinal`). A GPflow likelihood of
        the classes 0 to C - 1, in the order of ``classes_``, is copied. "auto" selects
        "bernoulli" for two classes and "softmax" for more.
    :param order: All labels from the lowest to the highest, for "ordinal"; ``classes_``
        then has this order. None orders numbers (also numbers in text) by value, and
        recognises grades such as "low", "medium", "high"; other words raise an error.
    :param near_rows: Whether predictions of two classes may use the 20 nearest training
        rows. With 1000 rows or more, if near rows have similar errors, "auto" trains a
        second model with its own kernel to predict from near rows alone. It is mixed
        with the first model if that improves predictions of left-out rows
        (:func:`~gpflow_pep.training.ensemble_with_near_labels`). 0 or None switches
        near rows off.
    :param max_seconds: The time limit of a fit in seconds. If the classifier may use
        near rows, it spends a quarter of this time on them. With minibatches it takes
        the same time again.
    :param kernel: The kernel. This parameter and all others are as in
        :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`, and so are the
        attributes after ``fit``, which also sets ``classes_``. If ``near_rows_`` is not
        0, ``model_`` is an ensemble, and ``n_iter_`` and ``record_`` describe the
        training of the inducing points.

    .. seealso:: :class:`PEPRegressor`, :doc:`/estimators`, and :ref:`imbalanced`.
    """

    classes_: AnyNDArray

    def __init__(
        self,
        kernel: str | Kernel = "auto",
        *,
        num_inducing: int | str = "auto",
        alpha: float | str | Sequence[float] = "auto",
        likelihood: str | Likelihood = "auto",
        order: Sequence[Any] | None = None,
        inputs: str = "auto",
        inducing: Any = "kmeans",
        near_rows: int | str | None = "auto",
        ard: bool | float = True,
        standardize: bool = True,
        max_iterations: int = 1000,
        max_seconds: float | None = None,
        batch_size: int | str | None = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            kernel,
            num_inducing=num_inducing,
            alpha=alpha,
            likelihood=likelihood,
            inputs=inputs,
            inducing=inducing,
            near_rows=near_rows,
            ard=ard,
            standardize=standardize,
            max_iterations=max_iterations,
            max_seconds=max_seconds,
            batch_size=batch_size,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
        )
        self.order = order

    def _fit(self, X: Any, y: Any) -> AnyNDArray:
        check_table("y", y)
        y = filled(y)
        refuse_missing(y, "label")
        X, y = self._validate(X, y)
        if len({isinstance(label, str) for label in y}) > 1:
            raise refusal(
                "y",
                "words and numbers as labels",
                "labels of one kind",
                "Pass y.astype(str).",
            )
        kind = type_of_target(y, input_name="y")
        in_order = _are_in_order(self.likelihood)
        if kind not in ("binary", "multiclass") and not (
            in_order and kind == "continuous"
        ):
            # scikit-learn's checks look for these words.
            got = f"Unknown label type: {kind}"
            remedy = (
                "Use likelihood='ordinal' for ratings, and PEPRegressor for"
                " measurements."
            )
            raise refusal("y", got, "labels: words or whole numbers", remedy)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            got = f"one class, {self.classes_[0]!r}"
            raise refusal("y", got, "two or more", "Add rows of another class.")
        Y = numbers[:, None].astype(gpflow.default_float())
        given = X
        X, Y = self._known_rows(X, Y)
        Y = self._in_order(Y)
        if self._names_a_model or len(X) < 2:
            self._fit_one(X, Y)
        else:
            seconds = np.inf if self.max_seconds is None else self.max_seconds
            self._set_stack(fit_class_stack(self, X, Y, seconds))
        return given

    def _fit_one(self, X: AnyNDArray, Y: AnyNDArray, start: None = None) -> None:
        """Train the single model that the settings describe."""
        self._stack = None
        Y = self._in_order(Y)
        self._has_many_rows = len(X) >= LEAST_ROWS
        self._train(self._scaled_rows(X), Y)

    def _in_order(self, Y: AnyNDArray) -> AnyNDArray:
        """Put classes in their order, if the likelihood needs one; number labels so."""
        places = self._places_in_order()
        if places is None:
            return Y
        self.classes_ = self.classes_[places]
        return np.argsort(places)[Y.astype(int)].astype(Y.dtype)

    def _places_in_order(self) -> AnyNDArray | None:
        """Return the places of the sorted labels in their order; None if they stay as
        they are.
        """
        if not _are_in_order(self.likelihood):
            if self.order is not None:
                got = f"an order for the likelihood {self.likelihood!r}"
                expected, remedy = (
                    ("no order, or the likelihood 'ordinal'"),
                    "Leave it out.",
                )
                raise refusal("order", got, expected, remedy)
            return None
        if self.order is not None:
            return places_in(self.order, self.classes_)
        places = order_of_labels(self.classes_)
        if places is None and self.likelihood == "ordinal":
            words = ", ".join(map(repr, self.classes_.tolist()))
            remedy = "Pass order=[...], all labels from the lowest to the highest."
            raise refusal(
                "y",
                f"the words {words} for 'ordinal'",
                "labels in a known order",
                remedy,
            )
        return places

    def predict(self, X: Any) -> AnyNDArray:
        """Predict the most probable class of each row.

        :param X: Inputs, [N, D].
        :raises ValueError: If the columns are not those that the model was trained on.
        """
        best = np.argmax(self.predict_proba(X), axis=1)  # refuses what is not fitted
        return np.asarray(self.classes_[best])

    @cuts_reported()
    def predict_proba(self, X: Any) -> AnyNDArray:
        """Predict the probability of each class, [N, C], in the order of ``classes_``.

        The probability of a class is its tilted integral at power 1.

        :param X: Inputs, [N, D].
        :raises ValueError: If the columns are not those that the model was trained on.
        """
        X, stack = self._rows(X), self._stack
        if stack is None:
            return self._probabilities(X)
        parts = [
            part._probabilities(X)[:, part.columns_of(self)]
            for part in stack.components
        ]
        return mixed_probabilities(stack.weights, parts, self.recalibration_)

    def columns_of(self, whole: "PEPClassifier") -> list[int]:
        """Find the columns of this component's probabilities in the order of the
        classes of the whole; a component may order its classes differently.
        """
        known = self.classes_.tolist()
        return [known.index(label) for label in whole.classes_.tolist()]

    def _probabilities(self, X: AnyNDArray) -> AnyNDArray:
        """Predict the class probabilities of this single model, at rows in original
        units.
        """
        X = self._in_units(X)
        parts, weights = self._mixture_in_numpy()
        if parts:
            return predict_probabilities(parts, weights, X)
        (probability,) = self._predicted(
            X, self.posterior_.predict_probabilities, PREDICTION_CHUNK
        )
        # Rounding of the integrals leaves sums that differ from 1 by some 1e-9.
        return np.asarray(probability / probability.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> AnyNDArray:
        """Predict the logarithms of :meth:`predict_proba`, [N, C]."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def log_score(self, X: Any, y: Any) -> float:
        """Compute the mean log probability of the labels, in nats.

        :param X: Inputs, [N, D].
        :param y: Labels, [N], all among ``classes_``.
        """
        return float(np.mean(self.log_densities(X, y)))

    def log_densities(self, X: Any, y: Any) -> AnyNDArray:
        """Compute the log probability of the label of each row, [N].

        :param X: Inputs, [N, D].
        :param y: Labels, [N], all among ``classes_``.
        """
        return log_of_labels(self.predict_proba(X), self.classes_, y)

    def _make_likelihood(self) -> Likelihood:
        num_classes = len(self.classes_)
        name = self.likelihood
        if isinstance(name, str) and name == "auto":
            name = "bernoulli" if num_classes == 2 else "softmax"
        arguments = (
            () if isinstance(name, str) and name == "bernoulli" else (num_classes,)
        )
        likelihood = make_likelihood(name, CLASSES, *arguments)
        number = factors.num_classes(likelihood)
        if number != num_classes:
            kind = name if isinstance(name, str) else type(name).__name__
            expected = f"a likelihood of as many classes as y has, and not of {number}"
            remedy = (
                "Use 'auto', 'softmax', 'multiclass' or 'ordinal', or correct its"
                " number of classes."
            )
            raise refusal(
                "likelihood", f"{kind!r} for {num_classes} classes", expected, remedy
            )
        return likelihood

    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel:
        kernel, likelihood, points = parts
        return PEPClassification(data, kernel, likelihood, points, alpha=alpha)

    @property
    def _tries_near_labels(self) -> bool:
        """Return whether a fit may train a model for predictions from near rows."""
        if not wants_near_rows(self.near_rows):
            return False
        return self._has_many_rows and takes_near_labels(
            self.kernel, self._make_likelihood()
        )

    def _seconds_of_points(self) -> float:
        seconds = super()._seconds_of_points()
        if seconds == np.inf or not self._tries_near_labels:
            return seconds
        return (1.0 - SHARE_OF_NEAR_ROWS) * seconds

    def _with_near_labels(
        self, model: GPModel | Ensemble, data: RegressionData, seed: int
    ) -> GPModel | Ensemble:
        if not self._tries_near_labels:
            return model
        share = 1.0 if self.record_ is None else SHARE_OF_NEAR_ROWS
        options: dict[str, Any] = {"seed": seed, "progress": self.verbose}
        options["seconds"] = (
            None if self.max_seconds is None else share * self.max_seconds
        )
        number = min(STEPS, self.max_iterations)
        return (
            ensemble_with_near_labels(model, data, num_steps=number, **options) or model
        )


def _are_in_order(named: Any) -> bool:
    return "ordinal" in (named, type(named).__name__.lower())


def log_of_labels(probability: AnyNDArray, classes: AnyNDArray, y: Any) -> AnyNDArray:
    """Compute the log probability of the label of each row, [N].

    :raises ValueError: If a label is not one of the classes, or if the number of labels
        is not that of the rows.
    """
    y = filled(y)
    refuse_missing(y, "label")
    y = column_or_1d(y)
    check_consistent_length(probability, y)
    order = np.argsort(classes)  # grades in text are sorted by value
    places = np.minimum(np.searchsorted(classes, y, sorter=order), len(classes) - 1)
    place = order[places]
    if not np.array_equal(classes[place], y):
        got = f"labels that are not among {list(classes)}"
        raise refusal("y", got, "these classes", "Leave out rows of other classes.")
    return np.asarray(np.log(probability[np.arange(len(y)), place]))
