"""The optimizer `gepa`: the library of that name, on our evaluator and with our editors.

After Agrawal et al. 2025 (arXiv 2507.19457). An edit that is dropped is given back as its parent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch

from searchrl import SearchRLError
from searchrl_apo.evaluation import TRAIN, VALIDATION, Candidate, Evaluator, OutOfEpisodes
from searchrl_apo.search import Editor, OnRound, Plan


@dataclass
class Adapter:
    """GEPA's way to the evaluator and the editor (`gepa.core.adapter.GEPAAdapter`)."""

    evaluator: Evaluator
    editor: Editor
    rng: Random
    on_round: OnRound
    best: Candidate
    error: SearchRLError | None = None

    def evaluate(
        self, batch: list[tuple[str, int]], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Any, Any]:
        """Rewards on tasks, (split, number) each. One that is missing is the mean of the others."""
        one, split = self._find(candidate), batch[0][0]
        mean = self.evaluator.score(one, split, [task for _, task in batch])
        if split == VALIDATION:
            self.best = one if one.is_better(self.best) else self.best
            self.on_round(one, self.best)
        scores = [mean if (reward := one.rewards[at]) is None else reward for at in batch]
        return EvaluationBatch(batch, scores, batch if capture_traces else None)

    def make_reflective_dataset(self, *of_batch: Any) -> dict[str, Any]:
        """Nothing: our editors look at episodes themselves."""
        return {"instruction": [{}]}

    def propose_new_texts(self, candidate: dict[str, str], *of_batch: Any) -> dict[str, str]:
        """One edit, or the candidate itself if that is dropped. GEPA goes on after errors."""
        parent = self._find(candidate)
        try:
            made = self.evaluator.add(parent, *self.editor.edit(parent, 1, self.rng)[0])
        except SearchRLError as error:
            made, self.error = None, error
        return {"instruction": made.text} if made else candidate

    def _find(self, candidate: dict[str, str]) -> Candidate:
        return next(
            one for one in self.evaluator.candidates if one.text == candidate["instruction"]
        )


def search(evaluator: Evaluator, editor: Editor, plan: Plan, on_round: OnRound) -> Candidate:
    """Return the best instruction; the budget ends it, not a number of rounds."""
    adapter = Adapter(evaluator, editor, Random(plan.seed), on_round, evaluator.candidates[0])
    with suppress(OutOfEpisodes):
        optimize(  # its last step may need more episodes than are left
            {"instruction": plan.first},
            trainset=[(TRAIN, task) for task in range(plan.num_train)],
            valset=[(VALIDATION, task) for task in range(plan.num_validation)],
            adapter=cast("Any", adapter),
            stop_callbacks=lambda state: adapter.error is not None,
            max_metric_calls=10 * evaluator.budget,  # the evaluator ends it: GEPA counts repeats
            logger=SimpleNamespace(log=lambda message: None),
            seed=plan.seed,
        )
    if adapter.error:
        raise adapter.error
    return adapter.best
