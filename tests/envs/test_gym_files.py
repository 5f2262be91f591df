"""A Gymnasium class in a local file: `--plugin games.py --env gym:MD-v0`, with or without an id."""

from pathlib import Path

import gymnasium
import pytest
from command_line import complaint, succeed

from searchrl.plugins import load_plugins
from searchrl.testing import check_plugin

CLASS = """
import gymnasium

class MD(gymnasium.Env):
    "Guess 2; six tries."
    def __init__(self, target=2):
        self.action_space = gymnasium.spaces.Discrete(4)
        self.observation_space = gymnasium.spaces.Discrete(2)
        self.target = target

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.num_tries = 0
        return 0, {}

    def step(self, action):
        self.num_tries += 1
        is_right = int(action) == self.target
        return int(is_right), float(is_right), is_right, self.num_tries == 6, {}
"""
WAYS = {
    "no id": "",
    "the class": "gymnasium.register('MD-v0', entry_point=MD)",
    "its name": "gymnasium.register('MD-v0', entry_point='games:MD', max_episode_steps=3)",
    "a function": "gymnasium.register('MD-v0', entry_point=lambda **k: MD(**k))",
}

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize("way", WAYS)
def test_a_class_in_a_file_is_played_under_its_id(way: str) -> None:
    Path("games.py").write_text(CLASS + WAYS[way], "utf-8")
    flags = ["--plugin", "games.py", "--env", "gym:MD-v0"]
    result = succeed("eval", *flags, "--policy", "scripted:random", "--num-tasks", "4")
    assert "gym:MD-v0" in result.stdout
    # Of the environment's own reward, without being told: `gym:` is registered with it.
    played = succeed("play", *flags, typed="d 1\nd 2\n").stdout
    assert "reward 1" in played and "answered" in played


def test_a_file_with_hooks_registers_nothing_that_it_does_not_ask_for() -> None:
    hooks = "\nfrom searchrl import hookimpl\n@hookimpl\ndef register_rewards(register): pass\n"
    Path("games.py").write_text(CLASS + hooks, "utf-8")
    load_plugins(["games.py"], strict=True)
    assert "MD-v0" not in gymnasium.registry


FAULTY = CLASS.replace("self.num_tries += 1", "self.num_trys += 1  # fault")


def test_the_file_is_named_for_what_its_class_raises() -> None:
    Path("games.py").write_text(FAULTY, "utf-8")
    line = FAULTY.splitlines().index("        self.num_trys += 1  # fault") + 1
    (report,) = check_plugin("games.py")
    assert report.plugin == "plugin games"
    assert FAULTY.splitlines()[report.line - 1] == "class MD(gymnasium.Env):"
    whats = {r.number: {(Path(f.file).name, f.line) for f in r.findings} for r in report.failed}
    assert whats == {"E11": {("games.py", line)}}
    flags = ("--plugin", "games.py", "--env", "gym:MD-v0", "--policy", "scripted:random")
    text = complaint("eval", *flags, "--num-tasks", "2", code=3)
    assert "env 'gym:MD-v0' (plugin games)" in text
