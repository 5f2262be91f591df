"""Agents nobody wrote for us act in an environment, and the policy that they ask is trained."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import gymnasium
import psutil
import pytest
from searchrl_agents.env import AgentEnv
from test_history import TEMPLATE, renderer

import searchrl
from searchrl import EnvironmentFailure, Run, SearchRLError
from searchrl.config import build_config
from searchrl.config.sft import SftStage
from searchrl.contracts import SampledTurn, Serving
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.plugins import load_plugins
from searchrl.programs.demonstrations import Demonstrator
from searchrl.programs.setup.planning import plan_run
from searchrl.protocols import ThinkSearchAnswer

CALLING = "searchrl_agents.tool_agent:act"
LOOPING = f"{Path(__file__).parent / 'looping.py'}:act"
SETTINGS: dict[str, Any] = {
    "plugins": ["searchrl_agents"],
    "env": "regulations",
    "reward": "em",
    "model": "tiny",
    "eval": {"num_tasks": 8, "forced": False},
}
# A shell script's way: the last line of standard output is the answer.
PLAIN = """
import json, os, urllib.request
task = json.loads(os.environ["SEARCHRL_TASK"])
def ask(path, body):
    head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + path
    sent = urllib.request.Request(url, json.dumps(body).encode(), head)
    return json.load(urllib.request.urlopen(sent))
messages = [{"role": "user", "content": task["question"]}]
"""
ASK = 'made = ask("/chat/completions", {"messages": messages, "max_tokens": 8})\n'


def evaluate(
    tmp_path: Path, code: str, reward: str = "em", forced: bool = False, **more: Any
) -> Any:
    """What an agent of this code reaches, and the rollouts it had."""
    file = tmp_path / "agent.py"
    file.write_text(PLAIN + code, "utf-8")
    wrapper = {"name": "agent", "command": f"{sys.executable} {file}", **more}
    return searchrl.evaluate(
        SETTINGS
        | {"wrapper": wrapper, "rollout": {"env_timeout_s": 5.0, "max_failure_frac": 0.5}}
        | {"reward": reward, "eval": {"num_tasks": 2, "forced": forced}}
    )


def test_a_loop_around_the_openai_client_is_trained_by_what_it_sampled(tmp_path: Path) -> None:
    run = searchrl.train(
        SETTINGS
        | {
            "wrapper": {"name": "agent", "command": LOOPING},
            "rollout": {"group_size": 4, "prompts_per_step": 4},
            "max_steps": 2,
            "run_dir": str(tmp_path / "run"),
        }
    )
    steps = [row for row in run.metric_rows() if row["phase"] == "train"]
    assert [row["metrics"]["mismatch_max"]["value"] <= 2e-5 for row in steps] == [True, True]
    assert {row["metrics"]["segments"]["value"] for row in steps} == {1.0}
    rows = [*Run.open(tmp_path / "run").rollouts("train")]
    assert {len(row["segments"]) for row in rows} == {1}
    for row in rows:
        assert row["segment_reasons"] == ["first"] and row["turns"]
        assert len(row["ids"]) == len(row["authors"]) and row["authors"].count("M") >= 1


def test_a_program_gives_its_answer_on_its_last_line_or_by_post(tmp_path: Path) -> None:
    told = evaluate(tmp_path, ASK + 'print("Answer:\\nmine\\n")')
    assert told.metrics["em"]["value"] == told.metrics["failed"]["value"] == 0.0
    assert {one.episode.final_answer for one in told.rollouts} == {"mine"}
    told = evaluate(tmp_path, ASK + 'ask("/searchrl/answer", {"answer": "posted"})\nprint("x")')
    assert {one.episode.final_answer for one in told.rollouts} == {"posted"}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('nothing')", "never asked the policy"),
        (ASK + "raise SystemExit('I give up')", "I give up"),
        (ASK + "import time; time.sleep(60)", "asked for nothing in"),
        ("for _ in range(9): " + ASK, "Too Many Requests"),
        ("messages = [{'role': 'x', 'content': 1}]\n" + ASK, "Bad Request"),
    ],
)
def test_a_bad_agent_is_one_failed_episode_that_says_why(
    tmp_path: Path, code: str, said: str
) -> None:
    with pytest.raises(SearchRLError, match=said):
        evaluate(tmp_path, code, max_requests=4)


def test_what_is_recorded_and_trained_is_what_was_sampled_whatever_an_agent_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parallel, compacted, retried, streamed and cut sessions; the program has 200 of them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    from audit import audit

    figures = audit(tmp_path / "run", prompts=2)
    assert figures["segments"].keys() >= {1, 2, 3} and len(figures["sessions"]) >= 4


def test_an_agent_has_no_format_to_be_judged_and_no_turn_to_be_forced(tmp_path: Path) -> None:
    with pytest.raises(SearchRLError, match=r"Leave it out: --reward em"):
        evaluate(tmp_path, "print(1)", reward="format+em")
    told = evaluate(tmp_path, ASK + "print(1)", forced=True)
    assert not {"format", "em_forced"} & told.metrics.keys()


def test_a_script_shows_how_an_agent_is_answered_and_its_turns_end_as_the_template_ends_them(
    tmp_path: Path,
) -> None:
    wrapper = {"name": "agent", "command": CALLING}
    config = build_config(SETTINGS | {"protocol": "tool-call", "wrapper": wrapper})
    policy = plan_run({"model": {"name": "tiny"}}).load_policy(trainable=False)
    worlds = make_worlds(config, load_plugins(config.plugins))
    for trajectory, is_cut in Demonstrator(config, worlds, policy, None)(SftStage(batch_size=2), 0):
        assert not is_cut and {turn.reason for turn in trajectory.turns} == {"eos"}
        said = policy.renderer.decode(trajectory.ids)
        assert said.startswith('<|user|><tools>\n{"type": "function"')
        assert "</tool_call><|endoftext|><|user|>\n<tool_response>\n" in said
        assert said.endswith("</answer><|endoftext|>")
    with pytest.raises(SearchRLError, match="leave out --policy, or the agent"):
        searchrl.evaluate(SETTINGS | {"wrapper": wrapper, "policy": "scripted"})


def still_running(file: Path) -> list[int]:
    names = {one.pid: one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])}
    return [pid for pid, words in names.items() if str(file) in words]


class Questions(gymnasium.Env[Any, Any]):
    """Always asks the same."""

    protocol = ThinkSearchAnswer()

    def reset(self, **_: Any) -> tuple[str, dict[str, Any]]:
        return "Who?", {}

    def step(self, _: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.0, True, False, {}


def test_an_episode_that_nobody_plays_any_more_ends_its_agent_at_once(tmp_path: Path) -> None:
    """The run was interrupted, say, while the agent was at work between two requests."""
    file, over = tmp_path / "agent.py", Future[None]()
    file.write_text(PLAIN + ASK + "import time; time.sleep(60)")
    env = AgentEnv(Questions(), command=f"{sys.executable} {file}")
    env.serve(Serving("g/0", renderer(), 1.0, False, 4096, 20.0, over))
    env.reset()
    threading.Timer(0.1, over.set_result, [None]).start()
    with pytest.raises(EnvironmentFailure, match="its episode was given up"):
        env.step(SampledTurn("I", (1,), (-1.0,), "max_tokens"))
    assert not still_running(file)


def test_a_thought_that_the_template_began_and_a_limit_cut_is_no_content(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text(PLAIN + ASK + 'print(json.dumps(made["choices"][0]["message"]))')
    env = AgentEnv(Questions(), command=f"{sys.executable} {file}")
    opens = renderer(
        TEMPLATE.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
    )
    env.serve(Serving("g/0", opens, 1.0, True, 4096, 20.0, Future[None]()))
    env.reset()
    answer = env.step(SampledTurn("I should", (1,), (-1.0,), "max_tokens"))[-1]["answer"]
    said = {"role": "assistant", "reasoning_content": "I should", "content": ""}
    assert json.loads(answer) == said


KILLED = """
import json, os, signal, sys
from searchrl import train
from searchrl.programs.setup.session import Session
real = Session.update
def update(self, drawn, step, *more):
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, drawn, step, *more)
Session.update = update
train(json.loads(sys.argv[1]))
"""


def training(folder: Path, command: str) -> dict[str, Any]:
    return SETTINGS | {
        "wrapper": {"name": "agent", "command": command},
        "rollout": {"group_size": 4, "prompts_per_step": 2},
        "max_steps": 4,
        "checkpoint": {"every": 2},
        "eval": {"num_tasks": 2, "forced": False},
        "run_dir": str(folder),
    }


def killed(settings: dict[str, Any]) -> None:
    words = [sys.executable, "-c", KILLED, json.dumps(settings)]
    assert subprocess.run(words, check=False).returncode == -9


@pytest.mark.slow
def test_after_a_kill_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = searchrl.train(training(tmp_path / "whole", LOOPING))
    killed(training(tmp_path / "killed", LOOPING))
    resumed = searchrl.train(resume=tmp_path / "killed")
    for run in (whole, resumed):
        assert [row["step"] for row in run.metric_rows() if row["phase"] == "train"] == [1, 2, 3, 4]
    first, second = (
        [(row["ids"], row["sampler_logp"], row["reward"]) for row in run.rollouts("train")]
        for run in (whole, resumed)
    )
    assert first == second and first
    weights = [run.path / "policy" / "model.safetensors" for run in (whole, resumed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_nobody_is_left_when_the_run_is_killed_while_agents_are_at_work(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    kill = "import psutil, time\npsutil.Process().parents()[2].kill()\ntime.sleep(60)"
    file.write_text(PLAIN + ASK + kill)
    killed(training(tmp_path / "run", f"{sys.executable} {file}"))
    until = time.monotonic() + 20
    while still_running(file):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_kill_of_an_agent_is_one_failed_episode(tmp_path: Path) -> None:
    kill = 'import sys\nopen(sys.argv[0] + ".1", "x")\nos.kill(os.getpid(), 9)'
    code = ASK + "try:\n    " + kill.replace("\n", "\n    ") + "\nexcept OSError: print(1)"
    told = evaluate(tmp_path, code)
    assert told.metrics["failed"]["value"] == 0.5
    (failure,) = [one.episode.failure for one in told.rollouts if one.episode.failure]
    assert "ended by signal 9" in failure.message
