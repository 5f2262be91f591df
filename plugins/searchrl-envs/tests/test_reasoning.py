"""reasoning-gym: tasks by seed, levels, faults by name, text that is never run, all sets."""

import re
from typing import Any

import pytest
from searchrl_envs.protocol import ThinkAnswer

import searchrl
from searchrl.contracts import ANSWER

pytest.importorskip("reasoning_gym", reason="needs searchrl-envs[reasoning-gym]")

WITHOUT_ANSWER = ["boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"]


def play(name: str, answer: str, **settings: Any) -> tuple[float, float]:
    env = searchrl.make_env(f"reasoning-gym:{name}", **settings)
    env.reset(options={"split": "test", "index": 0})
    _, reward, _, _, info = env.step(f"<think>So.</think><answer>{answer}</answer>")
    return reward, info["signals"]["unscored"]


def test_the_protocol_has_an_answer_and_no_search() -> None:
    protocol = ThinkAnswer()
    assert protocol.parse("<think>So.</think><answer> 8 </answer>").kind == ANSWER
    assert "<answer>answer</answer>" in (reason := protocol.parse("8").reason)
    assert "search" not in reason + protocol.parse("<answer>8</answer><answer>9</answer>").reason


def test_splits_levels_and_config() -> None:
    config = {"min_terms": 5, "max_terms": 6}
    env: Any = searchrl.make_env("reasoning-gym:chain_sum", level=2, config=config)
    places = [{"split": split, "index": index} for split in env.splits for index in range(5)]
    asked = [env.reset(options=place)[0] for place in places]
    assert len(set(asked)) == 15
    assert all(len(re.findall(r"\d+", text)) >= 5 for text in asked)
    assert re.search(r"\d{3}", " ".join(asked))  # at level 0 there is one digit


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("chain_sums", {}, "Did you mean 'chain_sum'"),
        ("composite", {}, "no such set"),
        ("acre", {"level": 1}, "no levels"),
        ("chain_sum", {"config": {"terms": 3}}, "'terms'.*min_terms"),
        ("chain_sum", {"config": {"min_terms": 0}}, "min_terms must be"),
    ],
)
def test_a_fault_is_named(name: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(searchrl.ConfigError, match=says):
        searchrl.make_env(f"reasoning-gym:{name}", **settings)


@pytest.mark.parametrize("name", ["countdown", "n_queens", "simple_integration"])
def test_code_in_an_answer_is_never_run(name: str, tmp_path: Any) -> None:
    written = tmp_path / "written"
    calls = [f"open('{written}', 'w')", f"(open)('{written}', 'w')"]
    calls += [f"Abs('open'+'('+\"'{written}', 'w'\"+')')"]
    endless = ["9**9**9**9", "9999999!", "1<<9999999999", "9**(9*99999999)"]
    for answer in (*calls, *endless):
        assert play(name, answer) == (0.0, 1.0)
    assert not written.exists()


def test_a_scorer_that_raises_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from reasoning_gym.arithmetic.chain_sum import ChainSumDataset

    monkeypatch.setattr(ChainSumDataset, "score_answer", lambda self, answer, entry: 1 / 0)
    assert play("chain_sum", "3") == (0.0, 1.0)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_all_sets_but_those_without_answers_are_played_by_their_expert() -> None:
    from reasoning_gym.factory import DATASETS

    failed = []
    for name in sorted(DATASETS.keys() - {"composite"}):
        env = {"name": f"reasoning-gym:{name}", "num_tasks": 100}
        config = {"env": env, "policy": "scripted", "eval": {"num_tasks": 20}}
        try:
            score = searchrl.evaluate(config).metrics["env"]["value"]
        except searchrl.SearchRLError as error:
            assert "has no expert" in str(error), name
            score = 0.0
        if score < 0.99:
            failed.append(name)
            print(name, score)
    assert failed == WITHOUT_ANSWER
