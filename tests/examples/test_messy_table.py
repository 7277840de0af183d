"""The messy table of the documentation is read without a word about it."""

from pathlib import Path

import pytest
from helpers import load_example

from gpflow_pep.compare import clean, read_table


def test_messy_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "flats.csv", tmp_path / "new.csv"
    example = load_example("messy_table.py")
    monkeypatch.setattr("sys.argv", ["messy_table.py", str(old), str(new)])
    example.main()
    table = read_table(old)
    assert table.attrs == {"sep": ";", "decimal": ",", "encoding": "cp1252"}
    X, y, kind, *_ = clean(table, "price")
    assert list(X) == ["region", "area", "rooms", "heating", "sold", "visits"]
    assert set(X["region"]) == set(example.REGIONS)
    assert kind == "numbers" and len(y) == 237 and X["area"].isna().sum() > 10
    assert set(X) <= set(read_table(new)) and len(read_table(new)) == 20
    monkeypatch.setattr("sys.argv", ["messy_table.py"])
    with pytest.raises(SystemExit, match="expected two"):
        example.main()
