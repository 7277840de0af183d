"""Print whether PEP's defaults bring L-BFGS to the optimum that accurate evaluations bring it to.

    python examples/benchmarks/optimum.py --data DIRECTORY               # minutes
    python examples/benchmarks/optimum.py --data DIRECTORY pima wine

By default the sites of the training loss are as close to their fixed point as optimisers can see;
beside it they are with ``tolerance=1e-9``. From the same start, L-BFGS takes as many steps with
each as it wants, up to a limit. ``log Z`` is then computed with all digits, ``above`` is how much
more it is than with ``tolerance=1e-9``, and ``further`` what as many steps from there, with that
tolerance, gain: where that is nothing, it is an optimum. ``sweeps`` are all those over the rows on
the way. Likelihoods, kernels and inducing inputs are those of ``evaluations.py``, with kernel and
inducing inputs that classes share.
"""

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The threads of SciPy's linear algebra wait for more by keeping the cores from TensorFlow.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gpflow
import numpy as np
import tensorflow as tf
from classification import read
from evaluations import BINARY, problems
from multiclass import parts, split

from gpflow_pep.models import PEP

DATA_SETS = (*BINARY, "wine", "vowel", "vehicle", "glass")
ACCURATE = 1e-9


class Run(NamedTuple):
    """What came of some steps of L-BFGS."""

    evaluations: int
    sweeps: int
    log_z: float


def problem(directory: Path, name: str) -> tuple[Any, ...]:
    """Data, kernel, likelihood and inducing inputs."""
    if name in BINARY:
        return problems(directory, name)[""]
    if name == "glass":
        own = split(*read(directory, name), 0.9, 0)
        return (own.X, own.Y, *parts(own, shared=True))
    return problems(directory, name)["shared"]


def train(model: PEP, steps: int) -> Run:
    """L-BFGS until it stops, or for so many steps."""
    optimizer = gpflow.optimizers.Scipy()
    evaluate = optimizer.eval_func(model.training_loss, model.trainable_variables, tf_fun_args={})
    sweeps: list[int] = []

    def recorded(x: np.ndarray) -> Any:
        result = evaluate(x)
        sweeps.append(model.last_inference.num_sweeps)
        return result

    optimizer.eval_func = lambda *args, **kwargs: recorded  # type: ignore[method-assign]
    options = {"maxiter": steps, "maxcor": 50}
    optimizer.minimize(model.training_loss, model.trainable_variables, options=options)
    return Run(len(sweeps), sum(sweeps), float(model.pep_log_marginal_likelihood()))


def table(directory: Path, name: str, alpha: float, steps: int) -> None:
    """The lines of one data set."""
    X, Y, *own = problem(directory, name)
    data = tf.constant(X), tf.constant(Y)
    accurate = np.nan
    for label, tolerance in ((f"{ACCURATE:g}", ACCURATE), ("default", None)):
        model = PEP(data, *gpflow.utilities.deepcopy(own), alpha=alpha, tolerance=tolerance)
        run = train(model, steps)
        again = PEP(data, *gpflow.utilities.deepcopy(own), alpha=alpha, tolerance=ACCURATE)
        gpflow.utilities.multiple_assign(again, gpflow.utilities.parameter_dict(model))
        further = train(again, steps).log_z - run.log_z
        accurate = run.log_z if tolerance else accurate
        print(
            f"{name:12}{label:>9}{run.evaluations:8d}{run.sweeps:9d}{run.log_z:14.4f}"
            f"{run.log_z - accurate:10.4f}{further:10.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=DATA_SETS, help="data sets (default: all)")
    parser.add_argument("--data", type=Path, default=os.environ.get("GPFLOW_PEP_DATA", "."))
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=500, help="the most of L-BFGS")
    options = parser.parse_args()
    print(f"alpha = {options.alpha:g}, at most {options.steps} steps")
    heads = {"tolerance": 21, "evals": 8, "sweeps": 9, "log Z": 14, "above": 10, "further": 10}
    print("".join(f"{head:>{width}}" for head, width in heads.items()), flush=True)
    for name in options.names:
        table(Path(options.data), name, options.alpha, options.steps)


if __name__ == "__main__":
    main()
