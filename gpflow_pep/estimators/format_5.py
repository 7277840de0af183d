"""What the description of a mixture did not have before format 6: components that are no models."""

from typing import Any


def complete_mixture(described: dict[str, Any]) -> dict[str, Any]:
    """Add to a mixture of older files that each model is there once, and knows no near rows."""
    number = len(described["models"])
    return {"components": list(range(number)), "near": [None] * number, **described}
