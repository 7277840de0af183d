"""Classification for scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import type_of_target

from ..distributions.cutting import cuts_reported
from ..engine.refusals import as_code, refusal
from ..engine.refusals.arrays import AnyNDArray
from ..tables.grades import order_of_labels, places_in
from .base import PEPEstimator
from .recipe.classes import fit_classes
from .recipe.mixture import Mixture
from .recipe.recipe import settings_of_one_model
from .single.classes import SingleClassifier
from .single.defaults_of_gpflow import default_float
from .single.inputs import check_table, filled, refuse_missing
from .single.when_used import gpflow


class PEPClassifier(ClassifierMixin, PEPEstimator):
    """Sparse Gaussian process classification by Power EP, as a scikit-learn estimator::

        from gpflow_pep.estimators import PEPClassifier

        model = PEPClassifier(random_state=0).fit(X, labels)
        probability = model.predict_proba(X_new)

    Labels are words, whole numbers or booleans. By default, the classifier mixes
    several models (:mod:`gpflow_pep.estimators.recipe.classes`). All mixed models use
    the values that you set for ``inputs``, ``ard``, ``standardize``, ``likelihood``,
    and ``kernel`` if it is "matern52", "rbf" or "additive". If a parameter is "auto",
    each mixed model has its own value. If you set another kernel, or ``num_inducing``,
    ``alpha``, ``inducing`` or ``batch_size``, the classifier trains a single model.
    ``summary()`` shows which setting selected it.

    In each model all latent functions share the kernel and the inducing points, because
    separate kernels and points would multiply the work, and each would be learnt from
    fewer rows.

    :param likelihood: The likelihood of the labels. "bernoulli" (probit) is for two
        classes; "softmax" is for any number. "multiclass" is RobustMax: the label is
        the class of the largest function, except for one label in 1000.
        "noisy_multiclass" allows three wrong labels in 100. "ordinal" is for classes
        with an order (:class:`~gpflow_pep.likelihoods.Ordinal`). A GPflow likelihood of
        the classes 0 to C - 1 is copied; its classes are those of ``classes_``, or of
        ``order_`` if it is ordinal. "auto" selects "bernoulli" for two classes and
        "softmax" for more.
    :param order: All labels from the lowest to the highest, for "ordinal". None orders
        numbers (also numbers in text) by value, and recognises grades such as "low",
        "medium", "high"; other words raise an error. ``order_`` is the order that the
        model has; ``classes_`` is sorted, as scikit-learn's metrics expect.
    :param near_rows: Whether predictions of two classes may use the 20 nearest training
        rows. With 1000 rows or more, if near rows have similar errors, "auto" trains a
        second model with its own kernel to predict from near rows alone. It is mixed
        with the first model if that improves predictions of left-out rows
        (:func:`~gpflow_pep.training.ensemble_with_near_labels`). 0 or None switches
        near rows off.
    :param max_seconds: The time limit of a fit in seconds. If the classifier may use
        near rows, it spends a quarter of this time on them. With minibatches, near rows
        can take up to ``max_seconds`` in addition.
    :param kernel: The kernel. This parameter and all others are as in
        :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`, and so are the
        attributes after ``fit``, which also sets ``classes_``. If ``near_rows_`` is not
        0, ``model_`` is an ensemble, and ``n_iter_`` and ``record_`` describe the
        training of the inducing points.

    .. seealso:: :class:`PEPRegressor`, :doc:`/estimators`, and :ref:`imbalanced`.
    """

    single_model = SingleClassifier
    mixture_: Mixture
    classes_: AnyNDArray

    def __init__(
        self,
        kernel: str | gpflow.kernels.Kernel = "auto",
        *,
        num_inducing: int | str = "auto",
        alpha: float | str | Sequence[float] = "auto",
        likelihood: str | gpflow.likelihoods.Likelihood = "auto",
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
            if kind == "unknown":
                got += f", an array of {np.asarray(y).dtype}"
                remedy = "Pass y.astype(int) for numbers, y.astype(str) for words."
            raise refusal("y", got, "labels: words or whole numbers", remedy)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            got = f"one class, {as_code(self.classes_[0])}"
            raise refusal("y", got, "two or more", "Add rows of another class.")
        Y = numbers[:, None].astype(default_float())
        given = X
        order = self._places_in_order()
        settings = self._settings(order=order, num_classes=len(self.classes_))
        is_one_model = bool(settings_of_one_model(settings))
        X, Y = self._known_rows(X, Y, is_one_model)
        kind = self.single_model
        before = self._last_model()
        self.mixture_ = fit_classes(kind, settings, self.classes_, X, Y, before)
        return given

    def _places_in_order(self) -> tuple[int, ...] | None:
        """Return the places of the sorted labels from the lowest to the highest; None
        if the likelihood has no order, or the order of the sorted labels.
        """
        if not _are_in_order(self.likelihood):
            if self.order is not None:
                got = f"an order for the likelihood {self.likelihood!r}"
                expected = "no order, or the likelihood 'ordinal'"
                remedy = "Leave it out."
                raise refusal("order", got, expected, remedy)
            return None
        if self.order is not None:
            return tuple(places_in(self.order, self.classes_).tolist())
        places = order_of_labels(self.classes_)
        if places is not None:
            return tuple(places.tolist())
        if self.likelihood == "ordinal":
            words = ", ".join(map(repr, self.classes_.tolist()))
            remedy = "Pass order=[...], all labels from the lowest to the highest."
            raise refusal(
                "y",
                f"the words {words} for 'ordinal'",
                "labels in a known order",
                remedy,
            )
        return None

    @property
    def order_(self) -> AnyNDArray | None:
        """The labels from the lowest to the highest, [C], if the likelihood is ordinal;
        otherwise None.
        """
        if not _are_in_order(self.likelihood):
            return None
        order = self.mixture_.settings.order
        return self.classes_ if order is None else self.classes_[list(order)]

    def predict(self, X: Any) -> AnyNDArray:
        """Predict the most probable class of each row.

        :param X: Inputs, [N, D].
        :raises ValueError: If the columns differ from the columns in training.
        """
        # This refuses an unfitted estimator.
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    @cuts_reported()
    def predict_proba(self, X: Any) -> AnyNDArray:
        """Predict the probability of each class, [N, C], in the order of ``classes_``.

        The probability of a class is its tilted integral at power 1.

        :param X: Inputs, [N, D].
        :raises ValueError: If the columns differ from the columns in training.
        """
        rows = self.checked_inputs(X)
        return self.mixture_.probabilities(rows)

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


def _are_in_order(named: Any) -> bool:
    return "ordinal" in (named, type(named).__name__.lower())


def log_of_labels(probability: AnyNDArray, classes: AnyNDArray, y: Any) -> AnyNDArray:
    """Compute the log probability of the label of each row, [N].

    :raises ValueError: If a label is not one of the classes, or if the number of labels
        differs from the number of rows.
    """
    y = filled(y)
    refuse_missing(y, "label")
    y = column_or_1d(y)
    check_consistent_length(probability, y)
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not np.array_equal(classes[place], y):
        got = f"labels that are not among {as_code(list(classes))}"
        raise refusal("y", got, "these classes", "Leave out rows of other classes.")
    return np.asarray(np.log(probability[np.arange(len(y)), place]))
