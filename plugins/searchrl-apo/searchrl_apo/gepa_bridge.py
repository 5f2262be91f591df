"""The optimizer `gepa`: the library of that name, on our evaluator and with our editors.

After Agrawal et al. 2025 (arXiv 2507.19457). An edit that is dropped is given back as its parent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

from searchrl import ConfigError
from searchrl_apo.evaluation import TRAIN, VALIDATION, Candidate, Evaluator, OutOfEpisodes
from searchrl_apo.search import Editor, OnRound, Plan

try:
    import gepa
    from gepa.core.adapter import EvaluationBatch
except ImportError as error:
    raise ConfigError("--optimizer gepa: pip install 'searchrl-apo[gepa]'") from error

Texts = dict[str, str]
_TEXT = "instruction"


@dataclass
class Adapter:
    """GEPA's way to the evaluator and the editor (`gepa.core.adapter.GEPAAdapter`)."""

    evaluator: Evaluator
    editor: Editor
    rng: Random
    on_round: OnRound
    best: Candidate

    def evaluate(
        self, batch: list[tuple[str, int]], candidate: Texts, capture_traces: bool = False
    ) -> EvaluationBatch[Any, Any]:
        """Rewards on tasks, (split, number) each. One that is missing is the mean of the others."""
        one, split = self._find(candidate), batch[0][0]
        mean = self.evaluator.score(one, split, [task for _, task in batch])
        if split == VALIDATION:
            self.best = one if one.is_better(self.best) else self.best
            self.on_round(one, self.best)
        rewards = [one.rewards[place] for place in batch]
        scores = [mean if reward is None else reward for reward in rewards]
        return EvaluationBatch(batch, scores, batch if capture_traces else None)

    def make_reflective_dataset(self, *of_batch: Any) -> dict[str, Any]:
        """Nothing: our editors look at episodes themselves."""
        return {_TEXT: [{}]}

    def propose_new_texts(self, candidate: Texts, *of_batch: Any) -> Texts:
        """One edit, or the candidate itself if that is dropped."""
        parent = self._find(candidate)
        (edit,) = self.editor.edit(parent, 1, self.rng)
        made = self.evaluator.add(parent, *edit)
        return {_TEXT: made.text} if made else candidate

    def _find(self, candidate: Texts) -> Candidate:
        return next(one for one in self.evaluator.candidates if one.text == candidate[_TEXT])


def search(evaluator: Evaluator, editor: Editor, plan: Plan, on_round: OnRound) -> Candidate:
    """Return the best instruction; the budget ends it, not a number of rounds."""
    adapter = Adapter(evaluator, editor, Random(plan.seed), on_round, evaluator.candidates[0])
    with suppress(OutOfEpisodes):
        gepa.optimize(  # its last step may need more episodes than are left
            {_TEXT: plan.first},
            trainset=[(TRAIN, task) for task in range(plan.num_train)],
            valset=[(VALIDATION, task) for task in range(plan.num_validation)],
            adapter=adapter,
            max_metric_calls=evaluator.budget,
            logger=SimpleNamespace(log=lambda message: None),
            seed=plan.seed,
        )
    return adapter.best
