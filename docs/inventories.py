"""
Where the documentation of other packages has the names that these pages link to.

Sphinx would download an inventory of each, and a build without a network would fail. A
short inventory is written instead, of the names that are used here.
"""

import zlib
from pathlib import Path

#: Of each package: where its pages are, the page of a name, and the names by kind.
_PACKAGES = {
    "gpflow": (
        "https://gpflow.github.io/GPflow/develop",
        "api/{module}/index.html#{name}",
        {
            "class": [
                "gpflow.Parameter",
                "gpflow.inducing_variables.InducingPoints",
                "gpflow.inducing_variables.InducingVariables",
                "gpflow.kernels.Kernel",
                "gpflow.kernels.SquaredExponential",
                "gpflow.likelihoods.Bernoulli",
                "gpflow.likelihoods.Gaussian",
                "gpflow.likelihoods.HeteroskedasticTFPConditional",
                "gpflow.likelihoods.Likelihood",
                "gpflow.likelihoods.MultiClass",
                "gpflow.likelihoods.Poisson",
                "gpflow.likelihoods.RobustMax",
                "gpflow.likelihoods.ScalarLikelihood",
                "gpflow.likelihoods.Softmax",
                "gpflow.likelihoods.StudentT",
                "gpflow.models.GPModel",
                "gpflow.models.GPR",
                "gpflow.models.GPRFITC",
                "gpflow.models.SGPR",
                "gpflow.models.SVGP",
                "gpflow.models.VGP",
                "gpflow.optimizers.NaturalGradient",
                "gpflow.optimizers.Scipy",
                "gpflow.posteriors.AbstractPosterior",
            ],
            "method": [
                "gpflow.Parameter.assign",
                "gpflow.models.GPModel.predict_f",
                "gpflow.models.SGPR.posterior",
                "gpflow.models.SGPR.upper_bound",
                "gpflow.models.SVGP.posterior",
                "gpflow.optimizers.Scipy.minimize",
                "gpflow.posteriors.AbstractPosterior.update_cache",
            ],
        },
    ),
    "numpy": (
        "https://numpy.org/doc/stable",
        "reference/generated/{name}.html",
        {"class": ["numpy.ndarray"], "function": ["numpy.savez"]},
    ),
    "sklearn": (
        "https://scikit-learn.org/stable",
        "modules/generated/{name}.html",
        {
            "class": [
                "sklearn.base.BaseEstimator",
                "sklearn.compose.ColumnTransformer",
                "sklearn.gaussian_process.GaussianProcessClassifier",
                "sklearn.gaussian_process.GaussianProcessRegressor",
                "sklearn.model_selection.GridSearchCV",
                "sklearn.pipeline.Pipeline",
                "sklearn.preprocessing.StandardScaler",
            ],
        },
    ),
    "tensorflow": (
        "https://www.tensorflow.org/api_docs/python",
        "{path}",
        {
            "class": [
                "tf.Module",
                "tf.Tensor",
                "tf.Variable",
                "tf.data.Dataset",
                "tf.distribute.MultiWorkerMirroredStrategy",
                "tf.train.Checkpoint",
            ],
            "function": ["tf.function", "tf.saved_model.load", "tf.saved_model.save"],
        },
    ),
}


def mapping(directory: Path) -> dict[str, tuple[str, str]]:
    """
    Write the inventories, and say where they are.

    :param directory: Where to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    found = {}
    for package, (address, page, names) in _PACKAGES.items():
        file = directory / f"{package}.inv"
        file.write_bytes(_inventory(package, page, names))
        found[package] = (address, str(file))
    return found


def _inventory(package: str, page: str, names: dict[str, list[str]]) -> bytes:
    """Make an inventory in Sphinx's format: a header, and compressed lines."""
    header = [
        "# Sphinx inventory version 2",
        f"# Project: {package}",
        "# Version: ",
        "# The remainder of this file is compressed using zlib.",
    ]
    lines = []
    for kind, listed in names.items():
        for name in listed:
            parts = name.split(".")[: -2 if kind == "method" else -1]
            place = page.format(
                name=name, module="/".join(parts), path=name.replace(".", "/")
            )
            lines.append(f"{name} py:{kind} 1 {place} -")
    body = "\n".join([*lines, ""]).encode()
    return ("\n".join([*header, ""])).encode() + zlib.compress(body)
