"""Fuzzed input: whatever is typed or lies in a file, the answer is right or one clear message.

`pytest tests/fuzz` tries some hundreds of inputs, `pytest -m thorough tests/fuzz` ten thousand.
`FUZZ_SEED=…` tries others. A failure names the command line; its files are in the test's folder.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result
from command_line import succeed
from fuzz_commands import command_lines
from fuzz_files import handbooks, instructions, plugins, rows, traces
from fuzz_judge import MAX_LINES, Case, find_fault, judge
from fuzz_settings import config_files, expressions, schedules, set_words

SEED = os.environ.get("FUZZ_SEED", "0")

KINDS: dict[str, Callable[[Random], Iterator[Case]]] = {
    "config": config_files,
    "set": set_words,
    "expression": expressions,
    "schedule": schedules,
    "rows": rows,
    "handbook": handbooks,
    "traces": traces,
    "instruction": instructions,
    "plugin": plugins,
    "command": command_lines,
}
NUM_CHUNKS = 6
THOROUGH = dict.fromkeys(KINDS, 1020)
"""Inputs of the thorough test, a multiple of `NUM_CHUNKS` each."""


@pytest.fixture(scope="session")
def warm() -> None:
    """What the first plan imports takes its time, and none of it is the input's."""
    succeed("train", "--dry-run", "--model", "tiny")


@pytest.fixture
def folder(warm: None, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return own_folder


def try_out(kind: str, seed: str, count: int, folder: Path) -> None:
    for number, case in enumerate(itertools.islice(KINDS[kind](Random(seed)), count)):
        fault = judge(case, folder)
        shown = [word if len(word) < 200 else word[:200] + "…" for word in case.words]
        assert not fault, f"{kind} {number} of seed {seed!r}: {fault}\n{shown}"


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_gets_one_clear_message(kind: str, folder: Path) -> None:
    try_out(kind, f"{kind}/{SEED}", 40, folder)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_bad_inputs_get_one_clear_message_each(
    kind: str, chunk: int, folder: Path
) -> None:
    assert sum(THOROUGH.values()) >= 10_000
    try_out(kind, f"{kind}/{SEED}/{chunk}", THOROUGH[kind] // NUM_CHUNKS, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_most_of_the_drawn_inputs_are_different(kind: str) -> None:
    cases = list(itertools.islice(KINDS[kind](Random(f"{kind}/{SEED}")), 200))
    assert len({(case.words, tuple(sorted(case.files.items()))) for case in cases}) > 150


# --- the judge itself ------------------------------------------------------------------------


def answer(text: str, code: int = 2, error: BaseException | None = None) -> Result:
    error = error or SystemExit(code)
    return Result(CliRunner(), b"", text.encode(), b"", None, code, error)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Error: optim.lr = 'x': expected a number\n", ""),
        ("Usage: main play\n\nError: No such option: --x\n", ""),
        ("something\n", "not exactly one error"),
        ("Error: a\nError: b\n", "not exactly one error"),
        ("Error:  \n", "an empty message"),
        ("Error: a" + "\nb" * MAX_LINES, f"{MAX_LINES + 1} lines"),
        ("Error: " + "x" * 5000, "characters"),
        ("Error: got <class 'int'>\n", "insides"),
        ("Error: got <x.Y object at 0x7f>\n", "insides"),
        ("Error: 1 validation error, see https://errors.pydantic.dev\n", "insides"),
        ("Traceback (most recent call last):\nError: x\n", "insides"),
    ],
)
def test_the_judge_finds_what_is_no_clear_message(text: str, fault: str) -> None:
    found = find_fault(answer(text))
    assert (fault in found) if fault else not found


def test_the_judge_takes_no_traceback_and_no_message_without_its_subject() -> None:
    assert "a traceback: KeyError" in find_fault(answer("", 1, KeyError("x")))
    assert "names none of 'run.yaml'" in find_fault(answer("Error: wrong\n"), ("run.yaml",))


def test_the_judge_stops_what_does_not_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_judge.CPU_DEADLINE_S", 0.2)

    def spin(*words: object, typed: str = "") -> Result:
        while True:
            pass

    monkeypatch.setattr("fuzz_judge.call", spin)
    assert "it takes more than 0.2 s" in judge(Case("config", ("play",)), folder)


def test_the_judge_sees_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_judge.MAX_GROWTH_BYTES", 0)
    sizes = iter((100, 1 << 40, 1 << 40))
    monkeypatch.setattr("fuzz_judge._peak_bytes", lambda: next(sizes))
    assert "MiB of memory" in judge(Case("config", ("--version",)), folder)
