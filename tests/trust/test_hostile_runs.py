"""Hostile run folders in all commands: nothing runs, is written elsewhere, or hangs."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from fixtures.hostile_runs import ATTACKS, make_hostile, make_outside

from searchrl.plugins import load_plugins

pytestmark = [pytest.mark.usefixtures("threads_restored"), pytest.mark.timeout(600)]

SMALL = "--set rollout.prompts_per_step=1 --set eval.num_tasks=1 --set eval.forced=false"
OUT = "--run-dir {out}"

COMMANDS: dict[str, list[str]] = {
    "train": [
        "--resume {run}",
        f"--init-from {{run}} --max-steps 1 {SMALL} {OUT}a",
        f"--config {{run}}/config.yaml --max-steps 1 {SMALL} {OUT}b",
        "--init-from {run} --dry-run",
    ],
    "sft": ["--resume {run}", f"--init-from {{run}} --set sft.stages.0.steps=1 {SMALL} {OUT}c"],
    "eval": [
        f"{{run}} {SMALL} {OUT}d",
        f"--model {{run}} --env regulations {SMALL}",
        f"--config {{run}}/config.yaml {SMALL} --json",
        f"--policy scripted --against {{run}} {SMALL}",
        f"{{run}} --policy endpoint:http://127.0.0.1:9/v1 --model m {SMALL} "
        "--set endpoint.max_retries=0",
    ],
    "audit": ["--config {run}/config.yaml --out {out}h"],
    "evidence": [f"{{run}} {SMALL}"],
    "ask": ["{run} When?", "{run}/checkpoints/step_000001 When?"],
    "doctor": [f"{{run}} {SMALL}", f"--init-from {{run}} {SMALL} --json"],
    "play": ["--config {run}/config.yaml --index 0"],
    "bench": [f"--init-from {{run}} --steps 1 {SMALL}"],
    "runs": ["{run}", "{run} --json", "{run} --prune --keep 1"],
    "trust": ["{run}", "{run} --json"],
    "study": ["show {run}/config.yaml"],
    "score": ["{run} --reward em"],
    "inspect": [
        "{run} --compare {run} --out {out}g",
        "{run} --reward em --json",
    ],
    "new": ["reward of_a_stranger --force"],
    "check": ["no-such-name"],
    "config": ["seed"],
    "plugins": ["--config {run}/config.yaml"],
    "export": ["{run} {out}e", "{run} {out}f --merge"],
    "push": ["{run} me/agent --dry-run"],
}
"""How each command gets a run folder; commands without one are run inside of it."""

SMOKE = {"links", "module", "tags"}

_COMMANDING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_every_command_meets_the_hostile_runs() -> None:
    own = {e.name for e in load_plugins(entry_points=False).entries() if e.kind == "command"}
    assert COMMANDS.keys() == own, "a new command needs a line in COMMANDS"


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    def give_up(*_: Any) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        left = signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert left  # the command may have taken the error for one of its own


def picture(folder: Path) -> dict[str, str]:
    """Everything in a folder, with what it says."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else ""
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(one, marks=pytest.mark.smoke if one in SMOKE else pytest.mark.thorough)
        for one in ATTACKS
    ],
)
def test_hostile_run(
    attack: str, micro_run: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = own_folder / "outside"
    make_outside(outside)
    monkeypatch.setattr(sys, "path", [*sys.path, str(outside / "modules")])
    before = picture(outside)
    for command, lines in COMMANDS.items():
        for number, line in enumerate(lines):
            folder = own_folder / f"{command}-{number}"
            monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
            monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            run = folder / "run"
            make_hostile(attack, micro_run, run, outside)
            monkeypatch.chdir(run)
            words = line.format(run=run, out=folder / "out").split()
            with deadline(90):
                result = call(command, *words, typed="y\na nothing\n\n")
            said = (command, line, result.output[-2000:], result.exception)
            is_clean_end = result.exception is None or isinstance(result.exception, SystemExit)
            assert is_clean_end, said
            assert result.exit_code in (0, 1, 2, 3), said
            assert not _COMMANDING.search(result.output), said
            assert picture(outside) == before, said
