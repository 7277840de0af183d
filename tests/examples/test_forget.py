"""The example that forgets rows: small, and its numbers tell the truth."""

import itertools
from pathlib import Path
from types import ModuleType

import pytest
from helpers import load_example

import gpflow_pep as pep


@pytest.fixture(scope="module")
def forget() -> ModuleType:
    return load_example("forget.py")


def test_batches_are_in_the_order_of_time(forget: ModuleType) -> None:
    batches, held_out = forget.batches_of(forget.generated(48))
    for earlier, later in itertools.pairwise(batches):
        assert earlier[0].max() < later[0].min()
    assert [len(batch[0]) for batch in batches] == [11] * 4
    assert sum(len(batch[0]) for batch in held_out) == 4


@pytest.mark.slow
def test_the_table_and_the_figure(
    forget: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    forget.ALPHAS = (0.5,)
    scores, models, batches = forget.compare(forget.generated(120), 5)
    forget.report(scores, batches)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["exact", "all", "streamed"]
    # The first batch is no different, and the last close.
    assert abs(scores["streamed 0.5"][0].log_z - scores["all rows 0.5"][0].log_z) < 1e-6
    assert abs(scores["streamed 0.5"][-1].nlpd - scores["all rows 0.5"][-1].nlpd) < 0.2
    assert isinstance(models["streamed 0.5"].remember(), pep.models.Memory)
    if pep.plotting.available():
        forget.draw(tmp_path / "figure.png", scores, models, batches)
        assert (tmp_path / "figure.png").stat().st_size > 0
