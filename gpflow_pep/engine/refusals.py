"""The one form of all refusals. It needs no TensorFlow, so that nothing waits for it."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any

#: Public names that are gone, and what does their work now. CHANGELOG.md prints the same table.
GONE = {
    "likelihoods.RobustGaussian": "gpflow.likelihoods.StudentT with gpflow_pep.PEP",
    "training.maximise_robust": "training.maximise of a PEP with gpflow.likelihoods.StudentT",
    "training.laplace": "second derivatives of the loss, as in tutorial 15",
    "training.HyperparameterPosterior": "second derivatives of the loss, as in tutorial 15",
    "training.ParquetRows": "a tf.data.Dataset of batches, as examples/parquet.py makes",
    "training.MixedModel": "training.Ensemble",
    "training.MixedPaths": "models[k].paths(...) of a component k that is drawn by weights",
    "training.EnsemblePaths": "models[k].paths(...) of a component k that is drawn by weights",
    "training.MixtureRecord": "training.EnsembleRecord",
    "training.mix_alphas": "training.ensemble_of_powers",
    "training.mix_models": "training.ensemble_of_models",
    "training.mix_near_rows": "training.ensemble_with_near_rows",
    "training.GivenRows": "training.NearRows",
    "training.mix_near_labels": "training.ensemble_with_near_labels",
    "training.mixture_weights": "training.ensemble_weights",
    "training.best_evaluation": "best_step of the record that training.fit returns",
    "training.starts.intrinsic_coregionalization": "training.starts.coregionalization",
    "training.hybrid_evidence": "an objective of your own, a function of the model",
    "training.starts.information_gain": "training.starts.predictive_entropy",
    "training.starts.ivm": "examples/ivm.py, or training.starts.kmeans",
    "likelihoods.UniformRobustMax": "gpflow.likelihoods.RobustMax(C, epsilon * (C - 1) / C)",
    "likelihoods.ResidualVariance": "a gpflow.functions.Function, as in docs/inducing.rst",
    "inducing_variables.NoisyInducingVariables": "an inducing variable as in docs/inducing.rst",
    "metrics.event_calibration": "metrics.calibration, of probabilities [N]",
    "metrics.wilson_interval": "scipy.stats.binomtest(...).proportion_ci(method='wilson')",
    "metrics.central_interval": "scipy.stats.norm.interval(level, mean, std)",
    "metrics.pit": "scipy.stats.norm.cdf(y, mean, std)",
    "kernels": "examples/derivative_kernel.py",
    "selection": "gpflow_pep.training.starts",
    "columns": "gpflow_pep.tables",
    "tilted": "gpflow_pep.likelihoods, or gpflow_pep.engine.factors",
    "paths": "gpflow_pep.engine.paths",
    "compare.verdicts": "gpflow_pep.compare.findings",
    "compare.summary": "gpflow_pep.compare.findings",
    "compare.workers": "joblib.parallel_config",
    "compare.screening": "rows of compare for each of --kernels and --inducing",
    "plotting.row": "matplotlib, as tutorial 16 does",
    "plotting.row_curves": "matplotlib, as tutorial 16 does",
    "plotting.residuals": "scikit-learn's PredictionErrorDisplay",
    "plotting.leave_one_out": "matplotlib on loo_log_density()",
    "plotting.site_trace": "matplotlib on last_inference.trace",
    "plotting.objective_trace": "matplotlib on -record.losses",
    "plotting.inducing_points": "matplotlib on plotting.inducing_points_of(model)",
    "plotting.relevance": "matplotlib on 1 / model.kernel.lengthscales",
    "plotting.draw_calibration": "plotting.reliability",
    "PEP.fresh_sites": "reset_sites",
    "PEP.training_gap": "loss_tolerance",
    "PEP.converged_sites": "converged_rows",
    "PEPRegression.bound_gap": "upper_bound() - elbo()",
    "PEPRegression.conditional": "bound, whose values are 'standard' and 'tight'",
    "monitor.SitesToTensorBoard": "gpflow.monitor.ScalarToTensorBoard: docs/training.rst",
    "monitor.CalibrationToTensorBoard": "gpflow.monitor.ImageToTensorBoard: docs/training.rst",
    "monitor.InducingPointsToTensorBoard": "gpflow.monitor.ImageToTensorBoard: docs/training.rst",
}
#: Arguments that are gone, by the functions that had them. CHANGELOG.md prints them too.
GONE_ARGUMENTS = {
    "predict_f(neighbours=)": "near=",
    "posterior(neighbours=)": "near=",
    "near_row_training_loss_closure(neighbours=)": "near=",
    "PEPRegressor(neighbours=)": "near_rows=",
    "PEPClassifier(neighbours=)": "near_rows=",
}


def message(name: str, got: Any, expected: str, remedy: str) -> str:
    """Describe what was got, what was expected and what to do: the one form of all refusals.

    :param name: What it is, mostly the name of an argument.
    """
    return f"{name}: got {got}, expected {expected}. {remedy}"


def refusal(name: str, got: Any, expected: str, remedy: str) -> ValueError:
    """Make the error that refuses something, for ``raise``; see :func:`message` for the arguments.

    :param name: What it is, mostly the name of an argument.
    """
    return ValueError(message(name, got, expected, remedy))


def counted(number: int, noun: str) -> str:
    """Write a number and its noun: "1 input", "2 inputs", "3 classes"."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


class Renamed:
    """An attribute of a class by the name that it had; see `GONE` for the new one."""

    text = ""

    def __set_name__(self, owner: type, name: str) -> None:
        full = f"{owner.__name__}.{name}"
        self.text = f"{full}: it is gone. Use {GONE[full]}."

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(self.text)

    def __set__(self, instance: Any, value: Any) -> None:
        raise AttributeError(self.text)


def absent(module: str, homes: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """
    Make the ``__getattr__`` of a module, whose error names what does the work of a name in `GONE`.

    :param module: ``__name__`` of the module.
    :param homes: Names that are imported when they are first used, and the module, relative to this
        one, that each is in; or that it is, where its name is the same.
    """

    def missing(name: str) -> Any:
        if homes and name in homes:
            home = import_module(homes[name], module)
            return home if homes[name].endswith(f".{name}") else getattr(home, name)
        full = f"{module}.{name}".partition(".")[2]
        remedy = f": it is gone. Use {GONE[full]}." if full in GONE else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{remedy}")

    return missing


def refuse_arguments(function: str, arguments: Iterable[str]) -> None:
    """Raise a ``TypeError`` if there are arguments; it names the new one."""
    for name in arguments:
        use = GONE_ARGUMENTS.get(f"{function}({name}=)")
        remedy = f": it is gone. Use {use}." if use else ""
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{remedy}")


def refusing(refuse: Callable[[type, dict[str, Any]], None], init: Any) -> Any:
    """Let a function of the class and named arguments see them before a constructor does, whose
    signature stays."""

    @wraps(init)
    def checked(self: Any, *arguments: Any, **options: Any) -> None:
        refuse(type(self), options)
        init(self, *arguments, **options)

    return checked
