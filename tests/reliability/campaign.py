"""What the campaign tried and how often it passed: the rows of the table of
docs/performance.rst.

A section is a module of this folder, named by the first paragraph of its docstring; a
row is a test, named in the same way. A test tells of each case that it tries::

    def test_predictions(trial: Trial, size: Size) -> None:
        "Predictions from threads"
        for name in names[: size(quick=2, full=20)]:
            # A case counts; an exception is a failure, and the next case follows.
            with trial.case(name):
                ...
        trial.note("A line that is printed below the row.")

Tests of the same name are one row, such as those of a parametrised test.
"""

import dataclasses
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings

#: How many cases to try, by the size of the campaign: ``size(quick=3, full=200)``.
Size = Callable[..., int]
SIZES = ("quick", "full", "long")
#: Failures of a row that are printed.
SHOWN = 10
#: Characters of a line, before its numbers.
WIDTH = 74


@dataclasses.dataclass
class Trial:
    """Cases that were tried under one name."""

    section: str
    what: str
    tried: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> int:
        return self.tried - len(self.failures)

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """Try one; where it raises, it failed, and the campaign goes on."""
        self.tried += 1
        try:
            yield
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            self.failures.append(f"{name}: {type(error).__name__}: {said}")

    def note(self, text: str) -> None:
        """Print a line below the row."""
        self.notes.append(text)

    def skip(self, reason: str) -> None:
        """Describe what was not tried, and why."""
        self.skipped.append(reason)

    def join(self, other: "Trial") -> None:
        """Add what was tried under the same name elsewhere."""
        for name in ("tried", "failures", "notes", "skipped", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def drawing(max_examples: int) -> settings:
    """The same so many examples of hypothesis in every run."""
    options = {"deadline": None, "database": None, "derandomize": True}
    options |= {
        "suppress_health_check": list(HealthCheck),
        "report_multiple_bugs": False,
    }
    return settings(max_examples=max_examples, **options)


def size_of(name: str) -> Size:
    """Choose numbers by one of :data:`SIZES`; ``long`` is ``full`` where nothing else
    is said.
    """

    def size(*, quick: int, full: int, long: int | None = None) -> int:
        return {"quick": quick, "full": full, "long": full if long is None else long}[
            name
        ]

    return size


def table(trials: list[Trial]) -> str:
    """Print what was tried, how many, how many passed, and what is to be said of it."""
    rows: dict[tuple[str, str], Trial] = {}
    for trial in trials:
        key = trial.section, trial.what
        rows.setdefault(key, Trial(*key)).join(trial)
    lines = [f"{'what was tried':{WIDTH}}{'tried':>7}{'passed':>8}{'seconds':>9}"]
    section = ""
    for row in sorted(rows.values(), key=lambda row: row.section):
        if row.section != section:
            section = row.section
            lines += ["", *textwrap.wrap(section, WIDTH, subsequent_indent="  ")]
        *before, last = textwrap.wrap(
            row.what, WIDTH - 1, initial_indent="  ", subsequent_indent="    "
        )
        numbers = f"{row.tried:7d}{row.passed:8d}{row.seconds:9.0f}"
        lines += [*before, f"{last:{WIDTH}}{numbers}"]
        lines += [f"      {note}" for note in row.notes]
        lines += [f"      not tried: {reason}" for reason in row.skipped]
        lines += [f"      FAILED {failure}" for failure in row.failures[:SHOWN]]
        more = len(row.failures) - SHOWN
        lines += [f"      and {more} more"] if more > 0 else []
    total = [
        sum(getattr(row, name) for row in rows.values()) for name in ("tried", "passed")
    ]
    seconds = sum(row.seconds for row in rows.values())
    return "\n".join(
        [*lines, "", f"{'all':{WIDTH}}{total[0]:7d}{total[1]:8d}{seconds:9.0f}", ""]
    )
