"""Candidates and their rewards on tasks, within a budget of episodes. Both optimizers use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from searchrl import SearchRLError, estimate
from searchrl_apo.instructions import find_problem
from searchrl_apo.journal import Journal

TRAIN, VALIDATION = "train", "validation"


class OutOfEpisodes(Exception):
    """The budget does not pay for what was asked."""


@dataclass(eq=False)
class Candidate:
    """An instruction, where it came from, and its rewards by split and task."""

    id: str
    text: str
    parent: Candidate | None = None
    critique: str = ""
    rewards: dict[tuple[str, int], float | None] = field(default_factory=dict)

    def on(self, split: str) -> dict[str, float]:
        """Its rewards on the tasks of a split, by number."""
        listed = ((str(task), reward) for (of, task), reward in self.rewards.items() if of == split)
        return {task: reward for task, reward in listed if reward is not None}

    def is_better(self, other: Candidate) -> bool:
        """Return True if it is strictly better on the validation tasks that both have."""
        first, second = self.on(VALIDATION), other.on(VALIDATION)
        return sum(first[task] - second[task] for task in first if task in second) > 0

    def to_node(self) -> dict[str, Any]:
        """The candidate as a node of `candidates.json`."""
        splits = dict.fromkeys(split for split, _ in self.rewards if split != TRAIN)
        return {
            "id": self.id,
            "parent": self.parent and self.parent.id,
            "label": " ".join(filter(None, (self.id, self.critique))),
            "text": self.text,
            "figures": estimate({split: self.on(split) for split in splits}),
        }


class Evaluator:
    """All candidates of a search; `player`, of `open_player`, plays each task once with each."""

    def __init__(self, first: str, player: Any, journal: Journal, budget: int) -> None:
        self.candidates = [Candidate("c0", first)]
        self.dropped: Counter[str] = Counter()
        self.num_episodes, self.budget = 0, budget
        self.journal, self._player = journal, player

    def add(self, parent: Candidate, text: str, critique: str) -> Candidate | None:
        """Take in an edit; None if it is dropped, which is counted."""
        known = [one.text for one in self.candidates]
        if reason := find_problem(text, known[0], known):
            self.dropped[reason] += 1
            return None
        self.candidates.append(Candidate(f"c{len(known)}", text, parent, critique))
        return self.candidates[-1]

    def score(self, candidate: Candidate, split: str, tasks: Sequence[int]) -> float:
        """The mean reward on tasks; OutOfEpisodes if those that were not played cost too much."""
        keys = {task: f"{candidate.id} {split} {task}" for task in tasks}
        missing = [task for task in tasks if (split, task) not in candidate.rewards]
        if self.num_episodes + len(missing) > self.budget:
            raise OutOfEpisodes
        if to_play := [task for task in missing if keys[task] not in self.journal]:
            played = self.play(candidate.text, split, to_play).rollouts
            rows = zip(to_play, map(_describe, played), strict=True)
            self.journal.put({keys[task]: row for task, row in rows})
        candidate.rewards |= {(split, task): self.journal[keys[task]]["reward"] for task in missing}
        self.num_episodes += len(missing)
        rewards = [candidate.rewards[split, task] for task in tasks]
        values = [one for one in rewards if one is not None]
        return sum(values) / max(1, len(values))

    def play(self, text: str, split: str, tasks: Sequence[int]) -> Any:
        """The `EvalResult` of an instruction; SearchRLError if too many have no reward."""
        change = {"protocol": {"instruction": text}}
        result = self._player.play(change, split=split, indices=tasks)
        failed = [one for one in result.rollouts if one.reward is None]
        if len(failed) > self._player.config.rollout.max_failure_frac * len(tasks):
            failure = failed[0].episode.failure or failed[0].scored.failure
            why = failure.message if failure else failed[0].scored.unscored
            told = f"{len(failed)} of {len(tasks)} episodes have no reward; --resume repeats them"
            raise SearchRLError(f"{told}: {why}")
        return result


def _describe(rollout: Any) -> dict[str, Any]:
    """A row of the journal: the reward, and the episode as a critic sees it."""
    task = rollout.episode.task
    turns = [(one.text[:1500], one.observation[:1500]) for one in rollout.episode.turns]
    known = {"question": task.question, "accepted answers": list(task.answers)}
    return {"reward": rollout.reward, **known, "turns and what came back": turns}
