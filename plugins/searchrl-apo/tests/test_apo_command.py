"""`searchrl apo`: a run from its plan to its end, broken off and continued, and wrong options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from features import SENTENCES, chance, make_start
from fixtures.openai_server import OpenAIServer
from searchrl_apo.evaluation import Evaluator
from searchrl_apo.journal import Journal

from searchrl import Run
from searchrl.cli import main

FEATURES = Path(__file__).parent / "features.py"
ENV = ["--plugin", str(FEATURES), "--env", "features", "--set", "reward=em"]
SMALL = ["--set", "eval.num_tasks=20", "--set", "eval.num_tasks_during=20"]
SHORT = ["--budget", "300"]
AT_URL = ["--editor", "endpoint:http://localhost:1/v1", "--set", "editor.model=x", "--set"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("start.txt").write_text(make_start(1), "utf-8")
    Path("list.txt").write_text(SENTENCES, "utf-8")
    Path("empty.txt").touch()
    return tmp_path


def words(*more: str) -> list[str]:
    given = ["--policy", "scripted", "--budget", "700", "--sentences", "list.txt"]
    return ["apo", *ENV, *SMALL, *given, "--set", "protocol.instruction=@start.txt", *more]


def run(*more: str) -> Result:
    return CliRunner().invoke(main, ["--plugin", "searchrl_apo", *words(*more)])


def read(folder: str) -> list[bytes]:
    names = ("journal.jsonl", "candidates.json", "instruction.txt", "summary.json")
    return [(Path(folder) / name).read_bytes() for name in names]


def test_a_run_improves_the_instruction_and_looks_like_any_run() -> None:
    with_tools = run("--set", "protocol={name: tool-call, instruction: null}", "--dry-run").stdout
    assert "{tools}" in with_tools and not Path("runs").exists()
    plan, said = run("--dry-run"), run("--run-dir", "a")
    assert said.exit_code == 0 and said.stdout.startswith(plan.stdout), said.output
    assert "every edit keeps <think> </think> <search>" in said.stdout
    assert "at most 660: 20 for the first instruction, then as many rounds as that" in said.stdout
    best, first = Path("a/instruction.txt").read_text("utf-8"), make_start(1)
    assert chance(best) > chance(first) and "tokens" not in said.output
    opened, tree = Run.open("a"), json.loads(Path("a/candidates.json").read_bytes())
    assert opened.summary["before"]["em"]["n"] == 20 and opened.summary["paired"]["em"]["low"] > 0
    for phase, text in (("before", first), ("after", best)):
        rows = list(opened.rollouts(phase))
        assert {row["task"]["split"] for row in rows} == {"test"} and len(rows) == 20
        assert opened.summary[phase]["em"]["value"] == sum(row["reward"] for row in rows) / 20
        (node,) = [one for one in tree["nodes"] if one["text"] == text.strip()]
        assert node["figures"]["test"]["n"] == node["figures"]["validation"]["n"] == 20
    rows = Path("a/journal.jsonl").read_text("utf-8").splitlines()
    played = [json.loads(row)["key"] for row in rows]
    assert len(played) == len(set(played)) <= 700 - 2 * 20
    shown = CliRunner().invoke(main, ["runs", "a"]).stdout
    assert "apo features, scripted" in shown and "finished" in shown
    assert run("--resume", "a").exit_code == 2


@pytest.mark.parametrize("optimizer", ["apo", "gepa"])
def test_a_run_that_was_killed_goes_on_to_the_same_end(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of a row."""
    pytest.importorskip(optimizer if optimizer == "gepa" else "searchrl_apo")
    chosen, put, killed = ["--optimizer", optimizer, *SHORT], Journal.put, [0]

    def put_or_die(journal: Journal, rows: dict[str, object]) -> None:
        if rows and len(journal) >= killed[0]:
            if journal:
                with Path("broken/journal.jsonl").open("ab") as file:
                    file.write(b'{"key": "c3 valid')
            raise SystemExit(9)
        put(journal, rows)

    assert run(*chosen, "--run-dir", "whole").exit_code == 0
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "put", put_or_die)
        assert run(*chosen, "--run-dir", "broken").exit_code == 9
        assert "--resume broken" in run(*chosen, "--run-dir", "broken").stderr
        killed[0] = 60
        assert run(*chosen, "--resume", "broken").exit_code == 9
    for more, key in ((["--set", "seed=5"], "seed"), (["--budget", "350"], "budget")):
        changed = run(*chosen, "--resume", "broken", *more)
        assert changed.exit_code == 2 and f"'{key}' is not what it began with" in changed.stderr
    said = run(*chosen, "--resume", "broken")
    assert said.exit_code == 0, said.output
    assert read("broken") == read("whole")


def test_test_tasks_are_played_once_over_ctrl_c_too(monkeypatch: pytest.MonkeyPatch) -> None:
    play, played = Evaluator.play, list[str]()

    def play_or_stop(evaluator: Evaluator, text: str, split: str, tasks: range) -> object:
        played.append(split)
        if played.count("test") == 2:
            raise KeyboardInterrupt
        return play(evaluator, text, split, tasks)

    monkeypatch.setattr(Evaluator, "play", play_or_stop)
    assert run(*SHORT, "--run-dir", "a").exit_code != 0
    assert run(*SHORT, "--resume", "a").exit_code == 0
    assert played.count("test") == 3
    assert [len(list(Run.open("a").rollouts(one))) for one in ("before", "after")] == [20, 20]


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(folder: Path) -> None:
    code = "from searchrl.cli import main; main()"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, "--plugin", "searchrl_apo"]
    longer = ["--budget", "700"]  # not over before the signal comes
    command += words("--run-dir", "a", *longer)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stderr=subprocess.PIPE,
        # As from a terminal: a shell ignores SIGINT for what runs in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while process.poll() is None and not Path("a/candidates.json").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode()
    assert process.returncode == 130 and "stopped; go on with the same options" in said
    assert "stopped" in CliRunner().invoke(main, ["runs", "a"]).stdout
    assert "--resume a" in said and run("--resume", "a", *longer).exit_code == 0


def test_a_model_behind_an_address_is_critic_and_editor(folder: Path) -> None:
    def model(body: dict[str, object]) -> str:
        text = str(body["messages"]).replace("‹", "<").replace("›", ">")
        assert "Is train " in text
        kept = make_start(1).replace("Never search twice.", "Read every passage.")
        return f"It never reads. {len(text)}\n{kept} Look at {len(text)} things."

    with OpenAIServer(model) as server:
        editor = ["--editor", f"endpoint:{server.url}", "--set", "editor.cache=off"]
        toy = [*editor, "--set", "editor.model=toy"]
        said = run(*toy, "--run-dir", "a", "--budget", "1200")
        assert said.exit_code == 0, said.output
        assert (
            "tokens (editor): no limit is set: give one with --set editor.max_tokens=N"
            in said.output
        )
        spent = run(*toy, "--set", "editor.max_calls=2", "--run-dir", "b")
    assert "Read every passage." in Path("a/instruction.txt").read_text("utf-8")
    assert spent.exit_code == 4 and "max_calls = 2" in spent.stderr
    assert "--resume b" in spent.stderr and Path("b/journal.jsonl").read_text().count("\n") > 20
    other = run(*editor, "--set", "editor.model=other", "--resume", "b")
    assert other.exit_code == 2 and "'editor.model' is not what it began" in other.stderr
    unnamed = run(*editor, "--run-dir", "c")
    assert unnamed.exit_code == 2 and "--set editor.model=NAME" in unnamed.stderr


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--budget", "100"], "--budget 100 pays for no round: that takes 148 episodes"),
        (["--sentences", "empty.txt"], "it holds no sentence; expected one a line"),
        (["--resume", "nowhere"], "there is no run folder 'nowhere'"),
        (["--set", "eval.split=train"], "eval.split = train"),
        (["--set", "editor.model=x"], '--set editor = {"model": "x"}: only --editor endpoint'),
        ([*AT_URL, "editor.zzz=3"], "editor.zzz: Extra inputs are not permitted. Known: api"),
        ([*AT_URL, "editor.max_calls=-3"], "editor.max_calls = -3: Input should be greater"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_written(more: list[str], text: str) -> None:
    said = run(*more)
    assert said.exit_code == 2 and text in " ".join(said.stderr.split()), said.output
    assert not Path("runs").exists()
