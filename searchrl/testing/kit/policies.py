"""A scripted policy for tests, and the driver that plays an environment with one.

`play_episode` is the model-free twin of the rollout driver: strings only, no budgets, no rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import Episode, EpisodeTurn, StopReason, Task
from searchrl.testing.kit.cases import finish_episode

if TYPE_CHECKING:
    import gymnasium


class Step(NamedTuple):
    """The values that `step` returned, unchecked."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any

    @property
    def is_last(self) -> bool:
        """True if the episode is over."""
        return bool(self.terminated or self.truncated)


class Says:
    """Says the given turns, one after another.

    >>> policy = Says(["first", "second"])
    >>> policy.act("a prompt"), policy.act("an observation")
    ('first', 'second')
    """

    def __init__(self, turns: Sequence[str]) -> None:
        self.turns = [turns] if isinstance(turns, str) else list(turns)
        self.heard: list[str] = []
        """Every observation so far, the prompt first."""

    def act(self, observation: str) -> str:
        """Return the next turn; IndexError when all are said and the episode still goes on."""
        self.heard.append(observation)
        if len(self.heard) > len(self.turns):
            raise IndexError(f"all {len(self.turns)} turns are said and the episode goes on")
        return self.turns[len(self.heard) - 1]


def play_turns(
    env: gymnasium.Env[Any, Any], act: Callable[[str], str], observation: str, max_turns: int = 100
) -> Iterator[tuple[str, Step]]:
    """Play after a reset until the episode is over: each turn, and what `step` returned for it."""
    for _ in range(max_turns):
        text = act(observation)
        step = Step(*env.step(text))
        yield text, step
        if step.is_last:
            return
        observation = step.observation


def play_episode(
    env: gymnasium.Env[Any, Any],
    policy: Expert,
    protocol: TagProtocol,
    *,
    split: str | None = None,
    index: int | None = None,
    seed: int = 0,
    max_turns: int = 100,
) -> Episode:
    """Play one episode and return the record that reward components score.

    `protocol` is the environment's own. Without a `split` the environment takes its first, without
    an `index` it draws the task from `seed`. `max_turns` stops an environment that has no limit of
    its own. What environment and policy raise goes through.

    >>> from searchrl import make_env
    >>> from searchrl.protocols import ThinkSearchAnswer
    >>> protocol = ThinkSearchAnswer()
    >>> env = make_env("regulations", protocol=protocol)
    >>> policy = Says("<think>a guess</think><answer>no</answer>")
    >>> play_episode(env, policy, protocol, split="test", index=3).is_passive
    True
    """
    options: dict[str, Any] = {} if split is None else {"split": split}
    options |= {} if index is None else {"index": index}
    observation, info = env.reset(seed=seed, options=options)
    task = info.get("task")
    if not isinstance(task, Task):
        task = Task("task", split or "train", -1 if index is None else index, observation)
    turns: list[EpisodeTurn] = []
    signals: dict[str, float] = {}
    stop = StopReason.TURN_LIMIT
    for text, step in play_turns(env, policy.act, observation, max_turns):
        action = step.info.get("action") or protocol.parse(text)
        signals |= step.info.get("signals", {})
        # The last observation, which no policy reads, does not count as shown, as in a run.
        info = {} if step.is_last else step.info
        shown = "" if step.is_last else step.observation
        passages, ranks = (tuple(info.get(key, ())) for key in ("passages", "ranks"))
        turns.append(EpisodeTurn(text, action, passages, shown, float(step.reward), ranks))
        if step.terminated:
            stop = StopReason.ANSWERED
    env_return = sum(turn.reward for turn in turns)
    return finish_episode(task, turns, protocol, stop, signals=signals, env_return=env_return)
