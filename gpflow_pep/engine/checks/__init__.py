"""Checks of models' arguments, whose errors have what was got, what was expected, and
what to do. Checks of numbers and arrays are in :mod:`gpflow_pep.engine.refusals`.
"""

from ..refusals import as_code, counted, message, refusal
from ..refusals.arrays import (
    as_labels,
    as_matrix,
    as_numbers,
    as_vector,
    as_vectors,
    require_finite_rows,
    require_same_length,
)
from ..refusals.numbers import (
    check_callable,
    check_choice,
    check_level,
    check_number,
    check_positive,
    check_real,
    check_seed,
    is_number,
)
from .arguments import (
    as_pair,
    check_blocks,
    check_data,
    check_finite,
    check_incomplete_data,
    check_kernel,
    check_likelihood,
    check_loop,
    check_mean_function,
    check_new_inputs,
    check_noise_variance,
    check_num_outputs,
    check_same_float,
    check_single_output,
)
from .graph import (
    check_alpha,
    differentiable,
    is_for_xla,
    once_differentiable,
    read_powers,
    reason,
    refuse_derivatives,
    require,
    require_finite,
)
