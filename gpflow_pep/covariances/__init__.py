"""Kernel and inducing variables turned into matrices."""

from .projection import Projection, prior_factor, project, project_blocks
from .well_conditioned import WellConditioned

__all__ = ["Projection", "WellConditioned", "prior_factor", "project", "project_blocks"]
