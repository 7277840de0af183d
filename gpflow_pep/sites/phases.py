"""The parts of a run of the inner loop: easier problems first, the one that is meant, fallbacks."""

from typing import Any, NamedTuple

import tensorflow as tf

#: How much easier the problems are that a run may begin with, from 1 to 0, the one that is meant.
WARM_UP_POWERS = (1.0, 0.5)
#: Each is left for the next one where its mean square residual is below this, or after so many
#: sweeps.
_WARM_UP_RESIDUAL, _WARM_UP_SWEEPS = 3e-3, 30
#: What is tried until something has converged. "continuation": the problem of power 0 and those of
#: larger and larger ones, see :data:`POWER_SHIFTS`, each from the sites of the one before.
#: "damped": small steps from no sites, or from where the run is where that is close already.
#: "limited", where it is not close even then: towards sites whose precision is not negative and
#: which match the tilted mean alone where theirs would be. That nearly always ends at a point that
#: depends smoothly on the parameters, but it is not a fixed point of Power EP, and the record says
#: that it did not converge, unless no precision was limited in the end.
FALLBACKS = ("", "continuation", "damped", "limited")
CONTINUATION, DAMPED, LIMITED = 1, 2, 3
#: How far below the problem that is meant those of the continuation are, from -1, power 0, to 0.
POWER_SHIFTS = tuple(-k / 20 for k in range(20, 0, -1))
#: The mean square residual at which each of these ends, and its part of the sweeps that a phase has
#: that is no warm-up; where that is less than one there is none of them. Longer ones were seen to
#: lose the way where sites jump.
_CONTINUATION_RESIDUAL, _CONTINUATION_PART = 1e-4, 0.1


class Phase(NamedTuple):
    """A part of a run: numbers, or tensors [] of the one that a run is in."""

    power_shift: Any
    """Of the problem, see :func:`~gpflow_pep.sites.fixed_point.run_to_fixed_point`."""

    fallback: Any
    """Place in :data:`FALLBACKS`."""

    mean_square: Any
    """Below which the next phase begins, with the same sites; 0: there are other rules."""

    sweeps: Any
    """The most of them."""

    @property
    def is_warm_up(self) -> Any:
        """Whether it serves but to begin the next one."""
        return self.mean_square > 0.0


class Phases(tuple[Phase, ...]):
    """The phases of a run, one after another."""

    @property
    def main(self) -> int:
        """The place of the first one whose problem is the one that is meant."""
        return [phase.is_warm_up for phase in self].index(False)

    def at(self, place: tf.Tensor, dtype: tf.DType) -> Phase:
        """Find the phase at a place."""
        power_shift, fallback, mean_square, sweeps = zip(*self)
        columns = (
            tf.constant(power_shift, dtype),
            tf.constant(fallback),
            tf.constant(mean_square, dtype),
            tf.constant(sweeps),
        )
        return Phase(*(tf.gather(column, place) for column in columns))


def phases_of(warm_up: bool, fall_back: bool, max_sweeps: int) -> Phases:
    """
    List the phases of a run.

    :param max_sweeps: The most sweeps of a phase that is no warm-up.
    """
    residual, sweeps = _WARM_UP_RESIDUAL, _WARM_UP_SWEEPS
    phases = [Phase(power, 0, residual, sweeps) for power in WARM_UP_POWERS if warm_up]
    phases += [Phase(0.0, 0, 0.0, max_sweeps)]
    if fall_back:
        few = int(_CONTINUATION_PART * max_sweeps)
        if few:
            residual = _CONTINUATION_RESIDUAL
            phases += [Phase(shift, CONTINUATION, residual, few) for shift in POWER_SHIFTS]
            phases += [Phase(0.0, CONTINUATION, 0.0, max_sweeps)]
        phases += [Phase(0.0, fallback, 0.0, max_sweeps) for fallback in (DAMPED, LIMITED)]
    return Phases(phases)
