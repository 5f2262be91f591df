"""The environment `features`: a scripted policy whose success depends on twelve sentences.

Nine sentences of the instruction raise the chance of a right answer by 0.1 each, three lower it.
Success is drawn from the task, so that instructions are compared on the same draws; with
`is_harder` from the instruction as well, so that they are not.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

from searchrl import Register, hookimpl
from searchrl.contracts import ANSWER, Action, Passage, Task
from searchrl.envs import TextEnv

GOOD = (
    "Search before you answer.",
    "Ask for one thing at a time.",
    "Use the words of the question.",
    "Read every passage.",
    "Check the name of the place.",
    "Prefer the newest article.",
    "Quote the number exactly.",
    "Search again if nothing fits.",
    "Keep the answer short.",
)
BAD = ("Answer from memory.", "Never search twice.", "Write a long answer.")
NEUTRAL = (
    "Be friendly.",
    "Use plain words.",
    "You are an expert.",
    "Take your time.",
    "This matters a lot.",
    "Work alone.",
)
SENTENCES = "\n".join((*GOOD, *BAD, *NEUTRAL))


def chance(instruction: str) -> float:
    """The score without noise: 0.1, and 0.1 more or less for each feature; 0 to 1."""
    has = [sum(one.lower() in instruction.lower() for one in part) for part in (GOOD, BAD)]
    return min(1.0, max(0.0, 0.1 + 0.1 * (has[0] - has[1])))


def make_start(seed: int) -> str:
    """An instruction with three good sentences, all bad ones and two that change nothing."""
    rng = Random(seed)
    sentences = [*rng.sample(GOOD, 3), *BAD, *rng.sample(NEUTRAL, 2)]
    rng.shuffle(sentences)
    return (
        f"Think inside <think> and </think>. {' '.join(sentences)}\n"
        "Search inside <search> and </search>, answer inside <answer> and </answer>."
    )


class Features(TextEnv):
    """Questions whose answer is `yes`."""

    name = "features"

    def __init__(self, *, is_harder: bool = False, noise_seed: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self.is_harder, self.noise_seed = is_harder, noise_seed

    def num_tasks(self, split: str) -> int:
        return 1000

    def make_task(self, split: str, index: int) -> Task:
        return Task(f"{split}-{index}", split, index, f"Is {split} {index} it?", answers=("yes",))

    def passages(self, task: Task) -> tuple[str, list[Passage]]:
        return "features", [Passage("one", "one", "yes or no")]


class Expert:
    """Answers `yes` with the chance that the instruction gives."""

    def __init__(self, env: Any, task: Task, protocol: Any) -> None:
        own, text = env.unwrapped, protocol.instruction
        key = f"{own.noise_seed} {task.id} {text if own.is_harder else ''}"
        draw = int(hashlib.md5(key.encode()).hexdigest()[:12], 16) / 16**12
        self._turn = protocol.render_turn(Action(ANSWER, "yes" if draw < chance(text) else "no"))

    def act(self, observation: str) -> str:
        return str(self._turn)


@hookimpl
def register_envs(register: Register) -> None:
    register("features", Features, expert=Expert, description="an instruction of 12 features")
