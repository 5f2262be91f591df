"""`sft` as a program: scripted demonstrations or traces, exact resume, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from train_toy import TOY_PLUGIN, Crash, PowerCut, assert_same_learning, layered, metrics_of

from searchrl.core.trajectory import TurnStop
from searchrl.engine.learning.checkpoint import list_checkpoints, read_state
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.errors import ChangedError, ConfigError, DataError, RunInUseError, Stopped
from searchrl.programs.sft import sft

SCRATCH = dict(vocab_size=300, hidden_size=16, intermediate_size=32, num_layers=1, num_heads=1)
SCRATCH |= dict(num_kv_heads=1, head_dim=16, tokenizer_tasks=10)
STAGE = {"steps": 4, "batch_size": 2, "lr": 1e-2, "warmup_steps": 1}


pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("threads_restored")]


def settings(run_dir: Path, *stages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "env": {"name": "toy", "topk": 1},
        "protocol": {"name": "think-search-answer", "instruction": ""},
        "plugins": [str(TOY_PLUGIN)],
        "model": {"name": "scratch", "scratch": SCRATCH, "max_context": 256},
        "rollout": {"max_turn_tokens": 60, "max_total_tokens": 300},
        "eval": {"num_tasks": 1, "forced": False},
        "sft": {"stages": [STAGE | dict(stage) for stage in stages or ({},)]},
        "num_threads": 1,
        "device": "cpu",
        "run_dir": str(run_dir),
    }
    env = {"env": more.pop("env")} if "env" in more else {}
    return layered(base, more) | env


def test_two_runs_of_one_seed_are_identical_and_stages_follow_each_other(tmp_path: Path):
    stages = ({"loss_on": "all"}, {"mix": {"guesser": 1.0}, "lr": 1e-3, "steps": 2})
    runs = [sft(settings(tmp_path / name, *stages)) for name in ("a", "b")]
    assert_same_learning(*runs)
    rows = [row for row in metrics_of(runs[0]) if row["phase"] == "sft"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    rates = [row["lr"]["value"] for row in rows]
    assert rates[0] == pytest.approx(5e-3) and rates[1] == pytest.approx(1e-2)
    assert rates[4] == pytest.approx(5e-4)  # the second stage warms up anew
    # `all` predicts the observation too, so it has many more targets than the model wrote.
    assert rows[0]["loss"]["n"] > 2 * rows[-1]["loss"]["n"]
    assert runs[0].summary["train"] == f"searchrl train --init-from {runs[0].path}"
    other = sft(settings(tmp_path / "c", *stages, seed=1, reward="env"))
    assert [run.summary.get("headline") for run in (*runs, other)] == ["em", "em", "env"]
    assert metrics_of(other) != metrics_of(runs[0])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_resumed_it_equals_the_uninterrupted_run(micro_model: Path, tmp_path: Path, dropout: float):
    """The dropout masks of a step are drawn from the seed and the step, or this would fail."""
    model = {"name": str(micro_model), "adapter": "full"}
    if dropout:
        model |= {"adapter": "lora", "lora_r": 4, "lora_dropout": dropout}
    more: dict[str, Any] = {"model": model, "checkpoint": {"every": 2}}
    stages = ({"steps": 52, "batch_size": 1}, {"steps": 4, "mix": {"guesser": 1.0}})
    whole = sft(settings(tmp_path / "whole", *stages, **more))
    with pytest.raises(PowerCut):
        sft(settings(tmp_path / "run", *stages, **more), observer=Crash(55))
    assert list_checkpoints(tmp_path / "run")
    assert_same_learning(whole, sft(resume=tmp_path / "run"))


@pytest.mark.parametrize("step", [1, 3])
def test_error_of_anybody_keeps_the_finished_steps_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
):
    """`checkpoint.every` is 100; what was counted of the step that failed is not counted twice."""
    real = SupervisedLearner.train_step

    def train_step(learner: Any, *args: Any, **more: Any) -> Any:
        if learner.step == step:
            raise MemoryError("too long")
        return real(learner, *args, **more)

    whole = sft(settings(tmp_path / "whole"))
    heard = Crash()
    with monkeypatch.context() as patch:
        patch.setattr(SupervisedLearner, "train_step", train_step)
        with pytest.raises(MemoryError):
            config = settings(tmp_path / "run", checkpoint={"every": 100})
            sft(config, observer=heard)
    folder = tmp_path / "run"
    assert heard.notes[-1] == (
        f"everything up to step {step} is kept; continue with: searchrl sft --resume {folder}"
    )
    state = read_state(list_checkpoints(folder)[-1])
    assert (state["step"], state["demos"]) == (step, 2 * step)
    assert_same_learning(whole, sft(resume=folder))


@pytest.mark.usefixtures("unheard_signals")
def test_signal_lock_and_changed_data(tmp_path: Path):
    class Terminated(Crash):
        def step(self, step: int, max_steps: int, metrics: Mapping[str, Any]) -> None:
            if step == 2:
                with pytest.raises(RunInUseError):
                    sft(resume=tmp_path / "run")
                os.kill(os.getpid(), signal.SIGTERM)

    traces = tmp_path / "traces.jsonl"
    turns = [{"text": "<answer>me</answer>", "observation": ""}]
    rows = ({"prompt": f"Who is number {number}?", "turns": turns} for number in range(9))
    traces.write_text("".join(json.dumps(row) + "\n" for row in rows))
    heard, folder = Terminated(), tmp_path / "run"
    with pytest.raises(Stopped) as caught:
        config = settings(folder, sft={"traces": str(traces)}, checkpoint={"every": 1})
        sft(config, observer=heard)
    assert caught.value.number == signal.SIGTERM
    assert heard.notes[-1] == f"stopped after step 2; continue with: searchrl sft --resume {folder}"
    traces.write_text(traces.read_text() + "\n")
    with pytest.raises(ChangedError, match=f"the data '{traces}' was .* now"):
        sft(resume=folder)
    run = sft(resume=folder, allow_change=True)
    assert run.summary["steps"] == 4 and len(run.provenance["changes"]) == 1


@pytest.mark.parametrize(
    ("limit", "value", "tokens_left"),
    [
        ("max_turn_tokens", 25, 74),  # the expert's second turn has 26 tokens
        ("max_total_tokens", 90, 74),  # it ends at 100
        ("max_total_tokens", 70, 27),  # the observation before it ends at 74
    ],
)
def test_a_turn_that_a_limit_cut_is_left_out_and_counted(
    micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int,
    tokens_left: int,
):  # fmt: skip
    """It is no example of a turn: half a query, no closing tag."""
    learnt: list[Any] = []
    real = SupervisedLearner.train_step

    def train_step(learner: Any, trajectories: Any, *args: Any, **more: Any) -> Any:
        learnt.extend(trajectories)
        return real(learner, trajectories, *args, **more)

    monkeypatch.setattr(SupervisedLearner, "train_step", train_step)
    heard = Crash()
    stage = {"batch_size": 4, "mix": {"expert": 1.0, "guesser": 1.0}}
    model = {"name": str(micro_model), "adapter": "full"}
    run = sft(
        settings(tmp_path / "run", stage, model=model, rollout={limit: value}), observer=heard
    )
    rows = [row["cut_demos"] for row in metrics_of(run) if row["phase"] == "sft"]
    num_cut = sum(round(row["value"] * row["n"]) for row in rows)
    assert 0 < num_cut < 16 and [row["n"] for row in rows] == [4] * 4
    (told,) = [note for note in heard.notes if "cut at a token limit" in note]
    assert told.startswith(f"{num_cut} of 16 demonstrations were cut")
    assert f"rollout.{limit}={value}" in told
    assert all(one.turns for one in learnt)
    assert not [t for one in learnt for t in one.turns if t.reason is TurnStop.MAX_TOKENS]
    experts = [one for one in learnt if one.turns[0].stop - one.turns[0].start == 12]
    # What it read stays where there was room for it: context, not a target.
    assert experts and all(len(t.turns) == 1 and len(t) == tokens_left for t in experts)


LONG = json.dumps({"id": "long-one", "prompt": "q", "turns": [{"text": "word " * 500}]})


@pytest.mark.parametrize(
    ("traces", "more", "said"),
    [
        ("", {"sft": {"stages": [STAGE | {"mix": {"gueser": 1.0}}]}}, "'gueser'.*'guesser'"),
        ("", {"env": {"name": "plain"}, "reward": "env"}, "env 'plain' .* registers no script"),
        ('{"prompt": 1}\nnothing\n', {}, r"(?s)t.jsonl:1: .*t.jsonl:2: "),
        (LONG, {}, "1 traces .*rollout.max_total_tokens=300.*long-one"),
    ],
    ids=["script", "scripts", "bad", "too long"],
)
def test_what_is_refused_before_a_run_folder_is_made(
    tmp_path: Path, traces: str, more: dict[str, Any], said: str
):
    if traces:
        (tmp_path / "t.jsonl").write_text(traces)
        more = {"sft": {"traces": str(tmp_path / "t.jsonl")}}
    with pytest.raises((ConfigError, DataError), match=said):
        sft(settings(tmp_path / "run", **more))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"env": {"name": "toy-faulty", "fault": "step-raises"}}, "(?s)'toy-faulty'.*Key"),
        ({"rollout": {"max_turn_tokens": 5}}, "2 of 2. was cut at a token limit.*max_turn_tokens"),
    ],
)
def test_demonstrations_that_cannot_be_had(tmp_path: Path, more: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        sft(settings(tmp_path / "run", **more))
