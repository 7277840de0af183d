"""Groups of rows and the nearest predecessors in them."""

import gpflow
import numpy as np

SE = gpflow.kernels.SquaredExponential


X = np.array([[0.0, 1.0, 10.0], [4.0, 3.0, 30.0]])  # standard deviations 2, 1, 10
