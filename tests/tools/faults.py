#!/usr/bin/env python3
"""Deliberate faults, one at a time, and whether the fast tests catch each.

    python tests/tools/faults.py                 # all: make faults
    python tests/tools/faults.py cavity tilted   # only those whose name has one of these
    python tests/tools/faults.py --check         # only whether every old text is there once

The tree is copied first; nothing is changed in it. Edit FAULTS as the package changes: `old` must
occur exactly once in `file`. `tests` are files or tests below tests/; -x stops at the first.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    file: str  # below gpflow_pep/
    old: str
    new: str
    tests: tuple[str, ...]  # below tests/, with :: and a name where one is enough


REGRESSION = ("models/test_regression_values.py", "models/test_regression_limits.py")
POINT = ("models/test_pep_values.py", "models/test_pep_limits.py")
TIED = ("models/test_tied_values.py", "models/test_tied_models.py")
FAULTS = [
    Fault(
        "collapsed: a sign",
        "engine/energies/collapsed.py",
        "-0.5 * (logdet + quadratic) - log_root(q)",
        "-0.5 * (logdet + quadratic) + log_root(q)",
        REGRESSION,
    ),
    Fault(
        "point: a factor",
        "engine/energies/point.py",
        "alpha * s * tf.square(slope) / e",
        "s * tf.square(slope) / e",
        POINT,
    ),
    Fault(
        "tied: a missing term",
        "engine/energies/tied.py",
        "        size * log1p_over_power(minus_one, fraction)\n        + ",
        "        ",
        TIED,
    ),
    Fault(
        "tilted: a factor of the probit's expectation",
        "engine/factors/classes.py",
        "low + b * normal_cdf(mean / tf.sqrt(1.0 + variance))",
        "low + b * normal_cdf(mean / tf.sqrt(1.0 + 2.0 * variance))",
        ("engine/factors/test_tilted.py", *POINT),
    ),
    Fault(
        "cavity: a missing power",
        "engine/sites/posterior.py",
        "(q.m - alpha * sites.nu * q.s) / e",
        "(q.m - sites.nu * q.s) / e",
        POINT,
    ),
    Fault(
        "posterior: a factor not transposed",
        "engine/sites/posterior.py",
        "tf.reverse(tf.linalg.matrix_transpose(q.W), [-2, -1])",
        "tf.linalg.matrix_transpose(tf.reverse(tf.linalg.matrix_transpose(q.W), [-2, -1]))",
        (*REGRESSION, *POINT),
    ),
    Fault(
        "selection: residual variances not reduced",
        "training/starts/greedy.py",
        'd[part] -= np.einsum("mn,mn->n", A[:m, part], A[:m, part])',
        'd[part] -= 0.5 * np.einsum("mn,mn->n", A[:m, part], A[:m, part])',
        ("training/starts/test_selection.py",),
    ),
    Fault(
        "saving: constrained values where unconstrained belong",
        "estimators/describing.py",
        '"unconstrained": self._array(value.unconstrained_variable.numpy(), label)',
        '"unconstrained": self._array(value.numpy(), label)',
        ("estimators/test_describing.py", "estimators/test_save_estimator.py"),
    ),
    Fault(
        "sweep: a sign in the sites' second moment",
        "engine/sites/sweep.py",
        "tau = -moments.delta2 / (1.0 + power * moments.delta2 * s)",
        "tau = -moments.delta2 / (1.0 - power * moments.delta2 * s)",
        POINT,
    ),
    Fault(
        "covariances: the residual variance without its projection's square",
        "engine/prior/evaluate.py",
        "(kernel, X), 2) - tf.reduce_sum(tf.square(A), axis=-2)",
        "(kernel, X), 2) - tf.reduce_sum(tf.abs(A), axis=-2)",
        REGRESSION,
    ),
    # Those below were in the package once, and found by hand.
    Fault(
        "shared losses: parameters that are fixed are trained as those of the model before",
        "training/fitting/cheaper.py",
        "((variable.trainable, *variable.shape) for variable in state)",
        "(tuple(variable.shape) for variable in state)",
        ("training/test_shared.py",),
    ),
    Fault(
        "densities of predictions: sums over GPflow's 20 nodes",
        "models/base.py",
        "return log_power_expectation_of_batches(*arguments, alpha=1.0)",
        "return self.likelihood.predict_log_density(X, *arguments[2:])",
        ("contracts/test_contract_of_densities.py",),
    ),
    Fault(
        "constructors: a signature of *arguments and **options",
        "engine/refusals.py",
        "    @wraps(init)\n",
        "",
        ("engine/checks/test_refusals.py::test_what_refuses_arguments_keeps_the_signature",),
    ),
    Fault(
        "kernels: inputs far from 0 lose their digits",
        "engine/prior/evaluate.py",
        "return X - origin, None if X2 is None else X2 - origin",
        "return X, X2",
        ("engine/prior/test_far_inputs.py",),
    ),
    Fault(
        "derivatives: variables that GPflow does not list are forgotten",
        "engine/prior/evaluate.py",
        "if not any(map(_has_code_of_others, self)):",
        "if any(map(_has_code_of_others, self)):",
        ("models/test_hidden_variables.py",),
    ),
    Fault(
        "log-linear noise: a prior that narrows with every input",
        "likelihoods/log_linear.py",
        "tf.constant(PRIOR_DEVIATION / np.sqrt(num_inputs), default_float())",
        "tf.constant(PRIOR_DEVIATION, default_float())",
        ("models/test_varying_noise.py",),
    ),
    Fault(
        "tables: dates in two orders are dropped without a note",
        "tables/cleaning.py",
        "both = bool(np.all(first | second)) and not (first.all() or second.all())",
        "both = False",
        ("compare/test_cleaning.py",),
    ),
    Fault(
        "compare: three classes end with an error",
        "compare/scores.py",
        "for name in names], axis=1)\n        densities = log_of_labels",
        "for name in names[:2]], axis=1)\n        densities = log_of_labels",
        ("compare/test_command.py::test_from_a_table_to_predictions[wine]",),
    ),
    Fault(
        "compare: inputs are permuted after the end of the time",
        "compare/run.py",
        "deadline = -np.inf if is_over else max(",
        "deadline = max(",
        ("compare/test_compare.py::test_no_fit_begins_after_the_end",),
    ),
    Fault(
        "compare: a model whose training had no time is recommended",
        "compare/findings.py",
        "if final is not None and final.message.startswith(OVER):",
        "if final is None:",
        ("compare/test_compare.py::test_no_fit_begins_after_the_end",),
    ),
]
COPIED = ("gpflow_pep", "tests", "examples", "README.md", "pyproject.toml", "setup.cfg", "Makefile")


def root() -> Path:
    said = subprocess.run(
        ["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True
    )
    return Path(said.stdout.strip())


def check(tree: Path, faults: list[Fault]) -> bool:
    good = True
    for fault in faults:
        path = tree / "gpflow_pep" / fault.file
        count = path.read_text().count(fault.old) if path.is_file() else -1
        if count != 1:
            good = False
            what = "there is no such file" if count < 0 else f"the old text occurs {count} times"
            print(f"EDIT ME   {fault.name}: {fault.file}: {what}")
        for test in fault.tests:
            if not (tree / "tests" / test.partition("::")[0]).exists():
                good = False
                print(f"EDIT ME   {fault.name}: there is no tests/{test}")
    return good


def try_fault(tree: Path, fault: Fault) -> str:
    path = tree / "gpflow_pep" / fault.file
    sound = path.read_text()
    path.write_text(sound.replace(fault.old, fault.new))
    try:
        command = [sys.executable, "-m", "pytest", "-m", "not slow", "-x", "-q", "--tb=no"]
        command += ["-p", "no:cacheprovider", *(f"tests/{test}" for test in fault.tests)]
        said = subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
    finally:
        path.write_text(sound)
    failed = [line for line in said.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if said.returncode == 1 and failed:
        return f"caught    by {failed[0].split(' ', 1)[1].split(' - ')[0]}"
    if said.returncode == 0:
        return "MISSED"
    return f"BROKEN    (pytest says {said.returncode}) {said.stdout[-300:]}{said.stderr[-300:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    faults = [
        fault
        for fault in FAULTS
        if not options.names or any(name in fault.name for name in options.names)
    ]
    tree = root()
    if not check(tree, faults):
        sys.exit(2)
    if options.check:
        return
    missed = 0
    with tempfile.TemporaryDirectory(prefix="faults") as directory:
        copy = Path(directory)
        for name in COPIED:
            source = tree / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        for fault in faults:
            start = time.time()
            result = try_fault(copy, fault)
            missed += not result.startswith("caught")
            print(f"{result}\n          {fault.name} ({time.time() - start:.0f} s)", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults caught")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
