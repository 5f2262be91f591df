"""Every file of a run, damaged in every way: no command ends in a traceback or is silently wrong.

Silent means: a command says nothing of the damage, and what it does differs from what it does with
the whole run. A file that a command does not read changes nothing for it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import call
from damage import DAMAGES, without_overrides
from reseal import unfinish

from searchrl.errors import DamagedError
from searchrl.run_folder import Run
from searchrl.trackers.rows import read_rows

pytestmark = pytest.mark.usefixtures("threads_restored")

WIDE = {"COLUMNS": "4000"}
_TIMES = re.compile(r"\d+(\.\d+)?( ?ms| ?s\b| min| tokens/s)")
_TIMINGS = {"sample_s", "update_s", "tokens_per_s", "duration_s"}


def _digests(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _eval(run: Path) -> tuple[Result, Any]:
    result = call("eval", run, "--json", env=WIDE)
    return result, result.stdout


def _ask(run: Path) -> tuple[Result, Any]:
    result = call("ask", run, "When does the library open?", "--json", env=WIDE)
    return result, result.stdout


def _export(run: Path) -> tuple[Result, Any]:
    result = call("export", run, run.parent / "out", env=WIDE)
    return result, _digests(run.parent / "out")


def _push(run: Path) -> tuple[Result, Any]:
    result = call("push", run, "me/agent", "--dry-run", env=WIDE)
    return result, result.stdout


def _inspect(run: Path) -> tuple[Result, Any]:
    out = run.parent / "out"
    result = call("inspect", run, "--out", out, env=WIDE)
    return result, {file.name: file.read_text("utf-8") for file in sorted(out.glob("data/*.js"))}


def _list(run: Path, *flags: str) -> tuple[Result, Any]:
    result = call("runs", run, "--json", *flags, env=WIDE)
    rows = json.loads(result.stdout)["runs"] if result.stdout else []
    return result, [{k: v for k, v in row.items() if "bytes" not in k} for row in rows]


def _verify(run: Path) -> tuple[Result, Any]:
    return _list(run, "--verify")


def _play(run: Path) -> tuple[Result, Any]:
    words = ("play", "--config", run / "config.yaml", "--index", "0")
    result = call(*words, typed="a 1\n", env=WIDE)
    return result, result.stdout


def _config(run: Path) -> tuple[Result, Any]:
    words = ("train", "--config", run / "config.yaml", "--dry-run", "--json")
    return _plan(run, *words)


def _init(run: Path) -> tuple[Result, Any]:
    words = ("train", "--init-from", run, "--dry-run", "--json")
    return _plan(run, *words)


def _plan(run: Path, *words: object) -> tuple[Result, Any]:
    """A dry run: what would be done, without the memory that this machine has to spare."""
    result = call(*words, "--run-dir", run.parent / "new", env=WIDE)
    facts = json.loads(result.stdout) if result.exit_code == 0 else {}
    left_out = ("memory", "fingerprint")  # which names the folder
    return result, {key: value for key, value in facts.items() if key not in left_out}


def _resume(run: Path) -> tuple[Result, Any]:
    """Of a run that was stopped before its summary; a damaged file stays as it is."""
    with suppress(DamagedError):
        if Run(run).summary:
            unfinish(run)
    result = call("train", "--resume", run, env=WIDE)
    try:
        rows = [
            {k: v for k, v in row["metrics"].items() if k not in _TIMINGS} | {"step": row["step"]}
            for row in read_rows(run / "metrics.jsonl")
        ]
        return result, (rows, _digests(run / "policy"), Run.open(run).summary)
    except (DamagedError, OSError):  # it was refused, and is as it was
        return result, None


COMMANDS: dict[str, Callable[[Path], tuple[Result, Any]]] = {
    one.__name__[1:]: one
    for one in (
        *(_eval, _ask, _export, _push, _list, _verify, _play, _config, _init, _resume),
        _inspect,
    )
}


def judge(command: str, run: Path, file: str) -> tuple[str, Any]:
    """What a command said and did on a run whose `file` may be damaged."""
    shutil.rmtree(run.parent / "out", ignore_errors=True)
    with without_overrides():
        result, done = COMMANDS[command](run)
    text = result.output.replace(str(run), "RUN")
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        command, file, result.exception, text,
    )  # fmt: skip
    assert "Traceback" not in text, (command, file, text)
    done = json.loads(json.dumps(done).replace(str(run), "RUN").replace(str(run.parent), "PLACE"))
    seen = _TIMES.sub("TIME", json.dumps(done))
    return text, (result.exit_code, seen)


@pytest.fixture(scope="module")
def whole(
    micro_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[str, Any]]:
    """What each command does on the run as it was written."""
    seen: dict[str, tuple[str, Any]] = {}

    def judged(command: str) -> tuple[str, Any]:
        if command not in seen:
            run = tmp_path_factory.mktemp("whole") / "run"
            shutil.copytree(micro_run, run)
            seen[command] = judge(command, run, "nothing")
        return seen[command]

    return judged


def files_of(run: Path) -> list[str]:
    found = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    found.remove(".lock")  # held by a process, no part of the run
    assert {"config.yaml", "policy/checksums.json", "checkpoints/step_000001/state.json"} <= {
        *found
    }
    return found


def check(
    command: str, files: list[str], damage: str, run: Path, whole: Callable[[str], tuple[str, Any]]
) -> str:
    """Damage files, run one command: `said`, `as before`, or a failure of the test."""
    for file in files:
        DAMAGES[damage](run / file)
    text, seen = judge(command, run, files[0])
    if "damaged" in text and any(f"RUN/{file}" in text for file in files):
        return "said"
    assert seen == whole(command)[1], f"{command}, {files} {damage}: silently different\n{text}"
    return "as before"


def cells_of(run: Path, command: str) -> list[list[str]]:
    """What is damaged at once: every file alone, but those of the checkpoint before the newest.

    Only `runs` looks at those while the newest is whole (`test_damaged_resume` has it damaged). For
    all other commands they are damaged together, and nothing may change.
    """
    files = files_of(run)
    earlier = [file for file in files if file.startswith("checkpoints/step_000000/")]
    assert earlier
    if command in ("list", "verify"):
        return [[file] for file in files]
    return [[file] for file in files if file not in earlier] + [earlier]


@pytest.mark.thorough
def test_whole_run_is_called_damaged_by_no_command(whole: Any) -> None:
    for command in COMMANDS:
        text, (exit_code, _) = whole(command)
        assert exit_code == 0 and "damaged" not in text.replace('"damaged": []', ""), (
            command,
            text,
        )


@pytest.mark.smoke
def test_ten_damages_over_commands_and_files_in_turn(
    micro_run: Path, tmp_path: Path, whole: Any
) -> None:
    pairs = list(itertools.product(COMMANDS, DAMAGES))
    files = files_of(micro_run)
    said = 0
    for number in range(10):
        command, damage = pairs[number * len(pairs) // 10]
        run = tmp_path / str(number) / "run"
        shutil.copytree(micro_run, run)
        file = files[number * len(files) // 10]
        said += check(command, [file], damage, run, whole) == "said"
    assert said > 2


@pytest.mark.thorough
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_damage_is_silent(
    command: str, damage: str, micro_run: Path, tmp_path: Path, whole: Any
) -> None:
    said = 0
    for number, files in enumerate(cells_of(micro_run, command)):
        run = tmp_path / str(number) / "run"
        shutil.copytree(micro_run, run)
        outcome = check(command, files, damage, run, whole)
        assert outcome == "as before" or len(files) == 1
        said += outcome == "said"
        shutil.rmtree(run.parent)
    assert said
