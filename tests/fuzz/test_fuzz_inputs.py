"""Fuzzed input: whatever is typed or lies in a file, the answer is right or one clear message.

`pytest -m smoke tests/fuzz` tries 300 inputs, `pytest -m thorough tests/fuzz` ten thousand.
`FUZZ_SEED=…` tries others. A failure names the command line; its files are in the test's folder.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from command_line import succeed
from fuzz_commands import command_lines
from fuzz_judge import Case, judge
from fuzz_settings import config_files, set_words

SEED = os.environ.get("FUZZ_SEED", "0")

KINDS: dict[str, Callable[[Random], Iterator[Case]]] = {
    "config": config_files,
    "set": set_words,
    "command": command_lines,
}
NUM_CHUNKS = 6
THOROUGH = dict.fromkeys(KINDS, 3336)
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


@pytest.mark.smoke
@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_gets_one_clear_message(kind: str, folder: Path) -> None:
    try_out(kind, f"{kind}/{SEED}", 100, folder)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_bad_inputs_get_one_clear_message_each(
    kind: str, chunk: int, folder: Path
) -> None:
    assert sum(THOROUGH.values()) >= 10_000
    try_out(kind, f"{kind}/{SEED}/{chunk}", THOROUGH[kind] // NUM_CHUNKS, folder)
