"""Functions drawn from the posterior of a model, to be evaluated anywhere and
differentiated.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData
from gpflow.inducing_variables import MultioutputInducingVariables
from gpflow.kernels import LinearCoregionalization
from gpflow.utilities import deepcopy, set_trainable

from .. import checks
from ..numerics.chunks import map_over_chunks, row_chunks
from ..numerics.tapes import own_tape
from ..predictions.posterior import new_inputs
from ..prior import Parts, latent_kernels, split_outputs
from ..prior.evaluate import mean, unconverted
from ..sites.posterior import WhitenedGaussian
from .prior import Draws
from .update import PosteriorDraws, points_and_blur


class _PartsOfPaths(tf.Module):
    """The parts of a model that its functions need."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.kernel, self.inducing_variable, self.mean_function, _ = parts

    def copy(self) -> "_PartsOfPaths":
        """Copy the parts; nothing in the copy is trained."""
        copied = deepcopy(self)
        set_trainable(copied, False)
        return copied

    def assign(self, other: "_PartsOfPaths") -> None:
        """Assign the values of other parts with the same types and shapes."""
        forms = [
            [
                *map(type, parts.submodules),
                *(variable.shape for variable in parts.variables),
            ]
            for parts in (self, other)
        ]
        if forms[0] != forms[1]:
            raise checks.refusal(
                "update",
                "a model whose kernel, mean function or inducing variables have other"
                " types or shapes than when the paths were drawn",
                "the same types and shapes, with other values",
                "Draw new paths: model.paths(...).",
            )
        for variable, value in zip(self.variables, other.variables, strict=True):
            variable.assign(value)


class Paths(tf.Module):
    """Functions drawn from the posterior of a model; see :doc:`/paths`.

    Each path is the same function in all evaluations. A call evaluates all paths at the
    same inputs, and :meth:`each` evaluates every path at its own inputs. Both take time
    linear in the number of inputs and memory for a chunk of them, and so does the
    gradient. Calls can be differentiated in the inputs, compiled by ``tf.function``,
    and saved by ``tf.saved_model.save``.

    ``model.paths(...)`` makes them. They do not change with the model until you call
    :meth:`update`.

    :param state: A function that computes what the paths depend on, for the present
        model. For the other arguments see :func:`draw_paths`.
    :raises ValueError: If functions with this kernel or these inducing variables cannot
        be drawn, or in a graph.
    """

    def __init__(
        self,
        state: Callable[[], tuple[Parts, WhitenedGaussian]],
        num_paths: int,
        num_features: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not tf.executing_eagerly():
            remedy = "Draw paths before the graph, and call them in it."
            raise checks.refusal(
                "paths", "a call inside a graph", "an eager one", remedy
            )
        self.num_paths = checks.check_positive("num_paths", num_paths)
        num_features = checks.check_positive("num_features", num_features)
        self._state = state
        self._seed = checks.check_seed(seed)
        parts, q = state()
        self._parts = _PartsOfPaths(parts).copy()
        self._q = [tf.Variable(tensor, trainable=False) for tensor in q]
        self._draws = self._create(num_features)
        self._chunk_size = min(draws.chunk_size for draws in self._draws)
        self._draw()

    def _create(self, num_features: int) -> list[PosteriorDraws]:
        variables = split_outputs(self._parts.inducing_variable)
        kernels = (
            latent_kernels(self._parts.kernel)
            if self._of_latents
            else [self._parts.kernel]
        )
        # 1 if all latent functions share both, otherwise L.
        num_functions = max(len(kernels), len(variables))
        origin = np.mean(points_and_blur(variables[0])[0], axis=0)
        # Otherwise q is one Gaussian over the inducing variables of all latent
        # functions.
        num_latent = max(self._q[0].shape[1], num_functions)
        draws = Draws(self.num_paths, num_latent // num_functions, num_features, origin)
        return [
            PosteriorDraws(
                kernels[k % len(kernels)], variables[k % len(variables)], draws
            )
            for k in range(num_functions)
        ]

    @property
    def _of_latents(self) -> bool:
        """Whether inducing variables belong to latent functions, from which outputs are
        mixed.
        """
        return isinstance(self._parts.inducing_variable, MultioutputInducingVariables)

    def _draw(self) -> None:
        random = np.random.default_rng(self._seed)
        seen = []
        noise = []
        for draws in self._draws:
            seen.append(draws.resample(random))
            noise.append(random.standard_normal(seen[-1].shape))
        mean, root = (np.asarray(tensor, np.float64) for tensor in self._q)
        # [S, L, M] of every latent function, or [S, 1, Q M] under one Gaussian over
        # those of all.
        drawn = np.concatenate(noise, axis=1).reshape(self.num_paths, *root.shape[:2])
        v = mean.T + np.einsum("cmn,scn->scm", root, drawn, optimize=True)
        latents = v.reshape(self.num_paths, -1, seen[0].shape[2])
        start = 0
        for draws, u in zip(self._draws, seen, strict=True):
            stop = start + u.shape[1]
            draws.update(u, latents[:, start:stop])
            start = stop

    def resample(self, seed: int) -> None:
        """
        Draw other paths from the same posterior, in place. Compiled functions then use
        the new paths.
        """
        self._seed = checks.check_seed(seed)
        self._draw()

    def update(self) -> None:
        """Draw the paths again from the present model, in place, with the same seed.

        Call this method after parameters or data have changed. The random numbers stay
        the same, so each path changes only as much as the posterior.

        :raises ValueError: If the number of inducing variables has changed, or the
            types of parts of the model.
        """
        parts, q = self._state()
        self._parts.assign(_PartsOfPaths(parts))
        for variable, value in zip(self._q, q, strict=True):
            variable.assign(value)
        self._draw()

    @unconverted("Xnew: [N, D]", "return: [S, N, P]")
    def __call__(self, Xnew: InputData) -> tf.Tensor:
        """Evaluate all paths at the same inputs, which must suit the model."""
        return self._evaluate(self._inputs(Xnew)[:, None])

    @unconverted("return: [S, N, P]")
    def each(self, Xnew: InputData) -> tf.Tensor:
        """Evaluate each path at its own inputs, [S, N, D], which must suit the
        model.
        """
        Xnew = tf.convert_to_tensor(Xnew)
        if Xnew.shape.rank != 3 or Xnew.shape[0] not in (None, self.num_paths):
            got = f"shape {tuple(Xnew.shape)}"
            expected = f"[{self.num_paths}, N, D]"
            remedy = (
                "Pass inputs for each path. If all paths have the same inputs, call"
                " the paths."
            )
            raise checks.refusal("Xnew", got, f"{expected}, for each path", remedy)
        Xnew = tf.ensure_shape(Xnew, [self.num_paths, None, None])
        flat = self._inputs(tf.reshape(Xnew, [-1, Xnew.shape[2]]))
        batches = tf.reshape(flat, [self.num_paths, -1, flat.shape[1]])
        return self._evaluate(tf.transpose(batches, [1, 0, 2]))

    def _inputs(self, Xnew: InputData) -> tf.Tensor:
        return new_inputs(Xnew, self._parts.inducing_variable, self._q[0].dtype)

    def _evaluate(self, X: tf.Tensor) -> tf.Tensor:
        """[S, N, P] from [N, 1 or S, D], in chunks of rows."""
        return tf.transpose(_map_rows(self._values, X, self._chunk_size), [1, 0, 2])

    def _values(self, X: tf.Tensor) -> tf.Tensor:
        """[N, S, P] from [N, 1 or S, D]."""
        batches = tf.transpose(X, [1, 0, 2])
        values = tf.concat([draws(batches) for draws in self._draws], axis=1)
        kernel = self._parts.kernel
        if self._of_latents and isinstance(kernel, LinearCoregionalization):
            values = tf.einsum("pl,sln->spn", kernel.W, values)
        values = tf.transpose(values, [2, 0, 1])
        means = mean(self._parts.mean_function, tf.reshape(X, [-1, X.shape[2]]))
        return values + tf.reshape(
            means, [tf.shape(X)[0], tf.shape(X)[1], means.shape[1]]
        )


def draw_paths(
    model: Any, num_paths: int, num_features: int = 1024, seed: int = 0
) -> Paths:
    """Draw functions from the posterior of f that can be evaluated anywhere; see
    :doc:`/paths`.

    :param num_paths: The number of functions, S.
    :param num_features: The number of random frequencies for each path, latent function
        and term of the kernel. Means and covariances are right for any number. With
        more frequencies, the joint distribution of values at several inputs is nearer
        to a Gaussian.
    :param seed: The same seed gives the same paths.
    :raises ValueError: If functions with this kernel or these inducing variables cannot
        be drawn.
    """
    state = lambda: (model._parts, model._posterior_of_v())  # noqa: E731
    return Paths(state, num_paths, num_features, seed)


def _map_rows(
    function: Callable[[tf.Tensor], tf.Tensor], X: tf.Tensor, chunk_size: int
) -> tf.Tensor:
    """
    Compute a function of each row [N, ...], with values [N, ...], in chunks. The
    gradient in X does not keep values of chunks.
    """

    @tf.custom_gradient
    def mapped(X: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def chunk_gradient(rows: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            with own_tape([rows[0]]) as tape:
                value = function(rows[0])
            return tape.gradient(value, rows[0], output_gradients=rows[1])

        def gradient(upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            by_X = map_over_chunks(
                chunk_gradient, row_chunks((X, upstream), chunk_size)
            )
            return (by_X, [None] * len(variables)) if variables else by_X

        return map_over_chunks(function, row_chunks(X, chunk_size)), gradient

    return mapped(X)
