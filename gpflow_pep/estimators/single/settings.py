"""The settings with which one model is trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...engine.refusals import as_code, refusal
from .when_used import gpflow

#: The name of inducing points that are not trained: all rows, or k-means centres if a
#: number of points is set.
ROWS = "rows"


@dataclass(frozen=True)
class ModelSettings:
    """The settings of one model.

    Most are the parameters of
    :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>` and
    :class:`PEPClassifier <gpflow_pep.estimators.PEPClassifier>`; only the others are
    described here. A recipe replaces some settings to make the models that it tries.
    """

    kernel: str | gpflow.kernels.Kernel = "auto"
    noise: str = "auto"
    warp: bool | str = "auto"
    inputs: str = "auto"
    num_inducing: int | str = "auto"
    alpha: float | str | Sequence[float] = "auto"
    objective: str = "evidence"
    likelihood: str | gpflow.likelihoods.Likelihood = "gaussian"
    inducing: Any = "kmeans"
    near_rows: int | str | None = "auto"
    num_latent: int | None = None
    #: The position of the input that continues beyond the rows; None for no such input.
    time: int | None = None
    ard: bool | float = True
    standardize: bool = True
    max_iterations: int = 1000
    max_seconds: float | None = None
    batch_size: int | str | None = "auto"
    verbose: bool = False
    seed: int = 0  #: The seed, which is drawn from ``random_state`` once for each fit.
    #: The number of classes; None if targets are numbers.
    num_classes: int | None = None
    #: The places of the classes in their order, for a likelihood of ordered classes;
    #: None if they are in order already.
    order: Sequence[int] | None = None

    def changes(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the settings, among these names, that do not have their default
        value.
        """
        defaults = ModelSettings()
        if self.num_classes is not None:
            defaults = ModelSettings(likelihood="auto")
        changed = {}
        for name, value in vars(self).items():
            default = getattr(defaults, name)
            if name in names and not (
                isinstance(value, type(default)) and value == default
            ):
                changed[name] = value
        return changed

    def is_like(self, other: ModelSettings) -> bool:
        """Return whether both describe the same model, apart from how long it is
        trained.
        """
        return replace(self, max_iterations=other.max_iterations) == other


def wants_near_rows(near_rows: Any) -> bool:
    """Return whether predictions may use near rows: "auto" allows them, 0 and None do
    not.

    :raises ValueError: If the argument has another value.
    """
    if near_rows in ("auto", None) or (near_rows == 0 and near_rows is not False):
        return near_rows == "auto"
    remedy = "Leave it out if in doubt."
    raise refusal("near_rows", as_code(near_rows), "'auto', 0 or None", remedy)
