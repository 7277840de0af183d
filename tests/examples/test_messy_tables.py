"""Of each of the ten messy tables that is recognised which its statement names."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from compare.small_comparison import run
from helpers import load_example

from gpflow_pep.compare import Cleaned, Settings, clean, partition, read_table

EXAMPLE = load_example("messy_tables.py")
TABLES = {table.file: table for table in EXAMPLE.TABLES}
#: Of each table its inputs; what some note and some warning begin with or have, and how
#: many warnings there are.
EXPECTED: dict[str, tuple[str, list[str], list[str]]] = {
    "sales.xlsx": (
        "day region price",
        ["Left out 3 lines above the column names: 'Sales rep"],
        [],
    ),
    "airfoil.dat": (
        "x0 x1 x2 x3",
        ["so it is read as a row. The columns are called x0 to x4"],
        [],
    ),
    "wind.csv": (
        "time wind mass",
        [
            "'01/31/2023 01:30 PM' is 2023-01-31 13:30",
            "'mass' ('8,4 kg' is 8.4)",
            "'wind' ('7,5 m/s' is 7.5)",
        ],
        [],
    ),
    "weather.csv": (
        "temperature sun humidity",
        [
            "'temperature' (-999 in 14 rows)",
            "'sun' (-99 in 14 rows)",
            "'humidity' (9999 in 14 rows)",
        ],
        [],
    ),
    "survey.csv": (
        "smoker city age weight",
        [
            "'ill' ('no' as 'No', 'YES', 'yes' as 'Yes')",
            "121 of 210 rows have the same inputs",
        ],
        [],
    ),
    "leak.csv": (
        "area rooms tax",
        [],
        ["Column 'tax' puts the rows in the same order"],
    ),
    "pressure.csv": ("depth salt", [], ["is 386900 in row 77 (rows count from 0)"]),
    "auctions.csv": ("age size artist", [], []),
    "calls.csv": (
        "hour staff temperature",
        ["which are treated as numbers, such as counts"],
        [],
    ),
    "fraud.csv": (
        "amount hour",
        [],
        ["Rare classes of 'kind': 'fraud' (12 of 300 rows, 4.0%)"],
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("openpyxl")
    path = tmp_path_factory.mktemp("messy") / "new"
    EXAMPLE.write_tables(path)
    return path


@pytest.fixture
def argv(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *words: monkeypatch.setattr("sys.argv", [*map(str, words)])


def cleaned(folder: Path, file: str) -> Cleaned:
    data = clean(read_table(folder / file), TABLES[file].target)
    return partition._note_equal_inputs(data, Settings())


@pytest.mark.parametrize("file", EXPECTED)
def test_what_is_recognised(folder: Path, file: str) -> None:
    inputs, notes, warnings = EXPECTED[file]
    data = cleaned(folder, file)
    assert list(data.X) == inputs.split() and 150 <= len(data.X) <= 300
    assert data.kind == (
        "classes" if file in ("survey.csv", "fraud.csv") else "numbers"
    )
    for text in notes:
        assert any(text in note for note in data.notes), data.notes
    assert len(data.warnings) == len(warnings)
    for text, warning in zip(warnings, data.warnings):
        assert text in warning


@pytest.mark.slow
@pytest.mark.near_copies("wind.csv")
@pytest.mark.parametrize("file", TABLES)
def test_compared_and_predicted(folder: Path, tmp_path: Path, file: str) -> None:
    """Nothing is replaced: from the file to predictions of the same rows."""
    few = "--alphas=1", "--splits=1", "--inducing=4", "--max-iterations=2", "--jobs=1"
    target = "--target", TABLES[file].target, "--no-baselines"
    result = run("compare", folder / file, *target, *few, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for model in ("model", "scorer"):
        source = tmp_path / "out" / model, folder / file
        result = run("predict", *source, "--out", tmp_path / "predicted.csv")
        assert result.exit_code == 0, result.output
        predicted = pd.read_csv(tmp_path / "predicted.csv").drop(columns="unusual")
        assert len(predicted) >= 150 and predicted.notna().all(axis=None)


def test_values_are_those_that_were_meant(folder: Path) -> None:
    assert cleaned(folder, "weather.csv").X.isna().sum().tolist() == [14, 14, 14]
    assert set(cleaned(folder, "survey.csv").y) == {"Yes", "No"}
    times = cleaned(folder, "wind.csv").X["time"]
    moments = "01-31 13:30", "01-31 19:00", "02-01 00:30"
    assert times.iloc[:3].tolist() == [
        pd.Timestamp(f"2023-{moment}") for moment in moments
    ]
    price = cleaned(folder, "auctions.csv").y
    assert price.max() > 1e4 * price.min() > 0.0


def test_the_messy_table_of_the_documentation(tmp_path: Path, argv: Any) -> None:
    old = tmp_path / "flats.csv"
    new = tmp_path / "new.csv"
    example = load_example("messy_table.py")
    argv("messy_table.py", old, new)
    example.main()
    table = read_table(old)
    assert table.attrs == {"sep": ";", "decimal": ",", "encoding": "cp1252"}
    X, y, kind, *_ = clean(table, "price")
    assert list(X) == ["region", "area", "rooms", "heating", "sold", "visits"]
    assert set(X["region"]) == set(example.REGIONS)
    assert kind == "numbers" and len(y) == 237 and X["area"].isna().sum() > 10
    assert set(X) <= set(read_table(new)) and len(read_table(new)) == 20
    argv("messy_table.py")
    with pytest.raises(SystemExit, match="expected two"):
        example.main()


def test_the_command(
    tmp_path: Path, argv: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openpyxl")
    argv("messy_tables.py", tmp_path)
    EXAMPLE.main()
    assert {path.name for path in tmp_path.iterdir()} == set(TABLES) == set(EXPECTED)
    printed = capsys.readouterr().out
    assert all(table.statement in printed for table in TABLES.values())
    argv("messy_tables.py")
    with pytest.raises(SystemExit, match="expected one"):
        EXAMPLE.main()
