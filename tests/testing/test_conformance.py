"""What a name or a file means, and what a report says of what cannot be checked."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from searchrl.errors import ConfigError, PluginError, UnknownNameError
from searchrl.plugins import Registry, load_plugins
from searchrl.testing.conformance import (
    CHECKED,
    check_entry,
    criteria_of,
    find_entries,
    find_failures,
)
from searchrl.testing.criteria import TABLE, Criterion, Problem, Report, Status, run_criteria
from searchrl.testing.kit.subject import Subject

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
SOUND = str(FIXTURES / "sound" / "env.py")

Write = Callable[[str], str]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins([SOUND], entry_points=False)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a plugin file that begins with the usual imports; returns its path."""

    def write(code: str) -> str:
        path = tmp_path / "plugin.py"
        path.write_text(f"import click\nfrom searchrl import hookimpl\n{code}", encoding="utf-8")
        return str(path)

    return write


def names(registry: Registry, what: str, kind: str = "") -> list[tuple[str, str]]:
    return [
        (entry.kind, entry.name + entry.argument) for entry in find_entries(registry, what, kind)
    ]


@pytest.mark.parametrize(
    ("what", "kind", "expected"),
    [
        ("regulations", "", [("env", "regulations")]),
        ("env:regulations", "", [("env", "regulations")]),
        ("searchrl:em", "", [("reward", "em")]),
        ("env:capitals", "", [("env", "capitals")]),
        ("gym:FrozenLake-v1", "", [("env", "gym:FrozenLake-v1")]),
        ("env", "", [("reward", "env")]),
        (SOUND, "", [("env", "capitals")]),
        (SOUND, "env", [("env", "capitals")]),
    ],
)
def test_a_name_means_what_is_registered_under_it(
    registry: Registry, what: str, kind: str, expected: list[tuple[str, str]]
) -> None:
    assert names(registry, what, kind) == expected


def test_a_name_of_two_kinds_means_both(write: Write) -> None:
    path = write(
        "@hookimpl\ndef register_envs(register):\n    register('twin', 'm:a')\n"
        "@hookimpl\ndef register_protocols(register):\n    register('twin', 'm:a')\n"
    )
    registry = load_plugins([path], entry_points=False)
    assert names(registry, "twin") == [("env", "twin"), ("protocol", "twin")]
    assert names(registry, "twin", "protocol") == [("protocol", "twin")]
    assert names(registry, "plugin") == [("env", "twin"), ("protocol", "twin")]


def test_unknown_names_and_kinds_are_refused_with_near_matches(registry: Registry) -> None:
    with pytest.raises(UnknownNameError, match=r"'regulatons'\. Did you mean 'regulations'"):
        find_entries(registry, "regulatons")
    with pytest.raises(ConfigError, match=r"no kind 'envs' to check\. Did you mean 'env'\?"):
        find_entries(registry, "regulations", "envs")
    with pytest.raises(PluginError, match=r"env\.py registers no reward"):
        find_entries(registry, SOUND, "reward")


def test_a_file_that_cannot_be_loaded_is_a_failure_with_its_line() -> None:
    path = str(FIXTURES / "plugins" / "hook_raises.py")
    registry = load_plugins([path], entry_points=False)
    (failure,) = find_failures(registry, path)
    assert (failure.file, failure.line) == (path, 7) and find_entries(registry, path) == ()
    assert find_failures(registry, "regulations") == ()


def test_what_a_lazy_string_cannot_load_is_the_first_finding(write: Write) -> None:
    path = write("@hookimpl\ndef register_envs(register):\n    register('gone', 'no_such:thing')\n")
    registry = load_plugins([path], entry_points=False)
    report = check_entry(registry, registry.get("env", "gone"))
    first, *others = report.results
    assert first.number == "E1" and "no_such" in first.findings[0].what
    assert (first.findings[0].file, first.findings[0].line) == (path, 5)
    assert {other.status for other in others} == {Status.NOT_APPLICABLE}


def test_settings_that_a_factory_does_not_take_are_the_callers_mistake(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="'max_turn'. Did you mean 'max_turns'"):
        check_entry(registry, registry.get("env", "regulations"), {"max_turn": 3})


def check_only(write: Write, code: str) -> Report:
    path = write(code)
    registry = load_plugins([path], entry_points=False)
    (entry,) = find_entries(registry, path)
    return check_entry(registry, entry)


KEEPS_QUERY = """
import time
class Keeps:
    def __init__(self, passages):
        self.passages = passages
    def search(self, queries, k):
        self.queries = queries
        time.sleep(0.002)
        return [
            [p for p in self.passages if q.lower() in p.text.lower()][:k] for q in self.queries
        ]

@hookimpl
def register_retrievers(register):
    register('keeps', Keeps, concurrent=CONCURRENT)
"""


@pytest.mark.parametrize("concurrent", [True, False])
def test_what_takes_one_call_at_a_time_need_not_bear_threads(
    write: Write, concurrent: bool
) -> None:
    report = check_only(write, KEEPS_QUERY.replace("CONCURRENT", str(concurrent)))
    (result,) = (result for result in report.results if result.number == "R11")
    if concurrent:
        (finding,) = result.findings
        assert "asked while other threads ask" in finding.what
        assert "or register it with concurrent=False" in finding.fix
    else:
        assert result.status is Status.NOT_APPLICABLE and "concurrent=False" in result.note


GENERATOR = (
    "class Generator:\n"
    "    def __init__(self, policy, sampling, *, num_slots, max_length): ...\n"
    "    def open(self, prompt_ids, n, rng_keys, experts=None): ...\n"
    "    def submit(self, handle, append_ids, stops, max_tokens): ...\n"
    "    def poll(self): ...\n"
    "    def close(self, handle): ...\n"
    "    def sync(self, policy): ...\n"
    "@hookimpl\ndef register_generators(register):\n    register('mine', Generator)\n"
)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("    def poll(self): ...\n", "", 3, "no method poll()"),
        ("max_tokens): ...", "temperature, max_tokens): ...", 6, "submit(self, handle"),
    ],
)
def test_fault_of_a_generator_is_found(write: Write, old: str, new: str, line: int, message: str):
    report = check_only(write, GENERATOR.replace(old, new))
    (failed,) = report.failed
    (finding,) = failed.findings
    assert (failed.number, finding.line) == ("G2", line) and message in finding.what


def test_a_generator_is_not_run_and_the_report_says_so(write: Write) -> None:
    report = check_only(write, GENERATOR)
    assert report.is_good and report.results[-1].status is Status.NOT_APPLICABLE
    assert "takes a model" in report.results[-1].note


@pytest.mark.thorough
def test_an_environment_that_is_acted_in_is_held_to_the_same(registry: Registry) -> None:
    report = check_entry(registry, registry.get("env", "gym:FrozenLake-v1"))
    assert report.is_good, report.failed
    assert report.name == "gym:FrozenLake-v1"


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


def test_every_row_of_the_table_has_a_check() -> None:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    checked = {one.number for kind in CHECKED for one in criteria_of(kind)}
    assert sorted(table) == sorted(checked)
    needed = {number for row in table.values() for number in row.get("needs", "").split()}
    assert needed <= {*table} and all(row["title"] and row["why"] for row in table.values())


def test_an_error_is_reported_once_by_the_criterion_that_looks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "protocol.py"
    sound = (FIXTURES / "sound" / "protocol.py").read_text(encoding="utf-8")
    always = "        raise LookupError('no tags')\n        blocks = BLOCK"
    path.write_text(sound.replace("        blocks = BLOCK", always), encoding="utf-8")
    registry = load_plugins([str(path)], entry_points=False)
    report = check_entry(registry, registry.get("protocol", "colon"))
    failed = {result.number: result for result in report.failed}
    assert {*failed} == {"P2"}
    assert {finding.line for r in failed.values() for finding in r.findings} == {
        path.read_text(encoding="utf-8").splitlines().index("        raise LookupError('no tags')")
        + 1
    }
    notes = {r.number: r.note for r in report.results if r.status is Status.NOT_APPLICABLE}
    assert notes["P3"] == notes["P9"] == "P2 does not hold"


def test_what_hangs_is_found_at_its_line_and_the_rest_is_not_begun(write: Write) -> None:
    path = write(
        "import time\n"
        "class Slow:\n"
        "    name = instruction = 'slow'\n"
        "    stops = ('x',)\n"
        "    def parse(self, text):\n"
        "        time.sleep(30)\n"
        "@hookimpl\ndef register_protocols(register):\n    register('slow', Slow)\n"
    )
    registry = load_plugins([path], entry_points=False)
    entry = registry.get("protocol", "slow")
    parse, *others = run_criteria(
        [Criterion("X1", "reads", "", hang), Criterion("X2", "begins", "", begin)],
        entry.load()(),
        file=path,
        line=entry.line,
        timeout_s=0.2,
    )
    (finding,) = parse.findings
    assert (finding.file, finding.line) == (path, 8)
    assert finding.what == "it did not finish within 0.2 s"
    assert others[0].status is Status.NOT_APPLICABLE
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


@pytest.mark.parametrize("examples", [OWN, "examples = ('H2O',)", ""])
def test_a_judge_of_a_domain_of_its_own_brings_its_own_cases(write: Write, examples: str) -> None:
    report = check_only(write, FORMULAS.replace("EXAMPLES", examples))
    failed = {OWN: [], "": ["V5"]}.get(examples, ["V1"])
    assert [result.number for result in report.failed] == failed, report.failed


def test_answers_that_are_nearly_right_and_choices_in_the_prompt_are_no_fault(write: Write) -> None:
    """An honest environment: "Yorkshire" also answers "York", and each prompt offers two places."""
    path = write(
        "from searchrl.core.episode import Task\n"
        "from searchrl.envs.text import TextEnv\n"
        "class Choosing(TextEnv):\n"
        "    name = 'choosing'\n"
        "    def __init__(self, **named):\n"
        "        super().__init__(matches=lambda said, gold: gold in said, **named)\n"
        "    def num_tasks(self, split):\n"
        "        return 3\n"
        "    def make_task(self, split, index):\n"
        "        pairs = [('Yorkshire', 'Rome'), ('York', 'Bath'), ('Lima', 'Quito')]\n"
        "        gold, other = (f'{split}-{name}' for name in pairs[index])\n"
        "        asked = f'{gold} or {other}' if index % 2 else f'{other} or {gold}'\n"
        "        question = f'Which is it, {asked}?'\n"
        "        return Task(f'{split}-{index}', split, index, question, answers=(gold,))\n"
        "@hookimpl\ndef register_envs(register):\n    register('choosing', Choosing)\n"
    )
    registry = load_plugins([path], entry_points=False)
    subject = Subject.of(registry, registry.get("env", "choosing"))
    both = [one for one in criteria_of("env") if one.number in ("E17", "E21")]
    results = run_criteria(both, subject, file=path, line=1)
    assert [(one.findings, one.note) for one in results] == [((), ""), ((), "")]
