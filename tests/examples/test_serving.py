"""The REST endpoint of the documentation, with its web framework where that is
installed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import EXAMPLES, load_example
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline

from gpflow_pep.estimators import PEPRegressor, export_numpy
from gpflow_pep.scoring import load_scorer, version_of
from gpflow_pep.tables import Format, TableEncoder

AREA = np.linspace(30.0, 140.0, 20)
FLATS = pd.DataFrame({"area": AREA, "region": ["Nord", "Ost"] * 10})
ROWS = [
    {"area": 71.5, "region": "Ost"},
    {"region": "Mars", "area": 1000.0},
    {"area": 50.0},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a trained model."""
    path = tmp_path_factory.mktemp("serving") / "scorer"
    encoder = TableEncoder({"area": Format("number"), "region": Format("text")})
    options = {"num_inducing": 5, "alpha": 0.5, "max_iterations": 3, "random_state": 0}
    model = make_pipeline(encoder, PEPRegressor(**options))
    export_numpy(path, model.fit(FLATS, 2.0 * AREA))
    return path


def check_answer(found: Any, folder: Path) -> None:
    scorer = load_scorer(folder)
    mean, sd = scorer.predict(pd.DataFrame(ROWS), return_std=True)
    assert_allclose([row["mean"] for row in found], mean)
    assert_allclose([row["sd"] for row in found], sd)
    strange = "area is above all; region 'Mars' is new; far from all training rows"
    remarks = ["", strange, "region is missing"]
    assert [row["unusual"] for row in found] == remarks


def test_the_answer_without_a_framework(folder: Path) -> None:
    """And what it imports: the packages of the Dockerfile, and what these need."""
    code = (
        "import json, sys\nfrom examples.serving.app import answer\nfrom"
        " gpflow_pep.scoring import"
        " load_scorer\nprint(json.dumps(answer(load_scorer(sys.argv[1]),"
        " sys.argv[2])))\nslow = {'tensorflow', 'gpflow', 'sklearn', 'click', 'rich',"
        " 'check_shapes', 'flask'}\nassert not slow & {*sys.modules}, slow &"
        " {*sys.modules}\n"
    )
    command = [sys.executable, "-c", code, str(folder), json.dumps(ROWS)]
    answer = subprocess.check_output(command, cwd=EXAMPLES.parent, text=True)
    check_answer(json.loads(answer), folder)


def test_rows_that_are_refused(folder: Path) -> None:
    answer = load_example("serving/app.py").answer
    scorer = load_scorer(folder)
    for rows in ({"area": 1.0}, [], [1.0]):
        with pytest.raises(ValueError, match="expected a list of at least one object"):
            answer(scorer, json.dumps(rows))
    for body in ("", "{", "area=1", b"\xff"):
        with pytest.raises(ValueError, match=r"body: got text that is not JSON \("):
            answer(scorer, body)
    with pytest.raises(ValueError, match="no column 'region'"):
        answer(scorer, '[{"area": 1.0}]')
    with pytest.raises(ValueError, match=r"'area': got 'true' in row 1 .*a number"):
        answer(scorer, json.dumps([ROWS[0], {"area": True, "region": "Ost"}]))
    with pytest.raises(
        ValueError, match=r"got id, regoin, expected .* Did you mean 'region'\?"
    ):
        answer(scorer, json.dumps([ROWS[0], {"area": 1.0, "regoin": "Ost", "id": 3}]))
    (word,) = answer(scorer, '[{"area": 71.5, "region": false}]')
    assert word["unusual"] == "region 'false' is new"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[1",
        '[{"area": 1' + "0" * 400 + ', "region": "Ost"}]',
        "[" * 100_000,
        '[{"area": ' + "9" * 5000 + "}]",
        '[{"area": ' + "[" * 100_000 + "]" * 100_000 + "}]",
    ],
)
def test_bodies_that_are_refused(folder: Path, body: str) -> None:
    """By the error that the endpoint answers by 422, whatever a stranger sends."""
    with pytest.raises(ValueError):
        load_example("serving/app.py").answer(load_scorer(folder), body)


def test_it_imports_public_names_alone() -> None:
    assert "gpflow_pep.engine" not in (EXAMPLES / "serving" / "app.py").read_text()


def test_the_container_is_pinned_and_without_root() -> None:
    text = (EXAMPLES / "serving" / "Dockerfile").read_text()
    assert re.search(r"^FROM python:\d+\.\d+\.\d+-slim-\w+$", text, re.M)
    assert "--constraint constraints.txt numpy scipy pandas" in text
    assert re.search(r"^USER app$.*^CMD", text, re.M | re.S)


def test_the_endpoint(folder: Path) -> None:
    pytest.importorskip("flask")
    client = load_example("serving/app.py").create_app(str(folder)).test_client()
    response = client.post("/predict", json=ROWS)
    assert response.status_code == 200
    check_answer(response.get_json(), folder)
    assert response.headers["Model-Version"] == version_of(folder)
    health = client.get("/health")
    assert health.get_json() == {"status": "ok", "model": version_of(folder)}
    large = client.post("/predict", data=b"[" + b" " * (1 << 20) + b"]")
    assert large.status_code == 413
    refused = client.post("/predict", json=[{"area": "large", "region": "Ost"}])
    assert refused.status_code == 422 and "column 'area'" in refused.get_json()["error"]
