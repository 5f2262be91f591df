"""Foreign environments as text: acts, notices, masks, tasks, and spaces that are refused."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text
from gymnasium.utils.env_checker import check_env

import searchrl
from searchrl.contracts import TokenBudget
from searchrl.core.episode import ACT, INVALID, Action, Task
from searchrl.envs.describe import tell_numbers
from searchrl.envs.foreign import GymAdapter, TextAdapter
from searchrl.errors import ConfigError
from searchrl.protocols.act import ThinkAct

P = ThinkAct()


class Corridor(gymnasium.Env[int, int]):
    """Walk from 0 to 3; the wall on the left is masked. Counts how often it was stepped."""

    metadata = {"render_modes": []}  # noqa: RUF012
    num_steps = 0
    seed = None

    def __init__(self, *, has_mask: bool = True) -> None:
        self.action_space = Discrete(2)
        self.observation_space = Discrete(4)
        self.has_mask = has_mask

    def _info(self) -> dict[str, Any]:
        mask = np.array([self.place > 0, 1], dtype=np.int8)
        return {"action_mask": mask} if self.has_mask else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.place, self.num_steps = seed, 0, 0
        return self.place, self._info()

    def step(self, action):
        self.num_steps += 1
        self.place += 1 if action else -1
        return self.place, 0.25 * action, self.place == 3, self.num_steps == 7, self._info()


class Echo(gymnasium.Env[str, str]):
    def __init__(self) -> None:
        self.action_space = self.observation_space = Text(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "say", {}

    def step(self, action):
        return action, 1.0, False, False, {}


def adapt(inner: gymnasium.Env[Any, Any] | None = None, **settings: Any) -> TextAdapter:
    inner = Corridor() if inner is None else inner
    settings.setdefault("name", "hall:1")
    return TextAdapter(inner, protocol=settings.pop("protocol", P), **settings)


def act(name: str) -> str:
    return P.render_turn(Action(ACT, name))


def gym(name: str = "FrozenLake-v1", **settings: Any) -> TextAdapter:
    return GymAdapter(protocol=P, name=name, **settings)


class TestEpisode:
    def test_acts_step_the_inner_environment_and_its_rewards_come_through(self):
        env = adapt(action_names=["back", "ahead"])
        prompt, info = env.reset(options={"split": "train", "index": 3})
        assert "Actions: ahead." in prompt and prompt.endswith("\n\n0")
        assert info["task"].question == prompt
        shown, reward, terminated, truncated, info = env.step(act("ahead"))
        assert (shown, reward) == ("\n\n<observation>1</observation>\n\n", 0.25)
        assert not terminated and not truncated
        assert info["action"] == Action(ACT, "ahead") and info["passages"] == ()
        env.step(act("1"))
        assert env.step(act("AHEAD"))[1:4] == (0.25, True, False)

    @pytest.mark.parametrize(
        ("turn", "reason"),
        [
            ("<act>jump</act>", "'jump' is not an action here. Actions: back, ahead."),
            ("no tag", "The turn has no action: write <act>action</act>. Actions: back, ahead."),
        ],
    )
    def test_an_invalid_turn_counts_and_costs_and_nothing_is_stepped(self, turn: str, reason: str):
        inner = Corridor(has_mask=False)
        env = adapt(inner, action_names=["back", "ahead"], max_turns=2)
        env.reset()
        shown, reward, terminated, truncated, info = env.step(turn)
        assert shown == f"\n\n<observation>{reason}</observation>\n\n"
        assert (reward, terminated, truncated, inner.num_steps) == (-1.0, False, False, 0)
        assert info["action"].kind == INVALID and info["action"].reason == reason
        assert env.step(turn)[2:4] == (False, True)

    def test_a_masked_action_is_invalid_and_not_in_the_notice(self):
        inner = Corridor()
        env = adapt(inner, action_names=["back", "ahead"])
        env.reset()
        assert "'back' is not an action here. Actions: ahead." in env.step(act("back"))[0]
        env.step(act("ahead"))
        assert inner.num_steps == 1
        env.step(act("back"))
        assert inner.num_steps == 2 and inner.place == 0

    def test_the_inner_truncation_ends_the_episode(self):
        env = adapt(Corridor(has_mask=False))
        env.reset()
        ends = [env.step(act(str(int(i % 2 == 0))))[2:4] for i in range(7)]
        assert ends[:-1] == [(False, False)] * 6 and ends[-1] == (False, True)

    def test_the_turn_limit_is_that_of_the_setting_the_environment_or_the_default(self):
        assert gym().max_turns == 100 and gym("Taxi-v4").max_turns == 200
        assert gym(max_turns=5).max_turns == 5 and adapt().max_turns == 100

    def test_text_passes_as_it_is(self):
        env = adapt(Echo())
        prompt, _ = env.reset()
        assert prompt.endswith("say")
        assert env.step(act("hello"))[:2] == ("\n\n<observation>hello</observation>\n\n", 1.0)
        assert "is not an action here" in env.step(act("far too long a text"))[0]

    def test_observations_keep_to_the_budget(self):
        env = gym()
        env.reset()
        env.budget = TokenBudget(40, len, lambda text, limit: text[: max(limit, 0)])
        shown = env.step(act("right"))[0]
        assert len(shown) <= 40 and shown.endswith("</observation>\n\n")


class TestTasks:
    def test_a_task_is_a_seed_and_no_seed_is_in_two_splits(self):
        env = adapt(num_tasks=50)
        seeds = {split: [env.seed_of(split, i) for i in range(50)] for split in env.splits}
        assert len({seed for own in seeds.values() for seed in own}) == 50 * len(seeds) == 150
        _, info = env.reset(seed=9, options={"split": "test", "index": 7})
        task = info["task"]
        assert isinstance(task, Task)
        assert (task.id, task.split, task.index, task.env) == ("hall:1/test/7", "test", 7, "hall:1")
        assert task.meta == {"seed": seeds["test"][7]} and env.inner.unwrapped.seed == 15
        assert env.num_tasks("train") == env.num_tasks("test") == 50

    def test_the_same_task_is_the_same_episode_for_every_seed_of_reset(self):
        def episode(seed: int, index: int) -> list[str]:
            env = gym(make={"is_slippery": True})
            prompt, _ = env.reset(seed=seed, options={"split": "test", "index": index})
            shown = [prompt]
            for _ in range(30):
                observation, _, terminated, truncated, _ = env.step(act("right"))
                shown.append(observation)
                if terminated or truncated:
                    break
            return shown

        assert episode(0, 3) == episode(1, 3)
        assert len({tuple(episode(0, i)) for i in range(8)}) > 1

    def test_unknown_splits_and_indices_are_named(self):
        env = adapt(num_tasks=5)
        with pytest.raises(ConfigError, match="env hall:1 has no split 'dev'"):
            env.num_tasks("dev")
        with pytest.raises(ConfigError, match="tasks 0 to 4, got index 5"):
            env.reset(options={"index": 5})


class TestPrompt:
    def test_a_prompt_of_ones_own_is_filled_in(self):
        env = gym(prompt="{name} {max_turns}: {actions}. {{go}} {observation}", max_turns=9)
        prompt, _ = env.reset()
        assert prompt.startswith("gym:FrozenLake-v1 9: left, down, right, up. {go} [S]FFF\nFHFH")

    @pytest.mark.parametrize("prompt", ["{what}", "{", "{name.x}"])
    def test_a_prompt_that_cannot_be_filled_in_says_what_can(self, prompt: str):
        with pytest.raises(ConfigError, match=r"Placeholders are \{name\}, \{goal\}, \{actions\}"):
            gym(prompt=prompt)


class TestGymnasium:
    def test_toy_text_comes_with_names_and_a_map(self):
        prompt, _ = gym().reset(options={"index": 0})
        assert "Actions: left, down, right, up." in prompt
        assert prompt.endswith("[S]FFF\nFHFH\nFFFH\nHFFG")

    def test_measured_numbers_are_told_the_first_of_many(self):
        space = Dict({"gaps": Box(-1, 1, (20,)), "step": Discrete(3)})
        told = tell_numbers(space, {"gaps": np.linspace(0, 0.19, 20), "step": 2})
        assert told.startswith("gaps 0, 0.01, 0.02, ") and told.endswith("0.15, and 4 more\nstep 2")
        assert tell_numbers(Box(0, 1, (2,)), np.array([0.25, 1])) == "0.25, 1"

    @pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1"])
    def test_gymnasiums_checker_is_content(self, name: str):
        check_env(searchrl.make_env(f"gym:{name}"), skip_render_check=True)
