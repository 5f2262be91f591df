"""A method that raises fails its own criterion, and hides no other fault of the plugin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fixtures.unsound import SOUND, fault_lines

from searchrl.testing import Report, check_plugin
from searchrl.testing.kit import fuzz

pytestmark = pytest.mark.thorough

RAISES = 'raise RuntimeError("broken")  # fault'

OWN = [
    ("env", "make_task", "E4"),
    ("env", "passages", "E11"),
    ("env", "num_tasks", "E9"),
    ("protocol", "parse", "P2"),
    ("protocol", "final_answer", "P3"),
    ("protocol", "format_score", "P3"),
    ("protocol", "render_turn", "P6"),
    ("protocol", "opening", "P7"),
    ("protocol", "neutralise", "P8"),
    ("protocol", "render_notice", "P11"),
    ("protocol", "render_observation", "P11"),
    ("reward", "__call__", "W2"),
    ("group_reward", "__call__", "W2"),
    ("judge", "judge", "V2"),
    ("judge", "rank", "V6"),
    ("judge", "estimate", "V7"),
    ("retriever", "search", "R1"),
    ("tracker", "__init__", "T1"),
    ("tracker", "log", "T2"),
    ("tracker", "close", "T1"),
    ("alarm", "__init__", "L1"),
    ("alarm", "check", "L2"),
    ("algorithm", "advantages", "A2"),
    ("algorithm", "loss", "A7"),
]
"""(kind, method, the criterion that looks at it)."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "NUM_EXAMPLES", 10)


def broken(kind: str, method: str, folder: Path, *changes: tuple[str, str]) -> Path:
    """The sound plugin of a kind, with a method that raises."""
    text = (SOUND / f"{kind}.py").read_text("utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    pattern = rf"^( *)def {method}\((?:.|\n)*?\)(?: -> [^\n]*)?:\n"
    text, count = re.subn(pattern, rf"\g<0>\1    {RAISES}\n", text, count=1, flags=re.MULTILINE)
    assert count == 1, f"{kind} has no {method}"
    path = folder / f"broken_{kind}.py"
    path.write_text(text, "utf-8")
    return path


def failures(report: Report) -> dict[str, list[str]]:
    return {r.number: [f.what for f in r.findings] for r in report.failed}


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize(("kind", "method", "own"), OWN)
def test_a_method_that_raises_fails_its_own_criterion_alone(
    kind: str, method: str, own: str, tmp_path: Path
) -> None:
    path = broken(kind, method, tmp_path)
    (report,) = check_plugin(str(path))
    found = failures(report)
    assert own in found, found
    assert any("RuntimeError: broken" in what for what in found[own]), found
    saying = {number for number, whats in found.items() if any("broken" in w for w in whats)}
    assert saying == {own}, found
    lines = {f.line for r in report.failed if r.number == own for f in r.findings}
    assert lines <= {*fault_lines(path)}, lines


NEVER = ('self.stops = ("[/ask]", "[/say]")', 'self.stops = ("[/ask]", "[/say]", "[/never]")')


@pytest.mark.parametrize(
    ("method", "own"), [(m, c) for kind, m, c in OWN if kind == "protocol" and m != "parse"]
)
def test_a_stop_that_no_turn_reaches_is_found_beside_it(
    method: str, own: str, tmp_path: Path
) -> None:
    (report,) = check_plugin(str(broken("protocol", method, tmp_path, NEVER)))
    found = failures(report)
    assert {"P4", own} <= {*found}, found
    assert any("stop string '[/never]'" in what for what in found["P4"])


TAGS = """
from searchrl import hookimpl
from searchrl.protocols import ThinkSearchAnswer


class Tags(ThinkSearchAnswer):
    def __init__(self):
        super().__init__()
        self.stops = (*self.stops, "</never>")

    def render_turn(self, action, thought=""):
        raise RuntimeError("broken")


@hookimpl
def register_protocols(register):
    register("tags", Tags)
"""


def test_a_turn_that_goes_on_after_a_stop_reaches_no_other_one(tmp_path: Path) -> None:
    """`<search>…</search><never>…</never>` parses, but sampling ends it at `</search>`."""
    path = tmp_path / "tags.py"
    path.write_text(TAGS, "utf-8")
    (report,) = check_plugin(str(path))
    found = failures(report)
    assert any("stop string '</never>'" in what for what in found["P4"]), found
    (opens,) = [r for r in report.results if r.number == "P7"]
    assert "it writes no turns" in opens.note


def test_a_parser_that_always_raises_says_nothing_else_of_its_turns(tmp_path: Path) -> None:
    (report,) = check_plugin(str(broken("protocol", "parse", tmp_path)))
    assert [*failures(report)] == ["P2"]


def test_a_method_that_raises_on_some_tasks_says_which(tmp_path: Path) -> None:
    text = (SOUND / "env.py").read_text("utf-8")
    line = "    def make_task(self, split: str, index: int) -> Task:\n"
    assert text.count(line) == 1
    fault = '        if split == "test" and index == 1:\n            raise KeyError("row")\n'
    path = tmp_path / "some.py"
    path.write_text(text.replace(line, line + fault), "utf-8")
    (report,) = check_plugin(str(path))
    whats = [what for found in failures(report).values() for what in found]
    assert whats and all("'split': 'test', 'index': 1" in what for what in whats), whats
    (first, *_) = [finding for result in report.failed for finding in result.findings]
    assert "num_tasks() may promise too many" in first.fix
