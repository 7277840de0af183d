"""Parameters that an optimiser tries, and what a model is refused for or is not."""

from functools import partial

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers import assert_all_close, assert_close, value_and_gradients
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.models.base import TrialWarning

k = gpflow.kernels
L = gpflow.likelihoods
iv = gpflow.inducing_variables


class Brownian(k.Static):
    """No covariance where an input is negative."""

    def K(self, X, X2=None):
        return self.variance * tf.minimum(X, tf.transpose(X if X2 is None else X2))

    def K_diag(self, X):
        return self.variance * tf.reshape(X, (-1,))


RANDOM = np.random.RandomState(42)
X = RANDOM.rand(5, 1)
Y = np.sin(6.0 * X) + 1e-3 * RANDOM.randn(5, 1)
Z = X[:4].copy()
NEGATIVE = [[-1.0], [-2.0], [0.3], [0.4]]
REFUSAL = (ValueError, tf.errors.InvalidArgumentError)


def kernel():
    return Brownian() + k.Constant()


def regression(alpha=0.5):
    return pep.PEPRegression((X, Y), kernel(), Z.copy(), alpha=alpha)


def classes():
    return pep.PEP((X, (Y > 0.0) * 1.0), kernel(), L.Bernoulli(), Z.copy())


def tied():
    return pep.ARPEP(kernel(), L.Gaussian(), Z.copy(), num_data=5)


def loss_of(model):
    data = [(X, Y)] if type(model) is pep.ARPEP else []
    return lambda: model.training_loss(*data)


@pytest.mark.near_copies("regression-*", "classes-False", "tied-True")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("make", [regression, classes, tied])
def test_a_trial_without_a_factor_is_infinite_and_flat(make, compiled):
    model = make()
    loss = tf.function(loss_of(model), autograph=False) if compiled else loss_of(model)
    evaluate = partial(value_and_gradients, loss, model.trainable_variables)
    before = evaluate()[0].numpy()
    points = model.inducing_variable.Z
    points.assign(NEGATIVE)
    with pytest.warns(TrialWarning, match="cannot be factorised") as caught:
        (_, _), (value, gradient) = evaluate(), evaluate()
    assert value == np.inf and all(np.all(part == 0.0) for part in gradient)
    assert sum(w.category is TrialWarning for w in caught) == 1
    with pytest.raises(REFUSAL):
        model.predict_f(X)
    points.assign(Z)
    np.testing.assert_allclose(evaluate()[0], before, rtol=1e-6)


def test_training_must_not_begin_there():
    for wrap in (lambda loss: loss, partial(tf.function, autograph=False)):
        model = regression()
        model.inducing_variable.Z.assign(NEGATIVE)
        with pytest.raises(REFUSAL, match="cannot be factorised"):
            wrap(model.training_loss)()


@pytest.mark.near_copies("True")
@pytest.mark.parametrize("compile", [True, False])
def test_the_line_search_of_gpflow_steps_back(compile):
    model = regression(0.0)
    minimize = gpflow.optimizers.Scipy().minimize
    with pytest.warns(TrialWarning):
        end = minimize(model.training_loss, model.trainable_variables, compile=compile)
    assert end.fun < 6.7 and np.isfinite(end.x).all()  # from 6.96
    np.testing.assert_allclose(model.training_loss(), end.fun, rtol=1e-6)


@pytest.mark.slow
def test_maximise_warns_once_and_ends_well():
    model = regression()
    with pytest.warns(TrialWarning) as caught:
        record = pep.training.maximise(model, progress=False)
    assert sum(w.category is TrialWarning for w in caught) == 1
    np.testing.assert_allclose(record.objective, -model.training_loss(), rtol=1e-6)
    assert record.failures > 0 and record.objective > -6.2  # from -6.93


@pytest.mark.slow
def test_a_loss_can_be_saved(tmp_path):
    """The counter of trials goes with a SavedModel, and not with checkpoints
    of before.
    """
    model = regression()
    model.loss = tf.function(model.training_loss, autograph=False)
    value = model.loss().numpy()
    tf.saved_model.save(model, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.loss(), value)
    path = tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
    assert not any("_trials" in name for name, _ in tf.train.list_variables(path))


class Half(k.RBF):
    def K_diag(self, X):
        return 0.5 * super().K_diag(X)


class Slope(k.Linear):
    """x x', with x for its variance."""

    def K_diag(self, X):
        return tf.reduce_sum(X, axis=-1)


@pytest.mark.parametrize("kernel", [Half(), Slope(), k.RBF() + Half()])
def test_variances_that_are_no_diagonal_are_refused(kernel):
    with pytest.raises(
        ValueError, match=r"kernel: got .* with K_diag .* diagonal of K"
    ):
        pep.PEPRegression((X, Y), kernel, Z.copy())
    with pytest.raises(ValueError, match="Correct its K_diag"):
        pep.ARPEP(kernel, L.Gaussian(), Z.copy(), num_data=5)


@pytest.mark.near_copies("ARPEP")
@pytest.mark.parametrize("kind", [pep.ARPEP, pep.APEP, pep.RPAPEP])
def test_a_natural_step_that_is_too_long_is_refused_by_name(kind):
    rows = np.linspace(-3.0, 3.0, 200)[:, None]
    targets = 1.5 * np.sin(3.0 * rows) + 0.5 * np.cos(9.0 * rows)
    points = rows[::14].copy()
    model = kind(k.RBF(1.0, 0.5), L.Gaussian(0.01), points, num_data=200, alpha=0.5)
    q, loss = (model.q_mu, model.q_sqrt), lambda: model.training_loss((rows, targets))
    for gamma in (1.0, 0.1):
        step = partial(gpflow.optimizers.NaturalGradient(gamma).minimize, loss, [q])
        for run in (step, tf.function(step, autograph=False)):
            with pytest.raises(REFUSAL, match="natural_gradi"):
                run()
    np.testing.assert_array_equal(model.q_mu, 0.0)  # it stays as it was
    batches = tf.data.Dataset.from_tensors((rows, targets)).repeat()
    adam = tf_keras.optimizers.Adam(1e-3)
    before = loss().numpy()
    options = {"optimizer": adam, "natural_gradient": 0.1, "progress": False}
    pep.training.fit(model, batches, num_steps=20, **options)
    assert loss() < before


def test_patches_have_columns_of_their_own():
    rng = np.random.default_rng(0)
    images = rng.standard_normal((10, 16))
    targets = rng.standard_normal((10, 1))
    kernel = k.Convolutional(k.RBF(), [4, 4], [2, 2])
    points = rng.standard_normal((5, 4))
    data = (images, targets)
    patches = iv.InducingPatches(points)
    model = pep.PEPRegression(data, kernel, patches, alpha=0.0, noise_variance=0.1)
    other = gpflow.models.SGPR(data, kernel, patches, noise_variance=0.1)
    assert_close(model.elbo(), other.elbo(), rtol=1e-9)
    options = {"num_data": 10, "q_mu": points[:, :1]}
    tied = pep.ARPEP(kernel, L.Gaussian(), patches, alpha=0.0, **options)
    svgp = gpflow.models.SVGP(kernel, L.Gaussian(), patches, **options)
    assert_close(tied.elbo(data), svgp.elbo(data), rtol=1e-9)
    assert_all_close(tied.predict_f(images), svgp.predict_f(images), rtol=1e-9)
    assert np.all(np.isfinite(model.predict_f(images)[1]))


def test_a_frozen_model_predicts():
    frozen = gpflow.utilities.freeze(classes())
    assert_close(frozen.predict_f(X)[0], classes().predict_f(X)[0], rtol=1e-9)


def test_an_f_that_is_known_leaves_the_noise():
    """A linear kernel at x = 0, and an output that no latent function enters."""
    rows = np.linspace(-2.0, 2.0, 9)[:, None]
    targets = np.hstack([rows, -rows]) + 0.1
    weights = np.diag([1.0, 0.0])
    kernel = k.LinearCoregionalization([k.Linear(), k.Linear()], W=weights)
    noise = [0.01, 0.04]
    model = pep.PEPRegression(
        (rows, targets), kernel, rows[2:7:4].copy(), noise_variance=noise
    )
    density = model.loo_log_density_of_entries().numpy()
    np.testing.assert_allclose(
        density[:, 1], norm(scale=0.2).logpdf(targets[:, 1]), rtol=1e-9
    )
    np.testing.assert_allclose(density[4, 0], norm(scale=0.1).logpdf(0.1), rtol=1e-9)
