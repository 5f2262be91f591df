"""The judge `lexical`: a rule that compares words, so that judged rewards work offline.

Owns that rule. It follows no orders in an answer, because it reads none; it takes no paraphrase
either. For that, a judge asks a model. Registered by the built-in plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from searchrl.core.episode import JudgeCase, Unscored, Verdict
from searchrl.rewards import answers

MAX_MORE_WORDS = 12
"""Words that an answer may hold besides an accepted one and still be partly right."""


class LexicalJudge:
    """1: the answer is an accepted one; 0.5: it is near one, or holds one in a short sentence.

    Args:
        normalization: N1, N2 or N3; by default that of the run.
    """

    def __init__(self, normalization: Literal["N1", "N2", "N3"] = "N1") -> None:
        self._normalize = answers.DIALECTS[normalization]

    def judge(self, case: JudgeCase) -> Verdict | Unscored:
        """Judge one answer; Unscored if no accepted answer is known."""
        if not case.references:
            return Unscored("there is no accepted answer to compare with")
        near = answers.fuzzy(case.answer, case.references, self._normalize)
        if near == 1:
            return Verdict(1.0, "the same words")
        if near:
            return Verdict(near, "nearly the same words")
        if any(self._stands_in(reference, case.answer) for reference in case.references):
            return Verdict(0.5, "an accepted answer among a few other words")
        return Verdict(0.0, "other words")

    def rank(self, cases: Sequence[JudgeCase]) -> list[Verdict | Unscored]:
        """Judge the answers of a group: the share of words in common with an accepted answer."""
        return [
            Verdict(answers.f1(case.answer, case.references, self._normalize), "shared words")
            if case.references
            else Unscored("there is no accepted answer to compare with")
            for case in cases
        ]

    def _stands_in(self, reference: str, answer: str) -> bool:
        words, wanted = (len(answers.tokenize(self._normalize(one))) for one in (answer, reference))
        is_there = answers.cover_em(answer, [reference], self._normalize) == 1
        has_numbers = answers.find_numbers(reference) <= answers.find_numbers(answer)
        return words <= wanted + MAX_MORE_WORDS and has_numbers and is_there
