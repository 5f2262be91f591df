"""Training prompts of a step: a pure function of (seed, step, refill, curriculum).

There is no iterator state: a resumed run sees exactly the prompts the uninterrupted one would have
seen. Prompts that replace others (dynamic sampling) come from streams of their own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from searchrl.engine.rollout.curriculum import Curriculum
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import mix_key

_ORDER, _SAMPLE, _WORLD, _REFILL = 1, 2, 3, 4


@dataclass(frozen=True)
class PromptStream:
    """Draws worlds by their weights, and for each a permutation of its training tasks per epoch."""

    worlds: Sequence[TaskWorld]
    seed: int
    prompts_per_step: int
    group_size: int
    _choices: list[int] = field(default_factory=list, repr=False)
    _refills: dict[int, PromptStream] = field(default_factory=dict, repr=False)

    @cached_property
    def curriculum(self) -> Curriculum:
        """The schedules of the worlds."""
        return Curriculum(self.worlds)

    def requests(
        self, step: int, refill: int = 0, places: Sequence[int] | None = None
    ) -> list[RolloutRequest]:
        """The prompt instances of a step (from 1), each with its group's RNG keys.

        `refill` is 0 for the prompts of the step, n for those of the n-th refill. `places` are
        those of the `prompts_per_step` to ask for; by default all.
        """
        if refill:
            if refill not in self._refills:
                seed = mix_key(self.seed, _REFILL, refill)
                self._refills[refill] = replace(self, seed=seed, _choices=[], _refills={})
            return [
                replace(request, group_id=request.group_id.replace("/", f"/refill{refill}/", 1))
                for request in self._refills[refill].requests(step, places=places)
            ]
        first = (step - 1) * self.prompts_per_step
        chosen = range(self.prompts_per_step) if places is None else places
        return [self._request(step, first + place) for place in chosen]

    def _request(self, step: int, number: int) -> RolloutRequest:
        done = step - 1
        which = self._world_of(number)
        # The n-th prompt of its world: counted from the seed, so there is nothing to restore.
        place = number if len(self.worlds) == 1 else self._choices[:number].count(which)
        world, difficulty = self.worlds[which], self.curriculum.difficulty(which, done)
        total = world.levels.get(difficulty, world).num_tasks("train")
        epoch, position = divmod(place, total)
        index = _permuted(position, total, mix_key(self.seed, _ORDER, which, epoch))
        keys = tuple(
            mix_key(self.seed, _SAMPLE, done, number, sample) for sample in range(self.group_size)
        )
        return RolloutRequest(
            group_id=f"step{step:06d}/prompt{number - done * self.prompts_per_step}",
            world=world,
            split="train",
            index=index,
            rng_keys=keys,
            step=step,
            difficulty=difficulty,
        )

    def _world_of(self, number: int) -> int:
        if len(self.worlds) == 1:
            return 0
        while len(self._choices) <= number:
            weights = self.curriculum.weights(len(self._choices) // self.prompts_per_step)
            rng = random.Random(mix_key(self.seed, _WORLD, len(self._choices)))
            self._choices.append(rng.choices(range(len(self.worlds)), weights)[0])
        return self._choices[number]


def _permuted(position: int, total: int, key: int) -> int:
    """Element `position` of a keyed permutation of range(total), in constant memory.

    A four-round Feistel network on the next power of four, walked until it lands in range
    (Black & Rogaway 2002, cycle walking).
    """
    half_bits = max(1, ((total - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    value = position
    while True:
        left, right = value >> half_bits, value & mask
        for round_number in range(4):
            left, right = right, left ^ (mix_key(key, round_number, right) & mask)
        value = (left << half_bits) | right
        if value < total:
            return value
