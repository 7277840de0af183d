"""Sites reached from those of larger powers.

Where several fixed points may be, or where a rate's first sites would be too precise to be added to
1, a run with no sites begins with powers at which neither is so.
"""

from .phases import Attempt, Phase
from .record import Features, RunLimits

#: How much easier the problems are, from 1 to 0, the one that is meant.
WARM_UP_POWERS = (1.0, 0.5)
#: Each is left for the next one where its mean square residual is below this, or after so many
#: sweeps.
RESIDUAL, _SWEEPS = 3e-3, 30


def larger_powers(features: Features, _: RunLimits) -> Attempt:
    """Begin with larger powers where there are no sites yet."""
    phases = [Phase(power, mean_square=RESIDUAL, sweeps=_SWEEPS) for power in WARM_UP_POWERS]
    return Attempt(phases, is_tried=lambda *_: features.warm_up)
