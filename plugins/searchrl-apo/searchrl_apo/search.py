"""The optimizer `apo`: its plan, and a beam of instructions that are edited and raced in rounds.

The leader of a race plays all validation tasks, and replaces the best instruction if it is strictly
better there. After Pryzant et al. 2023 (arXiv 2305.03495), with successive halving (Karnin 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import click

from searchrl import ConfigError
from searchrl.protocols import load_instruction
from searchrl_apo.editors import GRADIENT_BATCH, OFFLINE, ModelEditor, OfflineEditor
from searchrl_apo.evaluation import TRAIN, VALIDATION, Candidate, Evaluator
from searchrl_apo.instructions import kept_in

BEAM, BRANCH, ROUNDS, EMPTY = 4, 4, 3, 3
HEATS = (4, 8, 16)
"""Tasks of a race: all candidates play the first of them, then the better half the next."""
Editor = OfflineEditor | ModelEditor
OnRound = Callable[[Candidate, Candidate], None]  # the leader of a round, the best so far


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of a search and its `budget`; `rounds` None: offline, until that is spent."""

    first: str
    seed: int
    budget: int
    rounds: int | None
    num_train: int
    num_validation: int
    num_test: int

    @classmethod
    def of(cls, player: Any, budget: int, editor: str) -> Plan:
        """The plan of a player; ConfigError if the budget pays for no round."""
        config = player.config
        if len(config.tasks) > 1 or config.eval.split in (TRAIN, VALIDATION):
            raise ConfigError(
                f"{len(config.tasks)} env, eval.split = {config.eval.split}: expected one env, and "
                "a split for the end that chooses nothing, such as test"
            )
        (world,) = player.make_worlds()
        name, written = world.protocol.name, config.tasks[0].protocol.settings.get("instruction")
        # As it is written, with its placeholders: that of a protocol has them filled in.
        is_filled = written is None and name != "tool-call"
        num_test = min(config.eval.num_tasks, world.num_tasks(config.eval.split))
        plan = cls(
            world.protocol.instruction if is_filled else load_instruction(written, name),
            config.seed,
            budget - 2 * num_test,
            None if editor == OFFLINE else ROUNDS,
            world.num_tasks(TRAIN),
            min(config.eval.num_tasks_during, world.num_tasks(VALIDATION)),
            num_test,
        )
        if (needed := plan.num_validation + plan.cost(1) + 2 * num_test) > budget:
            raise ConfigError(
                f"--budget {budget} pays for no round: that takes {needed} episodes; give more, or "
                "fewer tasks: --set eval.num_tasks=N (test), eval.num_tasks_during=N (validation)"
            )
        return plan

    def cost(self, num_parents: int) -> int:
        """Episodes of a round at most."""
        shown = num_parents * GRADIENT_BATCH if self.rounds else 0
        fields = [max(BEAM, num_parents * (1 + BRANCH) // part) for part in (1, 2, 4)]
        raced = sum(field * size for field, size in zip(fields, (4, 4, 8), strict=True))
        return shown + raced + self.num_validation

    def describe(self) -> str:
        """The plan in three lines."""
        rounds = f"{self.rounds} rounds" if self.rounds else "as many rounds as that pays for,"
        kept = " ".join(kept_in(self.first)) or "nothing"
        return (
            f"instruction: {len(self.first.split())} words; every edit keeps {kept}\n"
            f"episodes of the search, at most {self.budget:,}: {self.num_validation} for the first "
            f"instruction, then {rounds} of at most {self.cost(BEAM)} for up to {BEAM * BRANCH} "
            f"edits\nepisodes on test tasks: {2 * self.num_test}, with the first and the best one"
        )


def search(evaluator: Evaluator, editor: Editor, plan: Plan, on_round: OnRound) -> Candidate:
    """Return the best instruction."""
    best, every = evaluator.candidates[0], range(plan.num_validation)
    evaluator.score(best, VALIDATION, every)
    beam, num_empty = [best], 0
    for number in range(plan.rounds or plan.budget):
        rng, old = Random(f"{plan.seed}/{number}"), len(evaluator.candidates)
        if evaluator.num_episodes + plan.cost(len(beam)) > evaluator.budget:
            break
        for parent in beam:
            for edit in editor.edit(parent, BRANCH, rng):
                evaluator.add(parent, *edit)
        if new := evaluator.candidates[old:]:
            batch = rng.sample(every, min(HEATS[-1], plan.num_validation))
            beam = race(evaluator, [*new, *beam], batch)
            evaluator.score(beam[0], VALIDATION, every)
            best = beam[0] if beam[0].is_better(best) else best
        on_round(beam[0], best)
        num_empty = 0 if new else num_empty + 1
        if num_empty == EMPTY:
            click.echo(f"the search ends: every edit of {EMPTY} rounds in a row was dropped")
            break
    return best


def race(evaluator: Evaluator, field: list[Candidate], batch: Sequence[int]) -> list[Candidate]:
    """The best `BEAM` on a batch, the best first; of equal ones the first in `field`."""
    for size in HEATS:
        scores = {one: evaluator.score(one, VALIDATION, batch[:size]) for one in field}
        field = sorted(field, key=lambda one: -scores[one])[: max(BEAM, len(field) // 2)]
    return field[:BEAM]
