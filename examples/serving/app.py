"""
A REST endpoint for what ``gpflow-pep compare`` wrote, by NumPy alone.

    flask --app 'app:create_app("pep_results/scorer")' run
    curl -i localhost:5000/predict --json '[{"area": 71.5, "region": "Nord"}]'
    curl localhost:5000/health

Each answer has the version of the model in the header Model-Version.
"""

import json
from difflib import get_close_matches
from typing import Any

import pandas as pd

from gpflow_pep.compare import predict_table
from gpflow_pep.scoring import Scorer, load_scorer, version_of

#: The most bytes of a request, some 10 000 rows; a larger one is answered by 413.
MAX_BYTES = 1 << 20


def rows_of(body: bytes | str) -> list[dict[str, Any]]:
    """Read the rows of a request. As in a table, true and false are words."""
    expected = (
        "expected a list of at least one object with columns by name, such as"
        ' [{"area": 71.5, "region": "Nord"}]'
    )
    try:
        rows = json.loads(body)
    except ValueError as error:
        raise ValueError(
            f"body: got text that is not JSON ({error}), {expected}. Send JSON."
        ) from error
    is_list = isinstance(rows, list) and len(rows) > 0
    if not is_list or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"body: got other JSON, {expected}. Send such a list.")
    return [{key: as_word(value) for key, value in row.items()} for row in rows]


def as_word(value: Any) -> Any:
    """Turn true and false into words, which a column of numbers refuses. Python would
    read them as 1 and 0.
    """
    return str(value).lower() if isinstance(value, bool) else value


def check_columns(scorer: Scorer, rows: list[dict[str, Any]]) -> None:
    """Refuse columns that the model does not have, such as a misspelt one."""
    names = list(scorer.feature_names_in_)
    foreign = sorted({key for row in rows for key in row} - {*names})
    if foreign:
        similar = [
            close for name in foreign for close in get_close_matches(name, names)
        ]
        meant = f"Did you mean {similar[0]!r}? " if similar else ""
        raise ValueError(
            f"columns: got {', '.join(foreign)}, expected only {', '.join(names)}."
            f" {meant}Leave out other columns."
        )


def answer(scorer: Scorer, body: bytes | str) -> list[dict[str, Any]]:
    """Predict rows, each a JSON object with the columns by name; ValueError says what
    is wrong.
    """
    try:
        rows = rows_of(body)
        check_columns(scorer, rows)
        return predict_table(scorer, pd.DataFrame(rows)).to_dict("records")
    except (OverflowError, RecursionError) as error:
        raise ValueError(
            f"rows: a number is too large, or objects too deep: {error}."
        ) from error


def create_app(folder: str) -> Any:
    from flask import Flask, jsonify, request

    app = Flask(__name__)
    scorer = load_scorer(folder)
    version = version_of(folder)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BYTES

    @app.post("/predict")
    def predict() -> Any:
        try:
            return jsonify(answer(scorer, request.get_data()))
        except ValueError as error:
            return jsonify({"error": str(error)}), 422

    @app.get("/health")
    def health() -> Any:
        return jsonify({"status": "ok", "model": version})

    @app.after_request
    def name_the_model(response: Any) -> Any:
        response.headers["Model-Version"] = version
        return response

    return app
