"""Runs whose reward is a judge: outages, budgets, time, keys, and what is said before and after."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fixtures.openai_server import Fault, OpenAIServer, Raw
from judge_models import careful, say

from searchrl import BudgetSpent, Run, evaluate, load_plugins, train
from searchrl.cli import main
from searchrl.config import build_config
from searchrl.contracts import Episode, Task
from searchrl.core.episode import FailureKind
from searchrl.engine.rollout.worlds import make_scorer, name_defaults
from searchrl.rewards.scorer import score_together
from searchrl.run_folder.changes import describe_sources

KEY = "sk-secret-0123"
TINY = {
    "model": {"name": "tiny"},
    "rollout": {"group_size": 2, "prompts_per_step": 2, "max_turn_tokens": 40},
    "eval": {"num_tasks": 2, "every": 0, "forced": False},
}


def settings(url: str, reward: str = "judge", **judge: Any) -> dict[str, Any]:
    own = {"name": "endpoint", "url": url, "model": "toy", "cache": "off", "max_retries": 1}
    return {"plugins": ["searchrl_judge"], "reward": reward, "judge": own | judge}


def scripted(url: str, num_tasks: int = 10, **judge: Any) -> dict[str, Any]:
    return settings(url, **judge) | {"policy": "scripted", "eval": {"num_tasks": num_tasks}}


LATE = Raw(b" " * 40, pause_s=0.1)
"""A reply that takes four seconds."""


@pytest.mark.parametrize("said", [Fault(500), Fault(429), "no JSON at all", LATE])
def test_an_outage_leaves_episodes_out_and_never_gives_a_zero(said: Any) -> None:
    # What cannot be read is asked for again, so one question must fail each time.
    seen: dict[str, int] = {}

    def answer(body: dict[str, Any]) -> Any:
        number = seen.setdefault(body["messages"][-1]["content"], len(seen))
        return said if number == 3 else careful(body)

    with OpenAIServer(answer) as server:
        result = evaluate(scripted(server.url, timeout_s=1.5))
    unscored = [r for r in result.rollouts if r.scored.reward is None]
    assert len(unscored) == 1
    failure = unscored[0].scored.failure
    assert failure is not None and failure.kind is FailureKind.SCORING
    assert failure.owner.startswith("reward 'judge'")
    assert result.metrics["reward"]["n"] == 9 and result.metrics["reward"]["value"] == 1


def test_a_rubric_belongs_to_the_data_of_a_run_and_a_cache_does_not(tmp_path: Path) -> None:
    rubric, cache = tmp_path / "rubric.txt", tmp_path / "c.sqlite"
    rubric.write_text("right: the same", "utf-8")
    cache.touch()
    given = settings("http://x/v1", rubric=str(rubric), cache=str(cache))
    assert list(describe_sources(build_config(given), {})["data"]) == [str(rubric)]


def test_a_budget_that_is_spent_leaves_the_rest_unscored_and_is_no_failure() -> None:
    with OpenAIServer(careful) as server:
        result = evaluate(scripted(server.url, max_calls=4, concurrency=1))
    kinds = [r.scored.failure.kind for r in result.rollouts if r.scored.failure is not None]
    assert kinds == [FailureKind.BUDGET] * 6 and len(server.bodies) == 4
    assert result.metrics["reward"]["n"] == 4


def test_a_dry_run_says_what_training_would_ask_and_asks_nothing() -> None:
    with OpenAIServer(careful) as server:
        words = ["train", "--plugin", "searchrl_judge", "--model", "tiny", "--dry-run"]
        words += ["--reward", "judge+judge_rank", "--max-steps", "10"]
        words += ["--set", "rollout.prompts_per_step=4", "--set", "rollout.group_size=3"]
        words += ["--set", "eval.forced=false", "--set", "eval.every=0"]
        words += ["--set", f"judge={{name: endpoint, url: '{server.url}', cache: off}}"]
        said = CliRunner().invoke(main, [*words, "--set", "eval.num_tasks=7"])
    assert said.exit_code == 0, said.output
    # Episodes one by one, 10 · 4 · 3 and two evaluations of 7; groups 10 · 4, and the 14 again.
    calls = 120 + 14 + 40 + 14
    assert f"judge 'endpoint' will be asked: about {calls} calls" in said.stdout
    assert not server.bodies


def test_training_stops_politely_where_the_budget_ends_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCHRL_API_KEY", KEY)
    run_dir, cache = tmp_path / "run", str(tmp_path / "c.sqlite")
    with OpenAIServer(lambda body: say("wrong")) as server:
        given = settings(server.url, "0.5*judge+format", max_calls=4, concurrency=1, cache=cache)
        with pytest.raises(BudgetSpent) as caught:
            train(given | TINY | {"max_steps": 2, "run_dir": str(run_dir)})
        said = str(caught.value)
        assert re.search(r"stopped before step \d, of which \d of 4 episodes have no score", said)
        assert "raise it with --set judge.max_calls=…" in said and caught.value.exit_code == 4
        assert f"continue with: searchrl train --resume {run_dir}" in said
        assert len(server.bodies) == 4
        assert _steps(run_dir) < 2, "a step of which a part has no score is not trained on"
        for _ in range(8):  # what was paid for is in the cache, and each time begins a new budget
            try:
                train(resume=run_dir)
                break
            except BudgetSpent:
                continue
        assert _steps(run_dir) == 2
        asked = [body["messages"][-1]["content"] for body in server.bodies]
        assert len(set(asked)) == len(asked), "nothing was paid for twice"
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and KEY.encode() in f.read_bytes()]


def _steps(run_dir: Path) -> int:
    return sum(row["phase"] == "train" for row in Run(run_dir).metrics)


def test_episodes_are_judged_at_the_same_time_and_no_more_than_allowed() -> None:
    episodes = [
        Episode(Task(f"t{n}", "test", n, f"q{n}", answers=("x",)), final_answer="x")
        for n in range(64)
    ]
    with OpenAIServer(careful, delay_s=0.3) as server:
        config = build_config(settings(server.url, concurrency=32))
        registry = load_plugins(config.plugins)
        config = name_defaults(config, registry)
        scorer = make_scorer(config.tasks[0], config, registry)
        scored = score_together([(scorer, episode) for episode in episodes])
    assert all(one.reward == 1 for one in scored)
    assert len(server.bodies) == 64 and server.most_at_once == 32
