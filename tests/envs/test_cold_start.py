"""The world of the tiny model's cold start, examples/tiny: drills, random words, bad habits."""

import sys
from pathlib import Path

import pytest
from playing import PROTOCOL, make_env, mean, play

from searchrl.envs.regulations import make_expert
from searchrl.envs.regulations.questions import NOT_REGULATED_ANSWER
from searchrl.retrieval.bm25 import BM25Retriever

pytestmark = pytest.mark.thorough

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/tiny"))
import cold_start  # noqa: E402


def test_the_expert_solves_the_world() -> None:
    env = cold_start.ColdStartEnv(protocol=PROTOCOL, retriever=BM25Retriever)
    games = [play(env, make_expert, split="train", index=index) for index in range(300)]
    assert mean(game.reward for game in games) >= 0.98
    again = [g for g in games if len(g.turns) > 1 + len(g.task.meta["queries"])]
    assert len(again) > 60, "a search in other words is shown, and always in vain"
    assert {game.actions[-1].payload for game in again} == {NOT_REGULATED_ANSWER}
    drills = [game for game in games if game.task.kind == "drill"]
    assert len(drills) / len(games) == pytest.approx(cold_start.DRILLS, abs=0.04)
    assert 0.05 <= mean(not game.task.gold_ids for game in drills) <= 0.4
    usual, noisy = make_env(), []
    for game in games:
        if game.task.kind != "drill":
            number = game.task.meta["school_number"]
            noisy.append(
                env.school("train", number).passages != usual.school("train", number).passages
            )
            assert game.task.meta["queries"][0] in game.task.question
    assert mean(noisy) == pytest.approx(cold_start.NOISE, abs=0.1)


def test_the_passive_policy_answers_at_once_and_the_same_for_a_kind_of_value() -> None:
    env = cold_start.ColdStartEnv(protocol=PROTOCOL, retriever=BM25Retriever)
    said: dict[str, set[str]] = {}
    for index in range(100):
        game = play(env, cold_start.make_passive, split="train", index=index)
        (turn,) = game.turns
        said.setdefault(game.task.meta["value_kind"], set()).add(turn)
    assert len(said) > 5 and all(len(turns) == 1 for turns in said.values())
