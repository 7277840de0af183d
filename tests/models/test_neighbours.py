"""PEPRegression whose conditionals know neighbours: against dense NumPy, and what is proved."""

import copy
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import Case
from helpers import (
    RegressionProblem,
    assert_all_close,
    assert_close,
    finite_difference_gradient,
    gradients,
    regression_problem,
)
from reference import neighbours as neighbour_reference
from reference import regression as reference
from reference.neighbours import neighbours_in

import gpflow_pep as pep
from gpflow_pep.covariances import nearest
from gpflow_pep.energies.collapsed import RowSums
from gpflow_pep.ops.chunks import Reduction

N = 17


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of 9 and 8 rows, where rows have 2 neighbours."""
    monkeypatch.setattr(nearest, "GROUP_SIZE", 1)


def regression(
    problem: RegressionProblem, neighbours: int = 2, alpha: Any = 0.5, **arguments: Any
) -> "pep.models.PEPRegression":
    return problem.model(pep.models.PEPRegression, alpha=alpha, neighbours=neighbours, **arguments)


CASES = {
    **{f"alpha {alpha}": Case(alpha=alpha) for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0)},
    "noise scale, three outputs": Case(alpha=0.3, noise="scale", num_outputs=3),
    "noise variance, linear mean": Case(alpha=1.0, noise="variance", mean="linear"),
}


@pytest.mark.parametrize("neighbours", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_value_and_q_are_the_reference(name: str, neighbours: int) -> None:
    case = CASES[name]
    model = case.model(neighbours=neighbours)
    assert model.neighbours == neighbours
    prior, R, noise, _ = case.reference_arguments()
    sets = neighbours_in(model.neighbour_plan)
    value, mean, cov = neighbour_reference.log_z(prior, R, noise, case.alpha, sets)
    assert_close(model.pep_log_marginal_likelihood(), np.array(value))
    assert_close(model.q_mu, mean, rtol=1e-7)
    assert_close(model.q_sqrt[0] @ tf.transpose(model.q_sqrt[0]), cov, rtol=1e-7)


@pytest.mark.near_copies("9")
@pytest.mark.parametrize("chunk_size", [1, 9, 18, None])
def test_chunks_do_not_matter(chunk_size: int | None) -> None:
    model = regression(regression_problem(num_data=40), 2, chunk_size=chunk_size)
    whole = regression(regression_problem(num_data=40), 2)
    assert model.neighbour_plan is not None and model.neighbour_plan.rows.shape == (4, 10)
    assert_close(model.training_loss(), whole.training_loss(), rtol=1e-12)
    assert_all_close(
        gradients(model.training_loss, model.trainable_variables),
        gradients(whole.training_loss, whole.trainable_variables),
        rtol=1e-10,
    )


@pytest.mark.parametrize(
    "alpha, chunk_size, neighbours",
    [(0.3, 9, 2), (0.0, None, 2), (1.0, 9, 2), (0.3, None, N - 1)],
)
@pytest.mark.near_copies
def test_gradient_is_the_finite_difference(
    alpha: float, chunk_size: int | None, neighbours: int
) -> None:
    model = Case(alpha=alpha, noise="scale", num_outputs=2, mean="linear").model(
        neighbours=neighbours, chunk_size=chunk_size
    )
    loss = tf.function(model.training_loss, autograph=False)
    for gradient, variable in zip(
        gradients(loss, model.trainable_variables), model.trainable_variables, strict=True
    ):
        assert_close(gradient, finite_difference_gradient(loss, variable), rtol=1e-6, scale=1.0)


@pytest.mark.slow
def test_second_derivative_is_that_of_the_gradient() -> None:
    model = regression(regression_problem(num_data=N), chunk_size=9)
    variable = model.kernel.lengthscales.unconstrained_variable

    def slope() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return tf.reduce_sum(tape.gradient(loss, variable))

    (second,) = gradients(slope, [variable])
    assert_close(second, finite_difference_gradient(slope, variable), rtol=1e-6)


def test_all_predecessors_and_power_one_are_the_exact_process() -> None:
    problem = regression_problem(num_data=N)
    model = regression(problem, N - 1, 1.0)
    exact = problem.model(gpflow.models.GPR)
    assert_close(
        model.pep_log_marginal_likelihood(), exact.log_marginal_likelihood(), rtol=1e-6
    )  # Kuu has jitter


@pytest.mark.parametrize("seed", range(5))
def test_power_zero_is_a_bound_for_any_neighbours(seed: int) -> None:
    """Between the bound without neighbours and the exact value."""
    problem, rng = regression_problem(seed, num_data=N), np.random.default_rng(seed)
    model = regression(problem, 3, 0.0)
    plan = model.neighbour_plan
    assert plan is not None
    plan.rows.assign(rng.permutation(plan.rows.numpy().T).T[rng.permutation(2)])
    rows = plan.rows.numpy()
    rows = np.stack([np.r_[group[group >= 0], group[group < 0]] for group in rows])
    plan.rows.assign(rows)  # another order than that in which neighbours were near
    noise = np.full(N, problem.noise_variance)
    prior = problem.prior()
    Q = prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    exact = reference.gaussian_log_density(problem.Y, prior.Kff + np.diag(noise))
    value = float(model.pep_log_marginal_likelihood())
    lower = neighbour_reference.scaled_bound(prior, problem.Y, noise)
    assert lower <= value <= exact
    titsias = reference.gaussian_log_density(problem.Y, Q + np.diag(noise)) - 0.5 * np.sum(
        np.diag(prior.Kff - Q) / noise
    )
    assert titsias < lower
    assert_close(
        np.array(value),
        np.array(neighbour_reference.log_z(prior, problem.Y, noise, 0.0, neighbours_in(plan))[0]),
    )


def test_rows_that_are_there_several_times() -> None:
    problem = regression_problem(num_data=N)
    X = np.repeat(problem.X[:5], 4, axis=0)[:N]
    problem = problem._replace(X=X, noise_variance=1e-5)
    model = regression(problem, 4)
    for gradient in gradients(model.training_loss, model.trainable_variables):
        assert np.all(np.isfinite(gradient))
    sets = neighbours_in(model.neighbour_plan)
    noise = np.full(N, 1e-5)
    value, *_ = neighbour_reference.log_z(problem.prior(), problem.Y, noise, 0.5, sets)
    assert_close(model.pep_log_marginal_likelihood(), np.array(value), rtol=1e-6)


def test_single_precision() -> None:
    gpflow.config.set_default_float(np.float32)
    problem = regression_problem(num_data=N)
    model = pep.models.PEPRegression(
        tuple(part.astype(np.float32) for part in problem.data),
        problem.kernel(),
        problem.Z.astype(np.float32),
        noise_variance=problem.noise_variance,
        neighbours=2,
    )
    sets, noise = neighbours_in(model.neighbour_plan), np.full(N, problem.noise_variance)
    value, *_ = neighbour_reference.log_z(problem.prior(), problem.Y, noise, 0.5, sets)
    assert_close(tf.function(model.training_loss)(), np.float32(-value), rtol=1e-3)
    for gradient in gradients(model.training_loss, model.trainable_variables):
        assert gradient.dtype == np.float32 and np.all(np.isfinite(gradient))


def _stretched(model: "pep.models.PEPRegression") -> "pep.models.PEPRegression":
    model.kernel.lengthscales.assign([0.05, 20.0])
    return model


def test_a_compiled_loss_sees_refreshed_neighbours() -> None:
    model = _stretched(regression(regression_problem(num_data=N)))
    loss = tf.function(model.training_loss, autograph=False)
    before = float(loss())
    assert_close(loss(), model.training_loss())
    model.refresh_neighbours()
    assert abs(float(loss()) - before) > 1e-3
    assert_close(loss(), model.training_loss(), rtol=1e-12)
    assert loss.experimental_get_tracing_count() == 1
    made_so = pep.models.PEPRegression(
        model.data, model.kernel, model.inducing_variable, likelihood=model.likelihood, neighbours=2
    )
    assert_close(loss(), made_so.training_loss(), rtol=1e-12)


def test_copies_have_neighbours_of_their_own() -> None:
    model = _stretched(regression(regression_problem(num_data=N)))
    other = copy.deepcopy(model)
    loss = float(model.training_loss())
    assert float(other.training_loss()) == loss
    other.refresh_neighbours()
    assert float(model.training_loss()) == loss != float(other.training_loss())


def test_checkpoints_keep_neighbours(tmp_path: Any) -> None:
    model = regression(regression_problem(num_data=N))
    _stretched(model).refresh_neighbours()
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "model"))
    other = regression(regression_problem(num_data=N))
    tf.train.Checkpoint(model=other).restore(path).assert_consumed()
    assert_close(other.training_loss(), model.training_loss(), rtol=1e-12)


def test_neighbours_are_no_parameters() -> None:
    model, without = (regression(regression_problem(num_data=N), m) for m in (2, 0))
    assert without.neighbours == 0
    assert list(gpflow.utilities.parameter_dict(model)) == list(
        gpflow.utilities.parameter_dict(without)
    )
    assert len(model.trainable_variables) == len(without.trainable_variables)


def test_data_of_another_length_ask_for_a_refresh() -> None:
    problem, more = (regression_problem(num_data=num_data) for num_data in (N, 30))
    data = tuple(
        tf.Variable(part, trainable=False, shape=[None, part.shape[1]]) for part in problem.data
    )
    model = regression(problem._replace(X=data[0], Y=data[1]))
    loss = tf.function(model.training_loss, autograph=False)
    loss()
    for variable, values in zip(data, more.data, strict=True):
        variable.assign(values)
    with pytest.raises(ValueError, match=r"number of rows.*refresh_neighbours"):
        model.training_loss()
    with pytest.raises(tf.errors.InvalidArgumentError, match="refresh_neighbours"):
        loss()
    model.refresh_neighbours()
    assert_close(
        model.training_loss(), regression(more._replace(Z=problem.Z)).training_loss(), rtol=1e-12
    )
    assert_close(loss(), model.training_loss(), rtol=1e-12)
    assert loss.experimental_get_tracing_count() == 1


class OtherShard(Reduction):
    """Adds what another process would send, which holds these rows."""

    count = 2

    def __init__(self, other: "pep.models.PEPRegression") -> None:
        self.others = other._sums(), other.rows.total_number()

    def total(self, tensors: Any) -> Any:
        other = self.others[0 if isinstance(tensors, RowSums) else 1]
        return tf.nest.map_structure(tf.add, tensors, other)


def test_shards_have_neighbours_of_their_own() -> None:
    problem = regression_problem(num_data=30)
    shards = [
        regression(problem._replace(X=problem.X[rows], Y=problem.Y[rows]))
        for rows in (slice(12), slice(12, None))
    ]
    first, second = (neighbours_in(shard.neighbour_plan) for shard in shards)
    sets = [*first, *([12 + place for place in near] for near in second)]
    noise = np.full(30, problem.noise_variance)
    value, *_ = neighbour_reference.log_z(problem.prior(), problem.Y, noise, 0.5, sets)
    shards[0].reduction = OtherShard(shards[1])
    assert_close(shards[0].pep_log_marginal_likelihood(), np.array(value))


@pytest.mark.parametrize(
    "neighbours", [-1, N, 2.5, 2.0, True, "many", None], ids=lambda value: repr(value)
)
def test_no_such_number_of_neighbours(neighbours: Any) -> None:
    with pytest.raises(ValueError, match=r"neighbours: got .*expected an integer from 0.*Choose"):
        regression(regression_problem(num_data=N), neighbours)


REFUSED: list[tuple[str, Any]] = [
    (
        "blocks and neighbours: got both, expected one",
        lambda: regression(regression_problem(num_data=N), 2, blocks=np.zeros(N, int)),
    ),
    (
        "alpha: got shape .*expected a number",
        lambda: regression(regression_problem(num_data=N), 2, np.full(N, 0.5)),
    ),
    (
        "neighbours: got a model without any, expected",
        lambda: regression(regression_problem(num_data=N), 0).refresh_neighbours(),
    ),
]


@pytest.mark.parametrize("message, call", REFUSED)
def test_refused(message: str, call: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_numpy_numbers_are_numbers() -> None:
    assert regression(regression_problem(num_data=N), np.int64(3)).neighbours == 3


def test_prediction_by_all_rows_is_the_exact_process() -> None:
    """Whatever the inducing inputs are, where all rows are neighbours and alpha is 1."""
    rng = np.random.default_rng(0)
    X, Xnew = rng.uniform(-1.0, 1.0, (20, 2)), rng.uniform(-1.0, 1.0, (7, 2))
    Y = np.sin(3.0 * X[:, :1]) + 0.1 * rng.standard_normal((20, 1))
    kernel = gpflow.kernels.Matern32(lengthscales=[0.5, 1.0])
    options = {"noise_variance": 0.05, "mean_function": gpflow.functions.Constant(0.3)}
    model = pep.models.PEPRegression(
        (X, Y), kernel, X[:3].copy(), alpha=1.0, neighbours=19, **options
    )
    expected = gpflow.models.GPR((X, Y), kernel, **options).predict_f(Xnew)
    # Jitter of the inducing inputs is all that differs.
    for got, wanted in zip(model.predict_f(Xnew, neighbours=20), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4)
    by_default = model.predict_f(Xnew)
    np.testing.assert_allclose(by_default[0], model.predict_f(Xnew, neighbours=19)[0], rtol=1e-10)
    assert np.all(by_default[1] < model.predict_f(Xnew, neighbours=0)[1])
