"""Baselines of the papers' experiments, beside independent ones."""

import importlib
from types import ModuleType

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import EXAMPLES, assert_close, finite_difference_check, regression_problem
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

PROBLEM = regression_problem(num_data=20)
LABELS = (PROBLEM.Y > 0.4).astype(float)
