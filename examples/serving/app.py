"""
A REST endpoint for what ``gpflow-pep compare`` wrote, by NumPy alone.

    flask --app 'app:create_app("pep_results/scorer")' run
    curl localhost:5000/predict --json '[{"area": 71.5, "region": "Nord"}]'
"""

import json
from typing import Any

import pandas as pd

from gpflow_pep.compare import predict_table
from gpflow_pep.scoring import Scorer, load_scorer

#: The most bytes of a request, some 10 000 rows; a larger one is answered by 413.
MAX_BYTES = 1 << 20


def answer(scorer: Scorer, body: bytes | str) -> list[dict[str, Any]]:
    """Predict rows, each a JSON object with the columns by name; ValueError says what
    is wrong.
    """
    try:
        rows = json.loads(body)
        if (
            not isinstance(rows, list)
            or not all(isinstance(row, dict) for row in rows)
            or not rows
        ):
            raise ValueError(
                "rows: expected a list of at least one object with columns by name."
            )
        return predict_table(scorer, pd.DataFrame(rows)).to_dict("records")
    except (OverflowError, RecursionError) as error:
        raise ValueError(
            f"rows: a number is too large, or objects too deep: {error}."
        ) from error


def create_app(folder: str) -> Any:
    from flask import Flask, jsonify, request

    app, scorer = Flask(__name__), load_scorer(folder)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BYTES

    @app.post("/predict")
    def predict() -> Any:
        try:
            return jsonify(answer(scorer, request.get_data()))
        except ValueError as error:
            return jsonify({"error": str(error)}), 422

    return app
