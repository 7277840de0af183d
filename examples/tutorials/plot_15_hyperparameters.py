"""
Hyperparameters that few rows leave open
========================================

Training takes one value for each lengthscale, variance and noise. Where there are few
rows, other values explain them nearly as well, and predictions that follow one value
are too sure of themselves. This tutorial draws the hyperparameters from their
posterior, by GPflow's ``SamplingHelper`` and Hamiltonian Monte Carlo, and mixes the
models of the draws. Then it does the same in a moment by Laplace's approximation, a
Gaussian around the mode of that posterior.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_pep as pep

rng = np.random.default_rng(3)
X = rng.uniform(0.0, 5.0, (25, 1))
Y = np.sin(2.0 * X) + 0.4 * rng.standard_normal(X.shape)
X_test = rng.uniform(0.0, 5.0, (2000, 1))
Y_test = np.sin(2.0 * X_test) + 0.4 * rng.standard_normal(X_test.shape)

# %%
# One value
# ---------
#
# The model is trained as usual.

model = pep.models.PEPRegression(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    pep.training.starts.kmeans(X, 10, seed=0),
    alpha=0.5,
)
pep.training.maximise(model, progress=False)


def describe(
    name: str, predictor: "gpflow.models.GPModel | pep.training.Ensemble"
) -> None:
    density = np.mean(predictor.predict_log_density((X_test, Y_test)))
    print(f"{name}: mean log density of new rows {density:.3f}")


describe("trained", model)

# %%
# Draws
# -----
#
# Each hyperparameter gets a prior; the inducing inputs stay where they are, as they are
# parameters of the approximation and not of the model. ``log_posterior_density`` is log
# Z plus the log densities of the priors: at ``alpha=0`` a lower bound of the exact one,
# at other powers an estimate.

gpflow.set_trainable(model.inducing_variable, False)
for parameter in model.trainable_parameters:
    one = np.ones_like(parameter.numpy())
    parameter.prior = tfp.distributions.LogNormal(np.log(0.5) * one, one)
parameters = model.trainable_parameters
helper = gpflow.optimizers.SamplingHelper(model.log_posterior_density, parameters)
sampler = tfp.mcmc.SimpleStepSizeAdaptation(
    tfp.mcmc.HamiltonianMonteCarlo(
        helper.target_log_prob_fn, num_leapfrog_steps=8, step_size=np.float64(0.2)
    ),
    num_adaptation_steps=80,
    target_accept_prob=np.float64(0.8),
)


@tf.function
def sample() -> tuple[list[tf.Tensor], tf.Tensor]:
    return tfp.mcmc.sample_chain(
        200,
        helper.current_state,
        kernel=sampler,
        num_burnin_steps=100,
        trace_fn=lambda _, results: results.inner_results.is_accepted,
        seed=1,
    )


states, accepted = sample()
chains = helper.convert_to_constrained_values(states)
print(f"{np.mean(accepted):.0%} of the proposals were accepted")

# %%
# Every tenth draw becomes a model, and their ensemble averages the predictive densities. A draw
# weighs as much as any other: the sampler has put more of them where the posterior is high.

draws = []
for number in range(0, 200, 10):
    for parameter, chain in zip(parameters, chains):
        parameter.assign(chain[number])
    draws.append(gpflow.utilities.deepcopy(model))
ensemble = pep.training.ensemble_of_models(draws, weights="uniform")
describe("20 draws", ensemble)

# %%
# Laplace's approximation
# -----------------------
#
# Around its mode the posterior of the parameters without their constraints is nearly
# Gaussian: its covariance is the inverse of the second derivative of the training loss,
# priors included. For other likelihoods than Gaussian noise it is as simple: ``PEP``
# has second derivatives too. The standard deviations are of the size of those of the
# draws. What it misses is that the posterior of the kernel's variance is skewed: its
# mean is far above its mode.

pep.training.maximise(model, tolerance=0.0, progress=False)
variables = [parameter.unconstrained_variable for parameter in parameters]
with tf.GradientTape(persistent=True) as outer:
    with tf.GradientTape() as inner:
        loss = model.training_loss()
    slopes = tf.concat(
        [tf.reshape(g, [-1]) for g in inner.gradient(loss, variables)], axis=0
    )
    slopes = tf.unstack(slopes)
rows = [
    tf.concat([tf.reshape(g, [-1]) for g in outer.gradient(slope, variables)], axis=0)
    for slope in slopes
]
covariance = np.linalg.inv(np.stack(rows))
mode = np.concatenate([np.ravel(variable) for variable in variables])
near = []
for values in rng.multivariate_normal(mode, 0.5 * (covariance + covariance.T), size=20):
    for variable, value in zip(variables, values):  # each is one number
        variable.assign(np.reshape(value, variable.shape))
    near.append(gpflow.utilities.deepcopy(model))
describe(
    "20 draws by Laplace", pep.training.ensemble_of_models(near, weights="uniform")
)
names = {
    id(part): name for name, part in gpflow.utilities.parameter_dict(model).items()
}
for number, (parameter, chain) in enumerate(zip(parameters, states)):
    center = mode[number]
    sd = np.sqrt(covariance[number, number])
    drawn = f"{np.mean(chain):.2f} and {np.std(chain):.2f}"
    print(
        f"{names[id(parameter)]}: mean and sd {center:.2f} and {sd:.2f}, by HMC {drawn}"
    )

# %%
# The picture shows how far apart draws are, and the quantiles of the ensemble.

grid = np.linspace(-0.5, 5.5, 120)[:, None]
low, _, high = np.moveaxis(ensemble.predict_quantiles(grid)[:, 0].numpy(), -1, 0)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for name, parameter in gpflow.utilities.parameter_dict(model).items():
    if parameter.trainable:
        place = [parameter is other for other in parameters].index(True)
        left.plot(chains[place], label=name.lstrip("."))
left.set(xlabel="draw", yscale="log")
left.legend()
for draw in draws:
    right.plot(grid, draw.predict_f(grid)[0], color="C0", alpha=0.3)
right.fill_between(grid[:, 0], low, high, alpha=0.2, label="90% of y")
right.plot(X, Y, ".", color="black")
right.set(xlabel="x", ylabel="y")
right.legend()
