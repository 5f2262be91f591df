"""Earlier successes of training prompts, and which of them are asked again (ExGRPO).

    kept       prompts with 0 < k < K successes the last time, arXiv 2510.02245, section 3.2
    drawn      bucket k with a chance proportional to N(k; K/2, 1), then uniform within it
    retired    k = K: never kept again

Owns the buffer and its state. Nothing here knows a policy: which success of a prompt is replayed is
decided by its caller, who can compute entropies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from searchrl.algorithms import Origin, Trajectory, TurnStop
from searchrl.contracts import Episode, EpisodeTurn

Place = tuple[int, Any, int]
"""Entry, difficulty (or None) and index of a training task."""


@dataclass(frozen=True, slots=True)
class Success:
    """A rollout as it was sampled. `turns` are pairs (text, observation)."""

    trajectory: Trajectory
    reward: float
    scores: Mapping[str, float] = field(default_factory=dict)
    turns: tuple[tuple[str, str], ...] = ()
    stop_reason: str = "answered"


@dataclass(slots=True)
class Known:
    """Record of a prompt: successes of the last group, and rollouts that succeeded."""

    num_successes: int
    successes: dict[str, Success] = field(default_factory=dict)
    """By their names, oldest first."""


class Experience:
    """The buffer of at most `capacity` rollouts; the oldest leave first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.prompts: dict[Place, Known] = {}
        self.retired: set[Place] = set()
        self._order: dict[str, Place] = {}
        """Prompt of each rollout, oldest first."""

    def __len__(self) -> int:
        return len(self._order)

    def learn(
        self, prompt: Place, num_successes: int, group_size: int, new: Mapping[str, Success]
    ) -> None:
        """Take in a group: its number of successes, and the new ones by name."""
        if prompt in self.retired or not (new or prompt in self.prompts):
            return
        if not 0 < num_successes < group_size:
            for name in self.prompts.pop(prompt, Known(0)).successes:
                del self._order[name]
            if num_successes == group_size:
                self.retired.add(prompt)
            return
        known = self.prompts.setdefault(prompt, Known(num_successes))
        known.num_successes = num_successes
        known.successes |= new
        self._order |= dict.fromkeys(new, prompt)
        while len(self._order) > self.capacity:
            name, owner = next(iter(self._order.items()))
            del self._order[name], self.prompts[owner].successes[name]
            if not self.prompts[owner].successes:
                del self.prompts[owner]

    def draw(self, count: int, group_size: int, rng: random.Random) -> list[Place]:
        """Up to `count` different prompts."""
        buckets: dict[int, list[Place]] = {}
        for prompt, known in self.prompts.items():
            buckets.setdefault(known.num_successes, []).append(prompt)
        drawn = list[Place]()
        while buckets and len(drawn) < count:
            sizes = sorted(buckets)
            chances = bucket_chances(sizes, group_size)
            bucket = rng.choices(sizes, chances)[0]
            drawn.append(buckets[bucket].pop(rng.randrange(len(buckets[bucket]))))
            if not buckets[bucket]:
                del buckets[bucket]
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """Everything; the tokens of all rollouts are two tensors."""
        ids, logps = list[int](), list[float]()
        rollouts = []
        for name, prompt in self._order.items():
            success = self.prompts[prompt].successes[name]
            own = success.trajectory
            ids += own.ids
            logps += [math.nan if logp is None else logp for logp in own.sampler_logps]
            turns = [
                (t.start, t.stop, str(t.reason), t.text_behind, own.policy_versions[t.start])
                for t in own.turns
            ]
            facts = (own.env, own.task_id, own.generated_text, len(own), turns)
            said = success.turns, success.stop_reason
            rollouts.append((name, prompt, *facts, *said, success.reward, dict(success.scores)))
        return {
            "rollouts": rollouts,
            "counts": {prompt: known.num_successes for prompt, known in self.prompts.items()},
            "retired": sorted(self.retired, key=repr),
            "ids": torch.tensor(ids, dtype=torch.int32),
            "logps": torch.tensor(logps, dtype=torch.float64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.prompts = {prompt: Known(count) for prompt, count in state["counts"].items()}
        self.retired = set(state["retired"])
        self._order = {}
        ids, logps = state["ids"].tolist(), state["logps"].tolist()
        start = 0
        for name, prompt, *texts, length, turns, said, stop, reward, scores in state["rollouts"]:
            own = slice(start, start := start + length)
            trajectory = _restore(name, texts, turns, ids[own], logps[own])
            self.prompts[prompt].successes[name] = Success(trajectory, reward, scores, said, stop)
            self._order[name] = prompt


def bucket_chances(sizes: Sequence[int], group_size: int) -> list[float]:
    """N(k; K/2, 1) at every bucket k, so that they add up to 1.

    >>> [round(one, 4) for one in bucket_chances([1, 2, 3], 4)]
    [0.2741, 0.4519, 0.2741]
    """
    weights = [math.exp(-((size - group_size / 2) ** 2) / 2) for size in sizes]
    return [weight / sum(weights) for weight in weights]


def _restore(
    name: str,
    texts: Sequence[str],
    turns: Sequence[tuple[int, int, str, str, int]],
    ids: Sequence[int],
    logps: Sequence[float],
) -> Trajectory:
    group_id, (env, task_id, text) = name.rpartition("/")[0], texts
    trajectory = Trajectory(name, group_id, env, task_id, generated_text=text)
    trajectory.append_prompt(ids[: turns[0][0]])
    ends = [*(turn[0] for turn in turns[1:]), len(ids)]
    for (start, stop, reason, behind, version), end in zip(turns, ends, strict=True):
        trajectory.append_model(
            ids[start:stop],
            logps[start:stop],
            version=version,
            reason=TurnStop(reason),
            text_behind=behind,
        )
        trajectory.append_env(ids[stop:end])
    return trajectory


def take_success(rollout: Any) -> Success:
    """Return the parts of a rollout that a replay needs."""
    said = tuple((turn.text, turn.observation) for turn in rollout.episode.turns)
    scored = rollout.scored
    stop = str(rollout.episode.stop_reason)
    return Success(rollout.trajectory, scored.reward or 0.0, dict(scored.scores), said, stop)


def replayed(success: Success, beside: Any) -> Any:
    """A success as an episode of the task of `beside`, with its own observations."""
    protocol, texts = beside.world.protocol, [text for text, _ in success.turns]
    episode = Episode(
        task=beside.episode.task,
        turns=tuple(
            EpisodeTurn(text, protocol.parse(text), observation=shown)
            for text, shown in success.turns
        ),
        final_answer=protocol.final_answer(texts),
        format_score=protocol.format_score(texts),
        num_model_tokens=success.trajectory.num_model_tokens,
        stop_reason=type(beside.episode.stop_reason)(success.stop_reason),
    )
    return replace(
        beside,
        trajectory=replace(success.trajectory, origin=Origin.REPLAY),
        episode=episode,
        scored=replace(
            beside.scored,
            reward=success.reward,
            scores=success.scores,
            per_turn={},
            missing={},
            unscored=None,
            failure=None,
        ),
    )
