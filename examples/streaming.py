"""Classify with rows that arrive in batches: each row seen once, or kept and seen
again.

    python -m examples streaming                        # generated data, less than a minute
    python -m examples streaming --data DIRECTORY       # the banana data: banana.csv.gz in there

Assumed-density filtering (ADF) is expectation propagation's first pass (Qi, Abdel-Gawad
& Minka 2010): it updates q row by row and keeps nothing of a row but what its site adds
to q, so that its memory does not grow. EP keeps rows and sites: ``condition_on`` adds a
batch, and before the next prediction sweeps over all rows so far bring the sites to
their fixed point, from where they were.

Hyperparameters and inducing inputs are trained on the first batch, and the same for
both then. Prints error and mean negative log density on held-out rows after each batch,
and EP's sweeps.
"""

import sys
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.datasets import make_moons

from examples.common import arguments
from examples.data_sets import numbers
from gpflow_pep.engine.prior import Projection, whiten
from gpflow_pep.engine.sites.posterior import (
    Marginals,
    Natural,
    SiteProblem,
    SiteRows,
    Sites,
    no_sites,
    posterior_factor,
    sites_of_rows,
    whitened_posterior,
)
from gpflow_pep.engine.sites.sweep import match_moments, row_prior
from gpflow_pep.metrics import mean_nlpd
from gpflow_pep.models import PEPClassification

SEED = 0
NUM_TEST = 1000
Rows = tuple[AnyNDArray, AnyNDArray]


def generated(num_rows: int) -> Rows:
    """Two half moons that overlap."""
    X, labels = make_moons(num_rows, noise=0.35, random_state=SEED)
    return X, labels[:, None].astype(float)


def banana(directory: Path) -> Rows:
    """The banana data in random order."""
    X, Y = numbers(directory, "banana")
    order = np.random.default_rng(SEED).permutation(len(X))
    return X[order], Y[order]


def trained_on(rows: Rows, num_inducing: int, alpha: float) -> PEPClassification:
    """
    A model of the first batch. Its data are variables of any length: what is compiled
    for them goes on after more rows come.
    """
    X, Y = (
        tf.Variable(part, shape=[None, part.shape[1]], trainable=False) for part in rows
    )
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(rows[0].shape[1]))
    Z = rows[0][:num_inducing].copy()
    model = PEPClassification((X, Y), kernel, None, Z, alpha=alpha)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 50}
    )
    return model


def sequential_pass(
    problem: SiteProblem, projection: Projection, before: Natural
) -> tuple[Sites, tf.Tensor]:
    r"""Find the site of each row in turn, from the posterior that the row before left.

    With :math:`V = B^{-1}`, :math:`w = V b`, a row's projection a, and mean m and
    variance s of its f, a site :math:`(\nu, \tau)` makes

    .. math::

        V \leftarrow V - \frac{\tau}{1 + \tau s} V a aᵀ V, \qquad
        w \leftarrow w + \frac{\nu - \tau m}{1 + \tau s} V a.

    :param before: What earlier rows add to q.
    :return: The sites, and how many rows were refused, because their cavity or the
        posterior would have been improper; these have no site.
    """
    q = posterior_factor(before)

    def update(
        n: tf.Tensor, x: tf.Tensor, refused: tf.Tensor, V: tf.Tensor, w: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        row = Projection(*(tf.gather(part, [n], axis=-1) for part in projection))
        Va = tf.matmul(V, row.A)  # [L, M, 1]
        m, s = (
            tf.transpose(tf.matmul(row.A, part, transpose_a=True)[..., 0])
            for part in (w, Va)
        )
        of_row = problem.batch([n])
        none = no_sites(1, m.shape[1], m.dtype)
        matched = match_moments(
            of_row, row, Marginals(m, s), row_prior(of_row, none), none
        )
        site = tf.stack(matched.sites)  # [2, 1, L]
        proper = matched.proper[0] & tf.reduce_all(1.0 + site[1] * s > 0.0)
        site = tf.where(proper, site, tf.zeros_like(site))
        nu, tau = tf.unstack(site)
        V_scale, w_scale = (
            tf.transpose(part / (1.0 + tau * s))[..., None]
            for part in (tau, nu - tau * m)
        )
        return (
            n + 1,
            tf.tensor_scatter_nd_update(x, [[0, n], [1, n]], site[:, 0]),
            refused + tf.cast(~proper, tf.int32),
            V - V_scale * tf.matmul(Va, Va, transpose_b=True),
            w + w_scale * Va,
        )

    num_rows = tf.shape(projection.A)[-1]
    none = tf.stack(no_sites(num_rows, q.W.shape[0], q.W.dtype))
    start = (
        tf.constant(0),
        none,
        tf.constant(0),
        tf.matmul(q.W, q.W, transpose_a=True),
        q.w,
    )
    _, x, refused, *_ = tf.while_loop(
        lambda n, *_: n < num_rows, update, start, parallel_iterations=1
    )
    return Sites(*tf.unstack(x)), refused


class Filter:
    """Assumed-density filtering with the prior, the likelihood and the power of a
    model.
    """

    def __init__(self, model: PEPClassification) -> None:
        self.model = model
        # [1, M, M] if functions share a kernel
        W = whiten(model.inducing_variable, model.kernel).W
        W = tf.broadcast_to(W, [model.num_latent_gps, *W.shape[1:]])
        self.sums = Natural(tf.zeros_like(W), tf.zeros_like(W[..., :1]))
        self.num_refused = 0
        self._compiled = tf.function(self._one_pass, autograph=False)

    def update(self, rows: Rows) -> None:
        """Take some rows in, once and in their order."""
        self.sums, refused = self._compiled(*map(tf.constant, rows), self.sums)
        self.num_refused += int(refused)

    def _one_pass(
        self, X: tf.Tensor, Y: tf.Tensor, before: Natural
    ) -> tuple[Natural, tf.Tensor]:
        alpha = tf.broadcast_to(self.model.alpha, tf.shape(X)[:1])
        problem = self.model.site_problem()._replace(rows=SiteRows(X, Y, alpha))
        projection = problem.project(X)
        sites, refused = sequential_pass(problem, projection, before)
        own = sites_of_rows(projection.A, sites)
        return tf.nest.map_structure(tf.add, before, own), refused

    def posterior(self) -> gpflow.models.SVGP:
        """GPflow's model that has this q(u), for predictions."""
        q = whitened_posterior(self.sums)
        model = self.model
        return gpflow.models.SVGP(
            model.kernel,
            model.likelihood,
            model.inducing_variable,
            mean_function=model.mean_function,
            num_latent_gps=model.num_latent_gps,
            q_mu=q.q_mu,
            q_sqrt=q.q_sqrt,
        )


def scores(probability: tf.Tensor, Y: AnyNDArray) -> tuple[float, float]:
    """Error rate, and mean negative log density, of labels with these probabilities of
    a 1.
    """
    p = probability.numpy()
    error = float(np.mean((p > 0.5) != (Y > 0.5)))
    return error, mean_nlpd(np.log(np.where(Y > 0.5, p, 1.0 - p)))


def stream(
    rows: Rows, test: Rows, batch_size: int, num_inducing: int, alpha: float
) -> tuple[PEPClassification, Filter]:
    """Hand the rows over batch by batch, and print what is known after each."""
    batches = [
        tuple(part[start : start + batch_size] for part in rows)
        for start in range(0, len(rows[0]), batch_size)
    ]
    model = trained_on(batches[0], num_inducing, alpha)
    filtered = Filter(model)
    predict = tf.function(model.predict_y, autograph=False)
    print(
        f"{'rows':>6}  {'ADF error':>9} {'nlpd':>7}  {'EP error':>9} {'nlpd':>7}"
        f" {'sweeps':>6}"
    )
    for k, batch in enumerate(batches):
        filtered.update(batch)
        if k > 0:
            model.condition_on(batch)
        seen_once = scores(filtered.posterior().predict_y(test[0])[0], test[1])
        converged = scores(predict(test[0])[0], test[1])
        record = model.last_inference
        print(
            f"{k * batch_size + len(batch[0]):>6}  {seen_once[0]:>9.4f}"
            f" {seen_once[1]:>7.4f}  {converged[0]:>9.4f} {converged[1]:>7.4f}"
            f" {record.num_sweeps:>6}" + ("" if record.converged else "  not converged")
        )
    print(f"refused rows of ADF: {filtered.num_refused}")
    return model, filtered


def main() -> None:
    args = arguments(
        __doc__,
        data=Path,
        batches=10,
        batch_size=100,
        inducing=30,
        alpha=1.0,
        quick={"batches": 3, "inducing": 10},
    )
    num_rows = args.batches * args.batch_size
    X, Y = generated(num_rows + NUM_TEST) if args.data is None else banana(args.data)
    if num_rows + NUM_TEST > len(X):
        sys.exit(
            f"Got {num_rows} rows to stream, expected at most the {len(X) - NUM_TEST}"
            " that are not held out. Ask for fewer or smaller batches."
        )
    stream(
        (X[:num_rows], Y[:num_rows]),
        (X[-NUM_TEST:], Y[-NUM_TEST:]),
        args.batch_size,
        args.inducing,
        args.alpha,
    )
