"""
A REST endpoint for what ``gpflow-pep compare`` wrote, by NumPy alone.

    flask --app 'app:create_app("pep_results/scorer")' run
    curl localhost:5000/predict --json '[{"area": 71.5, "region": "Nord"}]'
"""

from typing import Any

import pandas as pd

from gpflow_pep.compare import predict_table
from gpflow_pep.scoring import Scorer, load_scorer


def answer(scorer: Scorer, rows: Any) -> list[dict[str, Any]]:
    """Predict rows, each an object with the columns by name; ValueError says what is wrong."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not rows:
        raise ValueError("rows: expected a list of at least one object with columns by name.")
    return predict_table(scorer, pd.DataFrame(rows)).to_dict("records")


def create_app(folder: str) -> Any:
    from flask import Flask, jsonify, request

    app, scorer = Flask(__name__), load_scorer(folder)

    @app.post("/predict")
    def predict() -> Any:
        try:
            return jsonify(answer(scorer, request.get_json()))
        except ValueError as error:
            return jsonify({"error": str(error)}), 422

    return app
