"""What a name or a file means, what authors' tests call, and where a fault is reported."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.unsound import SOUND, fault_lines, write_unsound

from searchrl.errors import ConfigError, PluginError, UnknownNameError
from searchrl.plugins import Registry, load_plugins
from searchrl.testing import Status, assert_conforms, check_plugin
from searchrl.testing.conformance import check_entry, find_entries, find_failures
from searchrl.testing.criteria import Criterion, Problem, Report
from searchrl.testing.kit.subject import Subject
from searchrl.testing.running import run_criteria

ENV = str(SOUND / "env.py")
BROKEN = Path(__file__).resolve().parent.parent / "fixtures" / "plugins"

Write = Callable[[str], str]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins([ENV], entry_points=False)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a plugin file that begins with the usual import; returns its path."""
    path = tmp_path / "plugin.py"

    def write(code: str) -> str:
        path.write_text(f"from searchrl import hookimpl\n{code}", encoding="utf-8")
        return str(path)

    return write


def check_only(write: Write, code: str) -> Report:
    (report,) = check_plugin(write(code))
    return report


@pytest.mark.parametrize(
    ("what", "kind", "expected"),
    [
        ("env:regulations", "", [("env", "regulations")]),
        ("searchrl:em", "", [("reward", "em")]),
        ("gym:FrozenLake-v1", "", [("env", "gym:FrozenLake-v1")]),
        ("gym:http://here/x", "", [("env", "gym:http://here/x")]),
        ("env", "", [("reward", "env")]),
        (ENV, "", [("env", "capitals")]),
    ],
)
def test_a_name_means_what_is_registered_under_it(
    registry: Registry, what: str, kind: str, expected: list[tuple[str, str]]
) -> None:
    found = find_entries(registry, what, kind)
    assert [(entry.kind, entry.title) for entry in found] == expected


def test_unknown_names_and_kinds_are_refused_with_near_matches(registry: Registry) -> None:
    with pytest.raises(UnknownNameError, match="'regulations'"):
        find_entries(registry, "regulatons")
    with pytest.raises(ConfigError, match="Did you mean 'env'"):
        find_entries(registry, "regulations", "envs")
    with pytest.raises(PluginError, match=r"env\.py registers no reward"):
        find_entries(registry, ENV, "reward")


def test_a_plugin_that_cannot_be_loaded_says_why(write: Write) -> None:
    path = str(BROKEN / "hook_raises.py")
    registry = load_plugins([path], entry_points=False)
    (failure,) = find_failures(registry, path)
    assert (failure.file, failure.line) == (path, 7) and find_entries(registry, path) == ()
    with pytest.raises(PluginError, match="raises_at_import .*ModuleNotFound"):
        check_plugin(str(BROKEN / "raises_at_import.py"))
    lazy = "@hookimpl\ndef register_envs(register):\n    register('gone', 'no_such:thing')\n"
    report = check_only(write, lazy)
    first, *others = report.results
    assert "no_such" in first.findings[0].what and first.findings[0].line == 4
    assert {other.status for other in others} == {Status.NOT_APPLICABLE}


def test_settings_for_the_check_are_below_those_of_the_caller() -> None:
    registry = load_plugins(entry_points=False)
    entry = dataclasses.replace(
        registry.get("env", "regulations"), options={"check": {"max_turns": 3, "topk": 2}}
    )
    settings = Subject.of(registry, entry, {"topk": 1}).settings
    assert settings == {"max_turns": 3, "topk": 1}


def test_settings_reach_the_factory_and_wrong_ones_are_the_callers_mistake() -> None:
    with pytest.raises(ConfigError, match="'max_turn'. Did you mean 'max_turns'"):
        check_plugin("regulations", settings={"max_turn": 3})
    (report,) = check_plugin("tracker:jsonl", settings={"path": "metrics.jsonl"})
    assert {result.number for result in report.failed} == {"T1"}


def test_the_place_of_an_exception_may_be_any_file_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packaged_protocol"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from searchrl import hookimpl\n"
        "@hookimpl\ndef register_protocols(register):\n"
        "    register('packaged', 'packaged_protocol.inner:make')\n",
        encoding="utf-8",
    )
    inner = package / "inner.py"
    inner.write_text("def make():\n    raise OSError('no tags')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = load_plugins(["packaged_protocol"], entry_points=False)
    report = check_entry(registry, registry.get("protocol", "packaged"))
    (finding,) = report.failed[0].findings
    assert (finding.file, finding.line) == (str(inner), 2)


RAISES = 'raise RuntimeError("broken")  # fault'


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize(
    ("kind", "method", "own"),
    [
        ("env", "make_task", "E4"),
        ("protocol", "parse", "P2"),
        ("protocol", "render_turn", "P6"),
        ("reward", "__call__", "W2"),
        ("retriever", "search", "R1"),
        ("algorithm", "loss", "A7"),
    ],
)
def test_a_method_that_raises_is_reported_once_by_its_own_criterion(
    kind: str, method: str, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("searchrl.testing.kit.fuzz.NUM_EXAMPLES", 10)
    text = (SOUND / f"{kind}.py").read_text("utf-8")
    pattern = rf"^( *)def {method}\((?:.|\n)*?\)(?: -> [^\n]*)?:\n"
    text, count = re.subn(pattern, rf"\g<0>\1    {RAISES}\n", text, count=1, flags=re.MULTILINE)
    assert count == 1, f"{kind} has no {method}"
    path = tmp_path / f"broken_{kind}.py"
    path.write_text(text, "utf-8")
    (report,) = check_plugin(str(path))
    saying = {
        result.number: finding.line
        for result in report.failed
        for finding in result.findings
        if "RuntimeError: broken" in finding.what
    }
    assert saying == {own: fault_lines(path)[0]}


def test_what_hangs_is_found_at_its_line_and_the_rest_is_not_begun(write: Write) -> None:
    path = write(
        "import time\n"
        "class Slow:\n"
        "    def parse(self, text):\n"
        "        time.sleep(30)\n"
        "@hookimpl\ndef register_protocols(register):\n    register('slow', Slow)\n"
    )
    registry = load_plugins([path], entry_points=False)
    parse, *others = run_criteria(
        [Criterion("X1", "reads", "", hang), Criterion("X2", "begins", "", begin)],
        registry.get("protocol", "slow").load()(),
        file=path,
        line=1,
        timeout_s=0.2,
    )
    (finding,) = parse.findings
    assert (finding.file, finding.line) == (path, 5)
    assert finding.what == "it did not finish within 0.2 s"
    assert others[0].note == "not checked: X1 did not finish"


def hang(subject: Any) -> Iterator[Problem]:
    subject.parse("text")
    yield from ()


def begin(subject: Any) -> Iterator[Problem]:
    raise AssertionError("never begun")
    yield


FORMULAS = """
from searchrl.core.episode import JudgeCase, Verdict

class Formulas:
    '''Knows chemical formulas, and nothing of libraries.'''
    EXAMPLES
    def judge(self, case):
        is_right = case.answer.replace(' ', '') == 'H2O' in case.references
        return Verdict(float(is_right), 'by its letters')

@hookimpl
def register_judges(register):
    register('formulas', Formulas)
"""
OWN = "examples = (JudgeCase('Water?', 'H2 O', ('H2O',)), JudgeCase('Water?', 'CO2', ('H2O',)))"


@pytest.mark.parametrize(("examples", "failed"), [(OWN, []), ("", ["V5"])])
def test_a_judge_of_a_domain_of_its_own_brings_its_own_cases(
    write: Write, examples: str, failed: list[str]
) -> None:
    report = check_only(write, FORMULAS.replace("EXAMPLES", examples))
    assert [result.number for result in report.failed] == failed, report.failed


def test_an_unsound_plugin_fails_with_every_finding_as_its_text(tmp_path: Path) -> None:
    path = write_unsound("tracker", "truncates", tmp_path)
    with pytest.raises(AssertionError) as failure:
        assert_conforms(str(path))
    text = str(failure.value)
    assert text.startswith("tracker 'notes': T5 does not hold")
    assert f"{path}:{fault_lines(path)[0]}: made again, it emptied log.txt" in text
    assert "append to files" in text and "A resumed run" in text


def test_a_factory_without_settings_cannot_say_that_it_wants_some(write: Write) -> None:
    code = "from searchrl import ConfigError\ndef make():\n    raise ConfigError('set x')\n"
    code += "@hookimpl\ndef register_protocols(register):\n    register('odd', make)\n"
    assert check_only(write, code).failed
