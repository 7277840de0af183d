"""scikit-learn's own checks of estimators."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_pep.estimators import PEPClassifier, PEPRegressor

SMALL: dict[str, Any] = {"num_inducing": 5, "alpha": 0.5, "max_iterations": 20}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([PEPRegressor(**SMALL), PEPClassifier(**SMALL), PEPClassifier()])
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
