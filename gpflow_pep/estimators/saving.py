"""Fitted estimators on disk and back: JSON and NumPy arrays, no pickle."""

import platform
from os import PathLike
from typing import Any

import gpflow
import numpy as np
import sklearn
import tensorflow as tf
from gpflow.mean_functions import Zero
from gpflow.models import GPModel
from gpflow.posteriors import BasePosterior
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..columns import Format, TableEncoder
from ..columns.encoder import Encoding
from ..models import ARPEP, PEP, PEPClassification, PEPRegression
from ..sites.posterior import Sites
from .base import PEPEstimator
from .classifier import PEPClassifier
from .describing import Describer, Rebuilder, check_same
from .files import REMEDY, read_files, through_json, write_files
from .regressor import PEPRegressor

ESTIMATORS = {kind.__name__: kind for kind in (PEPRegressor, PEPClassifier)}
MODELS: dict[str, Any] = {
    kind.__name__: kind for kind in (PEPRegression, PEP, PEPClassification, ARPEP)
}
#: Of a model, what its constructor takes besides data, kernel, likelihood, points and alpha.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "PEPRegression": ("conditional", "neighbours", "chunk_size"),
    "PEP": ("conditional", "chunk_size", "num_latent_gps", "fresh_sites"),
    "PEPClassification": ("conditional", "chunk_size", "num_latent_gps", "fresh_sites"),
    "ARPEP": ("conditional", "num_data", "num_latent_gps", "whiten"),
}
_SETTINGS = ("max_sweeps", "tolerance")
_FITTED = ("n_iter_", "n_features_in_", "feature_names_in_", "classes_", "alpha_")
_SCALER = ("mean_", "var_", "scale_", "n_samples_seen_", "n_features_in_")


def save_estimator(folder: str | PathLike[str], estimator: Any) -> None:
    """
    Save a fitted estimator, or a pipeline of a :class:`~gpflow_pep.columns.TableEncoder` and one.

    Written are ``model.json``, which people can read, and ``arrays.npz``: parameters, training
    data, sites, units, names of columns and classes, and the versions that wrote them. Kernel,
    likelihood and inducing variables are any of GPflow's and of this package. The folder appears
    when all is written; until then an earlier one stays as it is.

    :param folder: One that does not exist, is empty, or was written by an earlier call, which is
        replaced.
    :param estimator: The estimator.
    :raises ValueError: If it is another, has parts of the user's own, or would not come back as it
        is; or if the folder has other files.
    """
    describe = Describer()
    content = {"estimator": _describe(estimator, describe), "gpflow_config": _config()}
    rebuilt = _rebuild(through_json(content)["estimator"], Rebuilder(describe.arrays))
    _check_comes_back(rebuilt, estimator)
    write_files(folder, content, describe.arrays, _versions())


def load_estimator(folder: str | PathLike[str]) -> Any:
    """
    Load what :func:`save_estimator` wrote::

        model = load_estimator("pep_results/model")
        mean, std = model.predict(table, return_std=True)

    Nothing in the files is run: of the classes that they name only estimators, models, and those
    of GPflow and this package are made. Predictions are those of the estimator that was saved.

    :param folder: The folder that was written.
    :raises ValueError: If a file is missing, damaged or changed, or of another format; if
        ``gpflow.config`` has another float or jitter than when it was saved.
    """
    content, arrays = read_files(folder)
    _check_config(content.get("gpflow_config"))
    try:
        return _rebuild(content["estimator"], Rebuilder(arrays))
    # Whatever is wrong with files from elsewhere, it is they that are wrong.
    except Exception as error:
        raise ValueError(
            f"the files in {folder} do not describe an estimator ({type(error).__name__}:"
            f" {error}), expected those that save_estimator writes. {REMEDY}"
        ) from error


def _describe(estimator: Any, describe: Describer) -> dict[str, Any]:
    if type(estimator) is Pipeline:
        steps = [[name, _describe(step, describe)] for name, step in estimator.steps]
        return {"class": "Pipeline", "steps": steps}
    if type(estimator) is TableEncoder:
        check_is_fitted(estimator)
        columns = [
            [name, form._asdict(), estimator.encodings_[name]._asdict()]
            for name, form in estimator.formats.items()
        ]
        limits = {name: getattr(estimator, name) for name in ("max_categories", "min_count")}
        return {"class": "TableEncoder", "columns": columns, **limits}
    if type(estimator) not in ESTIMATORS.values():
        raise ValueError(
            f"estimator: got a {type(estimator).__name__}, expected a PEPRegressor or"
            " PEPClassifier, or a Pipeline of a TableEncoder and one of them: others are not known"
            " here. Save what it is made of, or pickle it."
        )
    check_is_fitted(estimator)
    name = type(estimator).__name__
    if estimator._posterior is None:
        estimator._posterior = estimator.model_.posterior()
    described = {
        "class": name,
        "parameters": {
            key: describe(value, f"{name}.{key}")
            for key, value in estimator.get_params(deep=False).items()
        },
        "fitted": {
            key: describe(getattr(estimator, key), f"{name}.{key}")
            for key in _FITTED
            if hasattr(estimator, key)
        },
        "inputs": _describe_scaler(estimator._scaler, describe),
        "model": _describe_model(estimator.model_, describe),
    }
    if estimator.alpha_scores_ is not None:
        described["alpha_scores"] = list(map(list, estimator.alpha_scores_.items()))
    if isinstance(estimator.model_, PEP):
        # Each look at the sites moves them a little, by less than their tolerance.
        cache = [describe(part, "posterior") for part in estimator._posterior.cache]
        described["posterior"] = cache
    if isinstance(estimator, PEPRegressor):
        described["target"] = _describe_scaler(estimator._target, describe)
    return described


def _describe_scaler(scaler: StandardScaler, describe: Describer) -> dict[str, Any]:
    given = {name: getattr(scaler, name) for name in ("with_mean", "with_std")}
    learnt = {name: describe(getattr(scaler, name), f"scaler.{name}") for name in _SCALER}
    return {**given, **learnt}


def _describe_model(model: GPModel, describe: Describer) -> dict[str, Any]:
    name = type(model).__name__
    if type(model) is not MODELS.get(name):
        raise _lost("model_", f"a {name}", f"one of {', '.join(MODELS)}")
    if type(model.mean_function) is not Zero:
        raise _lost("model_.mean_function", f"a {type(model.mean_function).__name__}", "a Zero")
    if getattr(model, "has_blocks", False):
        raise _lost("model_", "blocks of rows", "none")
    if getattr(model, "memory", None) is not None:
        raise _lost("model_.memory", "a memory", "none")
    parts = ("kernel", "likelihood", "inducing_variable")
    described: dict[str, Any] = {
        "class": name,
        "alpha": describe(model.alpha.numpy(), "alpha"),
        **{part: describe(getattr(model, part), part) for part in parts},
        "options": {o: describe(getattr(model, o), o) for o in _OPTIONS[name]},
    }
    variables = {}
    if isinstance(model, ARPEP):
        described["q"] = {part: describe(getattr(model, part), part) for part in ("q_mu", "q_sqrt")}
        return described
    described["data"] = [describe(tf.convert_to_tensor(part), "data") for part in model.data]
    if isinstance(model, PEP):
        described["settings"] = {name: describe(getattr(model, name), name) for name in _SETTINGS}
        variables = {"nu": model.sites.nu, "tau": model.sites.tau}
        variables["training_gap"] = model.training_gap
    elif model.neighbour_plan is not None:
        # Not to be found anew: they are those of earlier hyperparameters.
        plan = model.neighbour_plan
        variables = {"rows": plan.rows, "neighbours": plan.neighbours}
    described["variables"] = {name: describe(v.numpy(), name) for name, v in variables.items()}
    return described


def _lost(what: str, got: str, expected: str) -> ValueError:
    return ValueError(
        f"{what}: got {got}, expected {expected}, as the estimators train them. Keep other models"
        " with tf.train.Checkpoint."
    )


def _rebuild(described: dict[str, Any], rebuild: Rebuilder) -> Any:
    kind = described["class"]
    if kind == "Pipeline":
        return Pipeline([(str(name), _rebuild(step, rebuild)) for name, step in described["steps"]])
    if kind == "TableEncoder":
        return _rebuild_encoder(described)
    if kind not in ESTIMATORS:
        raise ValueError(f"{kind} is no estimator that is known")
    parameters = {name: rebuild(value) for name, value in described["parameters"].items()}
    estimator = ESTIMATORS[kind](**parameters)
    for name in _FITTED:
        if name in described["fitted"]:
            setattr(estimator, name, rebuild(described["fitted"][name]))
    scores = described.get("alpha_scores")
    estimator.alpha_scores_ = None if scores is None else dict(scores)
    estimator._scaler = _rebuild_scaler(described["inputs"], rebuild)
    if isinstance(estimator, PEPRegressor):
        estimator._target = _rebuild_scaler(described["target"], rebuild)
    model = _rebuild_model(described["model"], rebuild)
    estimator.model_, estimator._posterior = model, None
    estimator.kernel_, estimator.likelihood_ = model.kernel, model.likelihood
    estimator.inducing_variable_ = model.inducing_variable
    if isinstance(model, PEP):
        cache = tuple(tf.constant(rebuild(part)) for part in described["posterior"])
        estimator._posterior = _posterior_with(model, cache)
    return estimator


def _posterior_with(model: PEP, cache: tuple[tf.Tensor, ...]) -> BasePosterior:
    """Make the posterior that predicts from this cache, and leave the sites as they are."""
    sites = model.read_sites()
    posterior = model.posterior()
    model.write_sites(sites)
    own = posterior.cache or ()
    found, expected = ([(part.dtype, part.shape) for part in parts] for parts in (cache, own))
    if found != expected:
        raise ValueError(f"the posterior has arrays of {found}, expected {expected}")
    posterior.cache = cache
    return posterior


def _rebuild_encoder(described: dict[str, Any]) -> TableEncoder:
    formats, encodings = {}, {}
    for name, form, encoding in described["columns"]:
        formats[str(name)] = Format(**{**form, "missing": tuple(form["missing"])})
        lists = {key: tuple(encoding[key]) for key in ("cycles", "categories")}
        encodings[str(name)] = Encoding(**{**encoding, **lists})
    limits = {name: described[name] for name in ("max_categories", "min_count")}
    return TableEncoder(formats, **limits).restore(encodings)


def _rebuild_scaler(described: dict[str, Any], rebuild: Rebuilder) -> StandardScaler:
    given = {name: described[name] for name in ("with_mean", "with_std")}
    scaler = StandardScaler(**given)
    for name in _SCALER:
        setattr(scaler, name, rebuild(described[name]))
    return scaler


def _rebuild_model(described: dict[str, Any], rebuild: Rebuilder) -> GPModel:
    name = described["class"]
    parts = ("kernel", "likelihood", "inducing_variable")
    kernel, likelihood, points = (rebuild(described[part]) for part in parts)
    options = {option: rebuild(described["options"][option]) for option in _OPTIONS[name]}
    options["alpha"] = rebuild(described["alpha"])
    if name == "ARPEP":
        model = ARPEP(kernel, likelihood, points, **options)
        model.q_mu, model.q_sqrt = (rebuild(described["q"][part]) for part in ("q_mu", "q_sqrt"))
        return model
    data = tuple(map(rebuild, described["data"]))
    variables = {key: rebuild(value) for key, value in described["variables"].items()}
    if name == "PEPRegression":
        model = PEPRegression(data, kernel, points, likelihood=likelihood, **options)
        if model.neighbour_plan is not None:
            for variable in ("rows", "neighbours"):
                getattr(model.neighbour_plan, variable).assign(variables[variable])
        return model
    model = MODELS[name](data, kernel, likelihood, points, **options)
    for setting in _SETTINGS:
        setattr(model, setting, rebuild(described["settings"][setting]))
    model.training_gap.assign(variables["training_gap"])
    model.write_sites(Sites(*(tf.constant(variables[part]) for part in ("nu", "tau"))))
    return model


def _check_comes_back(rebuilt: Any, estimator: Any) -> None:
    """Compare the estimator with the one that would be loaded."""
    if isinstance(estimator, Pipeline):
        for (_, new), (_, old) in zip(rebuilt.steps, estimator.steps, strict=True):
            _check_comes_back(new, old)
    elif isinstance(estimator, PEPEstimator):
        for part in ("kernel", "likelihood", "inducing_variable"):
            new, old = (getattr(one.model_, part) for one in (rebuilt, estimator))
            check_same(new, old, part)
        new, old = (one.get_params(deep=False) for one in (rebuilt, estimator))
        for name in old:
            check_same(new[name], old[name], name)


def _config() -> dict[str, Any]:
    return {
        "float": np.dtype(gpflow.default_float()).name,
        "jitter": float(gpflow.default_jitter()),
    }


def _check_config(saved: Any) -> None:
    if saved != _config():
        raise ValueError(
            f"gpflow.config has {_config()}, expected {saved}, as when the estimator was saved: set"
            " it with gpflow.config.set_default_float and gpflow.config.set_default_jitter."
        )


def _versions() -> dict[str, str]:
    libraries = (gpflow, tf, np, sklearn)
    return {
        "python": platform.python_version(),
        "gpflow_pep": __version__,
        **{library.__name__: library.__version__ for library in libraries},
    }
