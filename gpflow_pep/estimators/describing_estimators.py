"""Estimators as JSON and arrays, and back."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from ..distributions import Recalibration, Units, YeoJohnson
from ..engine.refusals import refusal
from ..engine.refusals.arrays import AnyNDArray
from ..scoring.stored import Described
from .base import PEPEstimator
from .classifier import PEPClassifier
from .recipe.mixture import ColumnMixture, Mixture
from .regressor import PEPRegressor
from .rows_held import RowsHeld
from .single.model import SingleModel
from .single.settings import ModelSettings
from .single.when_used import (
    context_rows,
    describing,
    ensemble,
    gpflow,
    models,
    posteriors,
    prior,
    tf,
)

ESTIMATORS = {kind.__name__: kind for kind in (PEPRegressor, PEPClassifier)}
_PARTS = ("kernel", "likelihood", "inducing_variable")
_OF_POINTS = ("chunk_size", "num_latent_gps", "reset_sites")
#: The models that estimators train, and the arguments of each other than data, parts
#: and alpha.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "PEPRegression": ("chunk_size",),
    "PEP": _OF_POINTS,
    "PEPClassification": _OF_POINTS,
    "ARPEP": ("num_data", "num_latent_gps", "whiten"),
}
_SETTINGS = ("max_sweeps", "tolerance")
_FITTED = (
    "n_features_in_",
    "feature_names_in_",
    "classes_",
    "n_outputs_",
    "target_names_",
)
_SCALER = (
    "with_mean",
    "with_std",
    "mean_",
    "var_",
    "scale_",
    "n_samples_seen_",
    "n_features_in_",
)
#: The names of what describes how components, of a mixture or of columns, are mixed.
_MIXTURE = "lines", "weights", "mean_weights", "recalibration"
_COLUMNS = "lines", "places", "known_places"


def describe_estimator(
    estimator: PEPEstimator, describe: describing.Describer
) -> dict[str, Described]:
    """Describe an estimator, fitted or not; refuse parts that loading could not
    restore.
    """
    name = type(estimator).__name__
    if type(estimator) is not ESTIMATORS.get(name):
        raise refusal(
            "estimator",
            f"a {name}",
            "a PEPRegressor or PEPClassifier, because classes that are derived from"
            " these cannot be loaded",
            "Save the estimator that it contains, or use pickle.",
        )
    parameters = estimator.get_params(deep=False).items()
    described: dict[str, Described] = {
        "class": name,
        "parameters": {
            key: describe(value, f"{name}.{key}") for key, value in parameters
        },
    }
    if not hasattr(estimator, "mixture_"):
        return described
    fitted = [key for key in _FITTED if key in vars(estimator)]
    described["fitted"] = {
        key: describe(getattr(estimator, key), key) for key in fitted
    }
    described["training_rows"] = estimator.rows_held_.in_model()
    described["rows_held"] = describe(estimator.rows_held_, "rows_held_")
    described["mixture"] = _describe_mixture(estimator.mixture_, describe)
    return described


def construct_estimator(
    described: dict[str, Described], load: describing.Loader
) -> PEPEstimator:
    """Construct the estimator that was described. If the description was changed, the
    error can have any type.
    """
    if described["class"] not in ESTIMATORS:
        raise ValueError(f"{described['class']} is not a known estimator")
    parameters = {name: load(value) for name, value in described["parameters"].items()}
    estimator = ESTIMATORS[described["class"]](**parameters)
    if "fitted" not in described:
        return estimator
    for name in _FITTED:
        if name in described["fitted"]:
            setattr(estimator, name, load(described["fitted"][name]))
    estimator.rows_held_ = RowsHeld(**load(described["rows_held"]))
    mixture = _construct_mixture(estimator.single_model, described["mixture"], load)
    estimator.mixture_ = mixture
    return estimator


def _describe_mixture(
    mixture: Mixture | ColumnMixture, describe: describing.Describer
) -> dict[str, Described]:
    """Describe single models and how they are mixed, or mixtures and their columns."""
    if isinstance(mixture, ColumnMixture):
        described = {name: describe(getattr(mixture, name), name) for name in _COLUMNS}
        described["columns"] = [
            _describe_mixture(part, describe) for part in mixture.components
        ]
        return described
    described = {"mixed": describe_mixing(mixture, describe)}
    described["settings"] = _describe_settings(mixture.settings, describe)
    described["components"] = [
        _describe_single(single, describe) for single in mixture.components
    ]
    return described


def _construct_mixture(
    kind: type[SingleModel],
    described: dict[str, Described],
    load: describing.Loader,
) -> Any:
    if "columns" in described:
        mixtures = [
            _construct_mixture(kind, item, load) for item in described["columns"]
        ]
        values = {name: load(described[name]) for name in _COLUMNS}
        return ColumnMixture(tuple(mixtures), **values)
    mixed = load(described["mixed"])
    if mixed["recalibration"] is not None:
        mixed["recalibration"] = Recalibration(**mixed["recalibration"])
    settings = _construct_settings(described["settings"], load)
    singles = [_construct_single(kind, item, load) for item in described["components"]]
    return Mixture(tuple(singles), settings, **mixed)


def describe_mixing(
    mixture: Mixture, describe: describing.Describer
) -> dict[str, Described]:
    """Describe how the components of a mixture are mixed."""
    return {name: describe(getattr(mixture, name), name) for name in _MIXTURE}


def _describe_settings(
    settings: ModelSettings, describe: describing.Describer
) -> dict[str, Described]:
    values = vars(settings).items()
    return {name: describe(value, f"settings.{name}") for name, value in values}


def _construct_settings(
    described: dict[str, Described], load: describing.Loader
) -> ModelSettings:
    return ModelSettings(**{name: load(value) for name, value in described.items()})


def _describe_single(
    single: SingleModel, describe: describing.Describer
) -> dict[str, Described]:
    _ = single.posterior  # computed first, because this can move sites a little
    described: dict[str, Described] = {
        "settings": _describe_settings(single.settings, describe),
        "num_iterations": describe(single.num_iterations, "num_iterations"),
        "inputs": describe_scaler(single.scaler, describe),
        "target": describe(single.units, "target"),
    }
    if isinstance(single.model, ensemble.Ensemble):
        described["ensemble"] = _describe_ensemble(single.model, describe)
    else:
        described["model"] = _describe_model(single.model, describe)
    if single.alpha_scores is not None:
        described["alpha_scores"] = list(map(list, single.alpha_scores.items()))
    return described


def _construct_single(
    kind: type[SingleModel],
    described: dict[str, Described],
    load: describing.Loader,
) -> SingleModel:
    single = kind(_construct_settings(described["settings"], load))
    single.num_iterations = load(described["num_iterations"])
    single.scaler = _construct_scaler(described["inputs"], load)
    if described["target"] is not None:
        single.units = Units(**load(described["target"]))
        single.num_outputs = int(np.size(single.units.scale))
    if "alpha_scores" in described:
        single.alpha_scores = dict(described["alpha_scores"])
    if "ensemble" in described:
        single.set_model(_construct_ensemble(described["ensemble"], load))
    else:
        single.set_model(_construct_model(described["model"], load))
    return single


def _construct_ensemble(
    described: dict[str, Described], load: describing.Loader
) -> ensemble.Ensemble:
    models = [_construct_model(component, load) for component in described["models"]]
    near = [values and context_rows.NearRows(*values) for values in described["near"]]
    members = [models[place] for place in described["components"]]
    return ensemble.Ensemble(members, load(described["weights"]), near=near)


def _describe_ensemble(
    mixed: ensemble.Ensemble, describe: describing.Describer
) -> dict[str, Described]:
    """Describe an ensemble. A model that is used with and without near rows is written
    once.
    """
    models = list({id(model): model for model in mixed.models}.values())
    places = {id(model): place for place, model in enumerate(models)}
    return {
        "models": [_describe_model(model, describe) for model in models],
        "weights": describe(mixed.weights.numpy(), "weights"),
        "components": [places[id(model)] for model in mixed.models],
        "near": [near and list(near) for near in mixed.near],
    }


def check_estimator_same(loaded: PEPEstimator, original: PEPEstimator) -> None:
    """Refuse to save an estimator that loading would change."""
    if hasattr(original, "mixture_"):
        singles = loaded.mixture_.singles(), original.mixture_.singles()
        for pair in zip(*singles, strict=True):
            _check_single_same(*pair)
    parameters = loaded.get_params(deep=False)
    for name, value in original.get_params(deep=False).items():
        describing.check_same(parameters[name], value, name)


def _check_single_same(loaded: SingleModel, original: SingleModel) -> None:
    models = (
        ensemble.components(loaded.model)[0],
        ensemble.components(original.model)[0],
    )
    for new, old in zip(*models, strict=True):
        for part in _PARTS:
            describing.check_same(getattr(new, part), getattr(old, part), part)


def describe_scaler(scaler: Any, describe: describing.Describer) -> Described:
    """Describe the scaler of inputs to a model's units."""
    if isinstance(scaler, YeoJohnson):
        return describe(scaler, "scaler")
    return {name: describe(getattr(scaler, name), f"scaler.{name}") for name in _SCALER}


def _construct_scaler(described: dict[str, Described], load: describing.Loader) -> Any:
    if "powers" in described:
        return YeoJohnson(**load(described))
    scaler = StandardScaler()
    for name in _SCALER:
        setattr(scaler, name, load(described[name]))
    return scaler


def _describe_model(
    model: gpflow.models.GPModel, describe: describing.Describer
) -> dict[str, Described]:
    kind = type(model)
    mean = type(model.mean_function)
    name = kind.__name__
    is_ours = name in _OPTIONS and kind is getattr(models, name)
    for other, label, got, expected in (
        (not is_ours, "", f"a {name}", f"one of {', '.join(_OPTIONS)}"),
        (
            mean is not gpflow.functions.Zero,
            ".mean_function",
            f"a {mean.__name__}",
            "a Zero",
        ),
        (getattr(model, "has_blocks", False), "", "blocks of rows", "none"),
        (getattr(model, "memory", None) is not None, ".memory", "a memory", "none"),
    ):
        if other:
            expected = f"{expected}, which are the models that the estimators train"
            remedy = "Keep other models with tf.train.Checkpoint."
            raise refusal(f"model_{label}", got, expected, remedy)
    described: dict[str, Described] = {
        "class": name,
        "alpha": describe(model.alpha.numpy(), "alpha"),
        **{part: describe(getattr(model, part), part) for part in _PARTS},
        "options": {o: describe(getattr(model, o), o) for o in _OPTIONS[name]},
    }
    if prior.is_mixed(model.kernel):  # it determines the number of latent functions
        described["options"] |= dict.fromkeys(
            {"num_latent_gps"} & set(described["options"])
        )
    if isinstance(model, models.ARPEP):
        described["q"] = {
            part: describe(getattr(model, part), part) for part in ("q_mu", "q_sqrt")
        }
        return described
    X, Y = map(np.asarray, model.data)
    described["data"] = [describe(X, "data"), _describe_targets(Y, describe)]
    if isinstance(model, models.PEP):
        described["settings"] = {
            name: describe(getattr(model, name), name) for name in _SETTINGS
        }
    variables = {
        name: attrgetter(path)(model) for name, path in _variables_of(model).items()
    }
    described["variables"] = {
        name: describe(v.numpy(), name) for name, v in variables.items()
    }
    return described


def _construct_model(
    described: dict[str, Described], load: describing.Loader
) -> gpflow.models.GPModel:
    name = described["class"]
    arguments = {part: load(described[part]) for part in (*_PARTS, "alpha")}
    arguments |= {key: load(described["options"][key]) for key in _OPTIONS[name]}
    if name == "ARPEP":
        model = models.ARPEP(**arguments)
        model.q_mu, model.q_sqrt = (
            load(described["q"][part]) for part in ("q_mu", "q_sqrt")
        )
        return model
    X, Y = described["data"]
    model = getattr(models, name)((load(X), _construct_targets(Y, load)), **arguments)
    variables = {key: load(described["variables"][key]) for key in _variables_of(model)}
    if isinstance(model, models.PEP):
        for setting in _SETTINGS:
            setattr(model, setting, load(described["settings"][setting]))
        model.write_sites(
            posteriors.Sites(
                *(tf.constant(variables.pop(part)) for part in ("nu", "tau"))
            )
        )
    for key, value in variables.items():
        attrgetter(_variables_of(model)[key])(model).assign(value)
    return model


def _describe_targets(Y: AnyNDArray, describe: describing.Describer) -> Described:
    """Describe targets; missing targets are replaced by a number."""
    there = ~np.isnan(Y)
    if there.all():
        return describe(Y, "data")
    return {
        "targets": describe(np.where(there, Y, 0.0), "data"),
        "observed": describe(there, ""),
    }


def _construct_targets(described: Described, load: describing.Loader) -> AnyNDArray:
    if "targets" not in described:  # all targets were observed
        return load(described)
    return np.where(load(described["observed"]), load(described["targets"]), np.nan)


def _variables_of(model: gpflow.models.GPModel) -> dict[str, str]:
    """Find the variables that are not parameters: a dictionary from the name in the
    files to the path of the variable.
    """
    if isinstance(model, models.PEP):
        return {
            "nu": "sites.nu",
            "tau": "sites.tau",
            "loss_tolerance": "loss_tolerance",
        }
    return {}
