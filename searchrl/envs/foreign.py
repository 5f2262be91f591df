"""Foreign environments: any Gymnasium environment of text or discrete spaces, as one of text."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from string import Formatter
from typing import Any, Literal

import gymnasium
from gymnasium.spaces import Text

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.core.episode import ACT, INVALID, Action, Task
from searchrl.envs.describe import (
    Actions,
    Game,
    has_numbers,
    load_games,
    tell_ansi,
    tell_numbers,
    unsupported,
)
from searchrl.envs.gym_ids import PYTHON
from searchrl.envs.text_space import AtLeastOne, TurnEnv
from searchrl.errors import ConfigError

MAX_TURNS = 100
"""Turns of an episode if the environment sets no limit."""

PROMPT = "{goal}\nActions: {actions}.\n\n{observation}"

Observation = Literal["auto", "ansi", "number"]


class TextAdapter(TurnEnv):
    """A text environment around one of text or discrete spaces; an action is a raw model turn.

    The model names an action by its name or number (`<act>right</act>`). After anything else it
    gets a notice that lists the legal actions: the turn counts, and costs, but the inner
    environment does not step. Actions that `info["action_mask"]` forbids are not legal. Task
    `index` of a split is a seed of the inner environment; no seed is in two splits. An inner
    environment that has `num_tasks(split)` has tasks, splits and passages of its own, which are
    handed on.

    Args:
        inner: the environment; if made with `render_mode="ansi"`, its rendering is observed.
        protocol: parses turns and wraps observations; it must have acts, as `act` has.
        name: the name of the environment in tasks and errors.
        action_names: the names of the actions of a `Discrete` space, in the order of its numbers.
        max_turns: model turns before the episode is truncated; by default the inner limit of
            steps, or `MAX_TURNS`.
        prompt: the first message, with any of the placeholders `{name}`, `{goal}`, `{actions}`,
            `{max_turns}` and `{observation}`.
        observation: `ansi` (the rendering), `number`, or `auto`: the first of text, rendering
            and number that exists.
        num_tasks: tasks of each split.
        invalid_reward: the reward of a turn that is no legal action: where games punish, silence
            would be best.
        render_mode: None or "ansi" (the transcript as text).

    `ConfigError`: a space cannot be described, or a setting does not fit the environment.
    """

    splits: tuple[str, ...] = ("train", "test", "validation")

    def __init__(
        self,
        inner: gymnasium.Env[Any, Any],
        /,
        *,
        protocol: TagProtocol,
        name: str,
        action_names: list[str] | None = None,
        max_turns: AtLeastOne | None = None,
        prompt: str | None = None,
        observation: Observation = "auto",
        num_tasks: AtLeastOne = 10_000,
        invalid_reward: float = -1.0,
        render_mode: str | None = None,
    ) -> None:
        self.inner = inner
        self.name = name  # type: ignore[misc]  # of the classes of `TextEnv`, it is the class's
        self.invalid_reward = invalid_reward
        game = spec.name if (spec := inner.spec) and spec.namespace is None else ""
        self._game = load_games().get(game, Game("", ()))
        names = action_names if action_names is not None else self._game.actions or None
        self._actions = Actions(inner.action_space, names, name)
        limit = getattr(inner.spec, "max_episode_steps", None) or MAX_TURNS
        self._num_tasks = num_tasks
        self._has_tasks = inner.has_wrapper_attr("num_tasks")
        if self._has_tasks and inner.has_wrapper_attr("splits"):
            self.splits = tuple(inner.get_wrapper_attr("splits"))
        self._observed_by = _choose_observation(inner, observation, name)
        self._mask: Any = None
        self._prompt = PROMPT if prompt is None else prompt
        self.max_turns = limit if max_turns is None else max_turns
        self._fill_prompt("")
        try:
            rng = Random(0)
            acts = [*(self._actions.sample(rng) for _ in range(8)), "no such action"]
            turns = [protocol.render_turn(Action(ACT, act), "I try this.") for act in acts]
            turns += [protocol.opening(ACT) + "never closed", "Plain text.", ""]
        except ValueError as error:
            raise ConfigError(
                f"env {name} needs acts, and protocol '{protocol.name}' has none: {error}. Leave "
                "the protocol out, or name one that has them, such as act"
            ) from error
        super().__init__(protocol, self.max_turns, turns=turns, render_mode=render_mode)

    def num_tasks(self, split: str) -> int:
        """The number of tasks of a split: as the inner environment says, or `num_tasks`."""
        self.ensure_split(split)
        if not self._has_tasks:
            return self._num_tasks
        count: int = self.inner.get_wrapper_attr("num_tasks")(split)
        return count

    def seed_of(self, split: str, index: int) -> int:
        """The inner seed of a task: even in training, odd in testing, above both in validation."""
        if split == "validation":
            return 2 * self._num_tasks + index
        return 2 * index + (split == "test")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin the episode of `options` (`split`, `index`); returns (prompt, {"task": Task})."""
        super().reset(seed=seed)
        split, index = self.choose(options or {})
        inner = {"split": split, "index": index} if self._has_tasks else None
        seed = seed if self._has_tasks else self.seed_of(split, index)
        observation, info = self.inner.reset(seed=seed, options=inner)
        self._mask = info.get("action_mask")
        given = info.get("task")
        prompt = self._fill_prompt(self._tell(observation), given.question if given else "")
        task = given or Task(
            id=f"{self.name}/{split}/{index}",
            split=split,
            index=index,
            question=prompt,
            kind="game",
            env=self.name,
            meta={"seed": seed},
        )
        return self.begin(task, prompt)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one raw model turn."""
        task = self.begin_turn()
        parsed = self.protocol.parse(action)
        move = self._actions.parse(parsed.payload, self._mask) if parsed.kind == ACT else None
        reward, terminated, truncated = 0.0, False, False
        told: dict[str, Any] = {"passages": (), "signals": {}}
        if move is None:
            parsed = Action(INVALID, None, self._why_not(parsed))
            text, reward = parsed.reason, self.invalid_reward
        else:
            observation, inner_reward, terminated, truncated, info = self.inner.step(move)
            self._mask = info.get("action_mask")
            told |= {key: info[key] for key in ("passages", "ranks", "signals") if key in info}
            reward, text = float(inner_reward), self._tell(observation)
        shown = self.protocol.render_notice(text, self.budget)
        truncated = self.end_turn(action, shown, bool(terminated), bool(truncated))
        told |= {"task": task, "action": parsed}
        return shown, reward, bool(terminated), truncated, told

    def sample_action(self, rng: Random) -> str:
        """A legal action in words, drawn from `rng`."""
        return self._actions.sample(rng, self._mask)

    def close(self) -> None:
        """Close the inner environment."""
        self.inner.close()

    def _tell(self, observation: Any) -> str:
        if self._observed_by == "ansi":
            return tell_ansi(str(self.inner.render()))
        if self._observed_by == "text":
            return str(observation)
        return tell_numbers(self.inner.observation_space, observation, self._game.parts)

    def _why_not(self, parsed: Action) -> str:
        legal = f"Actions: {self._actions.listed(self._mask)}."
        if parsed.kind == INVALID:
            return f"{parsed.reason} {legal}".lstrip()
        if parsed.kind == ACT:
            return f"{str(parsed.payload)[:80]!r} is not an action here. {legal}"
        return f"This environment has actions, but no {parsed.kind}. {legal}"

    def _fill_prompt(self, observation: str, question: str = "") -> str:
        values = {
            "name": self.name,
            "goal": self._game.goal or question or f"This is {self.name}.",
            "actions": self._actions.listed(self._mask),
            "max_turns": self.max_turns,
            "observation": observation,
        }
        try:
            for _, place, width, how in Formatter().parse(self._prompt):
                if width or how or not (place or "name").isidentifier():
                    raise ValueError(f"'{{{place}}}' takes no more than the name")
            return self._prompt.format(**values)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"env {self.name}: the prompt cannot be filled in: {type(error).__name__}: {error}."
                f" Placeholders are {', '.join('{' + key + '}' for key in values)}; write {{{{ for "
                "a brace in the text"
            ) from error


class RandomActor:
    """The scripted policy `random`: a legal action in every turn; the same ones for one task."""

    def __init__(self, env: TextAdapter, task: Task, protocol: TagProtocol) -> None:
        self._env = env
        self._protocol = protocol
        self._rng = Random(f"random/{task.id}")

    def act(self, observation: str) -> str:
        """The next turn; it does not depend on the observation."""
        return self._protocol.render_turn(Action(ACT, self._env.sample_action(self._rng)))


class GymAdapter(TextAdapter):
    """The environment of `--env gym:NAME`; see `TextAdapter`.

    Args:
        name: a Gymnasium id; `package.module:Id-v0` imports the module that registers it first.
        make: keyword arguments of `gymnasium.make`, such as `{"is_slippery": False}`.

    `ConfigError`: Gymnasium cannot make it, or a space cannot be described.
    """

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: str,
        retriever: RetrieverFactory | None = None,
        make: dict[str, Any] | None = None,
        observation: Observation = "auto",
        **settings: Any,
    ) -> None:
        inner = _make_inner(name, make or {})
        has_rendering = "ansi" in (inner.metadata.get("render_modes") or ())
        is_wanted = observation != "number" and not isinstance(inner.observation_space, Text)
        if has_rendering and is_wanted and "render_mode" not in (make or {}):
            inner.close()
            inner = _make_inner(name, {**(make or {}), "render_mode": "ansi"})
        shown = inner.spec.name if name.startswith(PYTHON) and inner.spec else f"gym:{name}"
        super().__init__(inner, protocol=protocol, name=shown, observation=observation, **settings)


def _make_inner(name: str, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(name, **arguments)
    except Exception as error:  # the environment's own code can raise anything
        given = f" with {arguments}" if arguments else ""
        raise ConfigError(
            f"env gym:{name}: Gymnasium cannot make it{given}: {type(error).__name__}: {error}; "
            "its arguments are those in env.make"
        ) from error


def _choose_observation(inner: gymnasium.Env[Any, Any], wanted: Observation, env: str) -> str:
    """The form of observations: `text`, `ansi` or `number`."""
    space = inner.observation_space
    if wanted == "ansi" and inner.render_mode != "ansi":
        modes = inner.metadata.get("render_modes") or []
        raise ConfigError(
            f"env {env}: observation: ansi needs an environment made with render_mode 'ansi'; "
            f"this one has {inner.render_mode!r}, and its modes are {list(modes)}"
        )
    if wanted == "auto" and isinstance(space, Text):
        return "text"
    if wanted in ("auto", "ansi") and inner.render_mode == "ansi":
        return "ansi"
    if not has_numbers(space):
        raise unsupported(env, "observations", space)
    return "number"
