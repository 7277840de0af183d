#!/usr/bin/env python3
"""Deliberate faults, one at a time, and whether the fast tests catch each.

    python tests/tools/faults.py                 # all: make faults
    python tests/tools/faults.py cavity tilted   # those whose name has one of these
    python tests/tools/faults.py --check         # whether every old text is there once

The tree is copied first; nothing is changed in it. Edit LIST as the package changes: of
each fault its name, its file below gpflow_pep/ and files or tests below tests/ that
should notice it (-x stops at the first), the old text, which must occur exactly once in
the file, and the new one.
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

SEVERAL = {
    "REGRESSION": "models/test_regression.py",
    "POINT": "models/test_pep.py",
    "TIED": "models/test_tied.py",
    "SAVING": "estimators/test_describing.py estimators/test_save_estimator.py",
}
#: From "shared losses" on they were in the package once, and found by hand.
LIST = r"""
# collapsed: a sign
engine/energies/collapsed.py: REGRESSION
--0.5 * (logdet + quadratic) - log_root(q)
+-0.5 * (logdet + quadratic) + log_root(q)
# point: a factor
engine/energies/point.py: POINT
-alpha * s * tf.square(slope)
+s * tf.square(slope)
# tied: a missing term
engine/energies/tied.py: TIED
-size * log1p_over_power(minus_one, fraction)
+0.0 * log1p_over_power(minus_one, fraction)
# tilted: a factor of the probit's expectation
engine/factors/classes.py: engine/factors/test_tilted.py POINT
-deviation = tf.sqrt(1.0 + variance)
+deviation = tf.sqrt(1.0 + 2.0 * variance)
# cavity: a missing power
engine/sites/posterior.py: POINT
-(q.m - alpha_s * sites.nu) / e
+(q.m - q.s * sites.nu) / e
# posterior: a factor not transposed
engine/sites/posterior.py: REGRESSION POINT
-tf.reverse(tf.linalg.matrix_transpose(factor.W), [-2, -1])
+tf.linalg.matrix_transpose(tf.reverse(tf.linalg.matrix_transpose(factor.W), [-2, -1]))
# selection: residual variances not reduced
training/starts/greedy.py: training/starts/test_selection.py
-d[rows] -= np.einsum("mn,mn->n", A[:m, rows], A[:m, rows])
+d[rows] -= 0.5 * np.einsum("mn,mn->n", A[:m, rows], A[:m, rows])
# saving: constrained values where unconstrained belong
estimators/single/describing.py: SAVING
-"unconstrained": self._array(value.unconstrained_variable.numpy(), label)
+"unconstrained": self._array(value.numpy(), label)
# sweep: a sign in the sites' second moment
engine/sites/sweep.py: POINT
-shrinkage = 1.0 + power * moments.delta2 * s
+shrinkage = 1.0 - power * moments.delta2 * s
# variances by NumPy: Q in place of factors
scoring/components.py: contracts/test_contract_of_variances.py
-by_latent = [np.sum(solve_lower(R, K.T) ** 2, axis=0) for R in roots]
+by_latent = [np.sum(np.linalg.inv(R @ R.T) @ K.T * K.T, axis=0) for R in roots]
# variances by TensorFlow: Q in place of factors
engine/predictions/posterior.py: contracts/test_contract_of_variances.py
-self._of_v(L), moments, Xnew, full_cov, full_output_cov
+self,
+            [part.value for part in self.gpflow_class._precompute(self)],
+            Xnew,
+            full_cov,
+            full_output_cov,
# covariances: the residual variance without its projection's square
engine/prior/evaluate.py: REGRESSION
-of_prior - tf.reduce_sum(tf.square(A), axis=-2)
+of_prior - tf.reduce_sum(tf.abs(A), axis=-2)
# shared losses: parameters that are fixed are trained as those of the model before
training/fitting/cheaper.py: training/test_shared.py
-((variable.trainable, *variable.shape) for variable in state)
+(tuple(variable.shape) for variable in state)
# densities of predictions: sums over GPflow's 20 nodes
models/base.py: contracts/test_contract_of_densities.py
-return log_power_expectation_of_batches(*arguments, alpha=1.0)
+return self.likelihood.predict_log_density(X, *arguments[2:])
# constructors: a signature of *arguments and **options
models/arguments.py: engine/checks/test_refusals.py::test_constructors_show_arguments
-@wraps(init)
+@lambda function: function
# kernels: inputs far from 0 lose their digits
engine/prior/evaluate.py: engine/prior/test_far_inputs.py
-return X - origin, None if X2 is None else X2 - origin
+return X, X2
# derivatives: variables that GPflow does not list are forgotten
engine/prior/evaluate.py: models/test_derivatives.py
-if not any(map(_has_code_of_others, self)):
+if any(map(_has_code_of_others, self)):
# log-linear noise: a prior that narrows with every input
likelihoods/log_linear.py: models/test_varying_noise.py
-tf.constant(PRIOR_DEVIATION / np.sqrt(num_inputs), default_float())
+tf.constant(PRIOR_DEVIATION, default_float())
# tables: dates in two orders are dropped without a note
tables/lookalikes.py: compare/test_cleaning.py
-return bool(np.all(day_first | month_first))
+return False
# compare: three classes end with an error
compare/scores.py: compare/test_command.py::test_every_model_is_fitted_in_every_part
-for name in names], axis=1)
-        densities = log_of_labels
+for name in names[:2]], axis=1)
+        densities = log_of_labels
# compare: inputs are permuted after the end of the time
compare/run.py: compare/test_compare.py::test_no_fit_begins_after_the_end
-deadline = max(budget.end + share, time.perf_counter() + LEAST_SECONDS)
+deadline = budget.end - share
# compare: a model whose training had no time is recommended
compare/findings.py: compare/test_findings.py
-if final is None or not final.message.startswith(OVER):
+if final:
# tables: the first way to read a column in the place of the best
tables/recognising.py: tables/test_formats.py compare/test_cleaning.py
-best = max(enough, key=lambda attempt: attempt.share, default=None)
+best = next(iter(enough), None)
# tables: 0,123 has thousands
tables/numbers.py: tables/test_formats.py compare/test_cleaning.py
-rf"[1-9][0-9]{{0,2}}(
+rf"[0-9]{{1,3}}(
# estimators: a refit that fails leaves a mixture of two fits
estimators/base.py: estimators/test_estimators.py
-self.__dict__ = before
+pass
# estimators: columns of targets are taken by their places
estimators/single/outputs.py: estimators/test_several_outputs.py
-return checked[:, [present.index(column) for column in names]]
+return checked
# tied: one latent function in the place of those of the kernel
models/tied.py: engine/checks/test_refusals.py
-if needed not in (None, num_latent):
+if needed not in (None, num_latent) and num_latent > 1:
# recalibration: the inverse has few digits about 0
distributions/recalibration.py: distributions/test_predictive.py
-return self.scale * np.sign(scores) * np.sqrt(self.nu * ratio)
+return self.scale * np.sign(scores) * np.round(np.sqrt(self.nu * ratio), 8)
# kernels: no second derivatives where an inducing input is a row
engine/prior/evaluate.py: models/test_derivatives.py
-{Matern32: 1, Matern52: 2}
+{}
# eager mode: a tape around the loop
engine/numerics/tapes.py: engine/numerics/test_tapes.py
-    with record.stop_recording():
-        yield
+    yield
# training: an interrupt ends a step that is half taken
training/fitting/loop.py: training/test_training.py
-with _delay_interrupts():  # the variables and the history must stay consistent
+with tf.name_scope("step"):
# training: the first of several that train at a time gives BLAS its threads back
engine/numerics/threads.py: training/test_training.py
-            if _users == 0:
-                _limits.pop()
+            if _limits:
+                _limits.pop()
# several columns: a joint model that is worse is taken
estimators/recipe/columns.py: estimators/test_columns.py
-best = max(means, key=means.__getitem__)
+best = JOINT if JOINT in means else SHARED
# copies: another thread copies at the same time
training/fitting/objectives.py: training/test_training.py
-for _ in range(100):
+for _ in range(0):
# tables: a month read as a number
tables/recognising.py: tables/test_dates.py
-period = "" if column.literal else find_period(column.counts_of_values.index)
+period = ""
# exact fits: one start only
estimators/single/exact.py: models/test_varying_noise.py::test_fine_parts_are_found
-        if ascent.objective >= fine.objective:
+        if True:
# mixtures: few rows decide the weights as many do
estimators/recipe/regression.py: estimators/test_stack.py
-max(PRIOR_WEIGHT, PRIOR_ROWS / num_rows)
+PRIOR_WEIGHT
# estimators: a kernel that all models can have selects one model
estimators/recipe/recipe.py: estimators/test_stack.py
-if settings.kernel != "auto" and not is_exact_kernel(settings.kernel):
+if settings.kernel != "auto":
# forecasts: the rows that judge are trained on
estimators/recipe/forecasts.py: estimators/test_forecasts.py
-seconds=seconds, rows=~latest)
+seconds=seconds)
# forecasts: what is saved lacks the latest rows
estimators/recipe/forecasts.py: estimators/test_forecasts.py
-judged.append(replace(trial, single=single))
+judged.append(trial)
# recalibration: few rows have any number of degrees of freedom
distributions/recalibration.py: distributions/test_predictive.py
-degrees = {min(nu or np.inf, most) for nu in _DEGREES}
+pass
# draws: of the mixture before its recalibration
estimators/recipe/mixture.py: estimators/test_stack.py
-np.moveaxis(self.predictive(rows).recalibrated(mixed), 0, -1)
+np.moveaxis(mixed, 0, -1)
# copies: each is judged by the others
estimators/single/regression.py: estimators/test_stack.py
-model.loo_moments(copies)
+model.loo_moments(None)
# several columns: known targets change nothing
estimators/recipe/mixture.py: estimators/test_columns.py
-self.places if known is None else self.known_places
+self.places
# compare: a model that a constant beats is about as good
compare/findings.py: compare/test_findings.py
-return AS_GOOD if is_small and not is_beaten else NOT_TOLD_APART
+return AS_GOOD if is_small else NOT_TOLD_APART
# score: noise alone is worse than promised
compare/service.py: compare/test_service.py
-if _difference(new, old).clear:
+if new.value != old.value:
# tables: a single 999 stands for a missing value
tables/conventions.py: compare/test_cleaning.py tables/test_encoder.py
-repeated = numbers[counts >= FEWEST]
+repeated = numbers[counts >= 1]
# forecasts: two years of months have a season of a day
compare/series.py: compare/test_forecast_reports.py
-if 2.0 * step <= CYCLES[name] and covered
+if covered
"""


class Fault(NamedTuple):
    name: str
    file: str  # below gpflow_pep/
    old: str
    new: str
    tests: list[str]  # below tests/, with :: and a name where one is enough

    @classmethod
    def read(cls, block: str) -> "Fault":
        name, place, *changes = block.strip().split("\n")
        file, tests = place.split(": ", 1)
        old, new = ("\n".join(c[1:] for c in changes if c[0] == sign) for sign in "-+")
        named = [
            each for test in tests.split() for each in SEVERAL.get(test, test).split()
        ]
        return cls(name, file, old, new, named)


FAULTS = [Fault.read(block) for block in LIST.split("\n# ")[1:]]
COPIED = (
    "gpflow_pep",
    "tests",
    "examples",
    "README.md",
    "pyproject.toml",
    "setup.cfg",
    "Makefile",
)


def check(tree: Path, faults: list[Fault]) -> bool:
    good = True
    for fault in faults:
        path = tree / "gpflow_pep" / fault.file
        count = path.read_text().count(fault.old) if path.is_file() else -1
        if count != 1:
            good = False
            what = (
                "there is no such file"
                if count < 0
                else f"the old text occurs {count} times"
            )
            print(f"EDIT ME   {fault.name}: {fault.file}: {what}")
        for test in fault.tests:
            path, _, name = (tree / "tests" / test).as_posix().partition("::")
            if not Path(path).is_file() or (
                name and f"def {name}(" not in Path(path).read_text()
            ):
                good = False
                print(f"EDIT ME   {fault.name}: there is no tests/{test}")
    return good


def try_fault(tree: Path, fault: Fault) -> str:
    path = tree / "gpflow_pep" / fault.file
    sound = path.read_text()
    path.write_text(sound.replace(fault.old, fault.new))
    try:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "not slow",
            "-x",
            "-q",
            "--tb=no",
        ]
        command += [
            "-p",
            "no:cacheprovider",
            *(f"tests/{test}" for test in fault.tests),
        ]
        environ = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        said = subprocess.run(
            command, cwd=tree, env=environ, capture_output=True, text=True
        )
    finally:
        path.write_text(sound)
    failed = [
        line
        for line in said.stdout.splitlines()
        if line.startswith(("FAILED", "ERROR"))
    ]
    if said.returncode == 1 and failed:
        return f"caught    by {failed[0].split(' ', 1)[1].split(' - ')[0]}"
    if said.returncode == 0:
        return "MISSED"
    return (
        f"BROKEN    (pytest says {said.returncode})"
        f" {said.stdout[-300:]}{said.stderr[-300:]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    faults = [
        f for f in FAULTS if any(name in f.name for name in options.names or [""])
    ]
    tree = Path(__file__).parents[2]
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
            print(
                f"{result}\n          {fault.name} ({time.time() - start:.0f} s)",
                flush=True,
            )
    print(f"{len(faults) - missed} of {len(faults)} faults caught")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
