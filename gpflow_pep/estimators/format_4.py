"""What format 4 could save beside an estimator: a pipeline, and an encoder of tables in it."""

from typing import Any

from sklearn.pipeline import Pipeline

from ..columns import Format, TableEncoder
from ..columns.encodings import Encoding
from .describing import Described, Loader
from .describing_estimators import construct_estimator


def construct(described: dict[str, Described], load: Loader) -> Any:
    """Construct the pipeline, encoder or estimator that was described."""
    if described["class"] == "Pipeline":
        steps = [(str(name), construct(step, load)) for name, step in described["steps"]]
        return Pipeline(steps)
    if described["class"] == "TableEncoder":
        return _construct_encoder(described)
    return construct_estimator(described, load)


def _construct_encoder(described: dict[str, Described]) -> TableEncoder:
    formats, encodings = {}, {}
    for name, form, encoding in described["columns"]:
        formats[str(name)] = Format(**{**form, "missing": tuple(form["missing"])})
        lists = {key: tuple(encoding[key]) for key in ("cycles", "categories")}
        encodings[str(name)] = Encoding(**{**encoding, **lists})
    limits = {name: described[name] for name in ("max_categories", "min_count")}
    return TableEncoder(formats, **limits).restore(encodings)
