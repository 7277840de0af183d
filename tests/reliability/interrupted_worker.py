"""Training runs that the campaign kills, interrupts or starves: started as processes."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tf_keras
from reproducible_worker import XNEW, X, Y, arpep, probit, regression

import gpflow_pep as pep

#: Printed when all is compiled and training goes on.
RUNNING = "running"
STEPS = 120


def fit(directory: str, kind: str = "ARPEP", *, pause: float = 0.0, steps: int = STEPS) -> Any:
    """Minibatch training with checkpoints: losses and predictions."""
    model = arpep() if kind == "ARPEP" else probit()
    batches: Any = pep.training.shuffled_batches((X, Y), 30, seed=3)
    if kind == "PEP":
        batches = model.minibatch_training_loss_closure(30, seed=3)

    def evaluate(model: Any) -> dict[str, float]:
        print(RUNNING, flush=True)
        time.sleep(pause)
        return {"mean": float(np.mean(model.predict_f(XNEW)[0]))}

    record = pep.training.fit(
        model,
        batches,
        num_steps=steps,
        optimizer=tf_keras.optimizers.Adam(0.02),
        evaluate=evaluate,
        evaluate_every=5,
        early_stopping=pep.training.EarlyStopping("mean", patience=STEPS),
        checkpoint_dir=directory,
        checkpoint_every=4,
        progress=False,
    )
    metrics = [evaluation.metrics["mean"] for evaluation in record.evaluations]
    return {"losses": record.losses, "metrics": metrics, "mean": model.predict_f(XNEW)[0]}


def interrupted_maximise(output: str) -> None:
    """Training on all rows, which keeps what it has when it is interrupted."""
    model = regression()
    before, seen = -float(model.training_loss()), []

    def tell(step: Any) -> None:
        if step.start == 0 and step.iteration == 1:
            print(RUNNING, flush=True)
        seen.append(step.objective)

    with contextlib.suppress(KeyboardInterrupt):
        pep.training.maximise(model, starts=10_000, tolerance=0.0, callback=tell, progress=False)
    ended = time.time()
    kept = -float(model.training_loss())
    np.savez(output, before=before, best=max(seen), kept=kept, ended=ended)


def interrupted_fit(output: str) -> None:
    """Minibatch training that is interrupted: the steps that the checkpoint has."""
    directory = Path(output).with_suffix("")
    with contextlib.suppress(KeyboardInterrupt):
        fit(str(directory), pause=0.02, steps=100_000)
    np.savez(output, ended=time.time())


def main(kind: str, argument: str, output: str = "") -> None:
    # Where the campaign runs in the background of a shell, processes begin by ignoring interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if kind == "maximise":
        interrupted_maximise(argument)
    elif kind == "fit":
        interrupted_fit(argument)
    else:
        np.savez(output, **fit(argument, kind, pause=0.01))


if __name__ == "__main__":
    main(*sys.argv[1:])
