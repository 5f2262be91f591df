"""TextWorld: a game for each task from a cache, points as reward, faults by name."""

from pathlib import Path
from typing import Any

import pytest

import searchrl

pytest.importorskip("textworld", reason="needs searchrl-envs[textworld]")

HUNT = {"level": 1}  # five rooms, one step to the treasure


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("games")
        patch.setattr("searchrl_envs.text_games.cache_path", lambda name: folder / name)
        yield folder / "textworld"


def test_the_expert_wins_a_made_game_and_the_same_game_as_a_file(cache: Path) -> None:
    metrics = ["env", "signal:won"]
    made: dict[str, Any] = {"name": "textworld:treasure-hunter", "make": HUNT, "admissible": True}
    for _ in range(2):
        tasks = [{"env": made, "metrics": metrics}]
        config = {"tasks": tasks, "policy": "scripted", "eval": {"num_tasks": 1}}
        config["rollout"] = {"env_timeout_s": None}  # a game is made, on a busy machine for long
        result = searchrl.evaluate(config)
        assert [result.metrics[name]["value"] for name in metrics] == [1.0, 1.0]
        made = {"name": f"textworld:{next(cache.glob('*.z8'))}"}
    assert len(list(cache.iterdir())) == 4  # the first game, and that of the task


def test_possible_commands_are_listed_and_others_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = searchrl.make_env("textworld:treasure-hunter", make=HUNT, admissible=True)
    prompt, _ = env.reset(options={"split": "test", "index": 0})
    assert "Commands: " in prompt and "go " in prompt
    shown, reward, terminated, _, info = env.step("<act>eat the moon</act>")
    assert (reward, terminated, info["signals"]) == (0.0, False, {"won": 0.0})
    assert "Commands: " in shown and "\n>" not in shown
    monkeypatch.chdir(tmp_path)
    strange = ("go\x11north", "\\l", "go north\ngo south", "nörth", "loo\u212a")
    for text in (*strange, "save", "Script on", "look. transcript", "restart"):
        assert "nothing can be saved" in env.step(f"<act>{text}</act>")[0]
    assert not list(tmp_path.iterdir())
    silent = searchrl.make_env("textworld:treasure-hunter", make=HUNT, goal=False)
    assert prompt.partition("-=")[0] not in silent.reset(options={"split": "test", "index": 0})[0]


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        ("treasure-hunt", {}, "Did you mean 'treasure-hunter'"),
        ("treasure-hunter", {"level": "high"}, "--level.*'high'"),
        ("treasure-hunter", {"level": 5000}, "[Ll]evel"),
        ("custom", {"nb_room": 8}, "--nb-room=8"),
        ("custom", {"third": "games.py"}, "env.make.third: foreign code"),
        ("custom", {"third-party=games.py": True}, "foreign code"),
        (__file__, {}, "no file .z3"),
    ],
)
def test_a_fault_is_named(name: str, make: dict[str, Any], says: str) -> None:
    with pytest.raises(searchrl.ConfigError, match=says):
        searchrl.make_env(f"textworld:{name}", make=make)


def test_only_files_of_a_stranger_need_trust() -> None:
    registry = searchrl.load_plugins()
    assert registry.get("env", "textworld:cooking").is_safe_name()
    assert not registry.get("env", "textworld:/tmp/game.z8").is_safe_name()


def test_a_game_ends_where_the_next_one_begins_though_something_holds_it() -> None:
    env = searchrl.make_env("textworld:treasure-hunter", make=HUNT)
    env.reset(options={"split": "test", "index": 0})
    game = env.get_wrapper_attr("_game").unwrapped
    assert game.game_running
    env.reset(options={"split": "test", "index": 0})
    assert not game.game_running
