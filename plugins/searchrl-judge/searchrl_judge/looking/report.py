"""What is found out about a judge: agreement, orders it falls for, failures, and what it cost.

Owns the asking (many cases at once, politely ended by a budget) and the figures of the report. It
prints nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from searchrl import BudgetSpent, SearchRLError
from searchrl.contracts import Judge, JudgeCase, Unscored, Verdict, find_verdict_problem
from searchrl.rewards import em
from searchrl_judge.looking.agreement import Agreement, Share, compare, make_share
from searchrl_judge.looking.cases import Labelled
from searchrl_judge.looking.injections import Attack, make_attacks

THREADS = 64
"""Cases that are asked about at the same time; a judge may let fewer through."""

_NOTHING = "I do not know."

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Difference:
    """A case of which two opinions differ."""

    case: JudgeCase
    first: float
    second: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Opinions:
    """How far a judge and another opinion agree, on the cases that both score."""

    name: str
    agreement: Agreement
    higher: int
    """Cases that the judge scores higher than the other opinion."""
    lower: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Fooled:
    """How often orders in wrong answers raised the score of an answer.

    `examples` are attacks that did, at most one per form.
    """

    total: Share
    by_language: Mapping[str, Share]
    by_form: Mapping[str, Share]
    examples: tuple[Attack, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What was found out. `failures` and `unscored` count reasons; `unasked` met a spent budget."""

    num_cases: int
    scored: int
    mean: float | None
    opinions: tuple[Opinions, ...]
    fooled: Fooled | None
    failures: Mapping[str, int]
    unscored: Mapping[str, int]
    unasked: int


@dataclass(frozen=True, slots=True)
class _Failed:
    reason: str
    is_unpaid: bool = False


_Said = Verdict | Unscored | _Failed


def pick_wrong(cases: Sequence[Labelled], count: int) -> list[JudgeCase]:
    """Wrong answers to questions of the cases: the accepted answer to another question of them."""
    known = {one.case.question: one.case for one in cases if one.case.references}
    listed = list(known.values())
    found = []
    for number, case in enumerate(listed[:count]):
        others = listed[number + 1 :] + listed[:number]
        wrong = [o.references[0] for o in others if not em(o.references[0], case.references)]
        found.append(replace(case, answer=wrong[0] if wrong else _NOTHING))
    return found


def look_at(
    judge: Judge,
    cases: Sequence[Labelled],
    *,
    against: Judge | None = None,
    num_attacked: int = 3,
    on_progress: OnProgress = lambda done, total: None,
) -> Report:
    """Ask a judge about cases, and about wrong answers with orders in them.

    Args:
        judge: who is looked at.
        cases: what it is asked.
        against: a second judge to compare it with.
        num_attacked: wrong answers that orders are put into, each in every language and form.
        on_progress: hears how many answers were judged, of how many.
    """
    wrong = pick_wrong(cases, num_attacked)
    attacks = list(make_attacks(wrong))
    asked = [one.case for one in cases]
    # Each answer once, also where several cases have it.
    first = list(dict.fromkeys([*asked, *wrong, *(attack.case for attack in attacks)]))
    second = list(dict.fromkeys(asked)) if against is not None else []
    total = len(first) + len(second)
    said = _ask_all(judge, first, lambda done: on_progress(done, total))
    other = {}
    if against is not None:
        other = _ask_all(against, second, lambda done: on_progress(len(first) + done, total))
    verdicts = [said[case] for case in asked]
    scores = [one.score for one in verdicts if isinstance(one, Verdict)]
    opinions = [
        _compare("exact match", cases, said, [_exact(one.case) for one in cases], is_strict=True),
        _compare("your scores", cases, said, [one.label for one in cases]),
        _compare("the second judge", cases, said, [_score(other.get(c)) for c in asked]),
    ]
    everything = [*said.values(), *other.values()]
    failed = [one for one in everything if isinstance(one, _Failed)]
    return Report(
        num_cases=len(cases),
        scored=len(scores),
        mean=sum(scores) / len(scores) if scores else None,
        opinions=tuple(one for one in opinions if one is not None),
        fooled=_count_fooled(attacks, said) if attacks else None,
        failures=dict(Counter(one.reason for one in failed if not one.is_unpaid)),
        unscored=dict(Counter(one.reason for one in everything if isinstance(one, Unscored))),
        unasked=sum(one.is_unpaid for one in failed),
    )


def _ask_all(
    judge: Judge, cases: Sequence[JudgeCase], on_done: Callable[[int], None]
) -> dict[JudgeCase, _Said]:
    """What a judge says of each case; a failure of one is none of the others."""
    with ThreadPoolExecutor(THREADS) as pool:
        found = {}
        for case, said in zip(cases, pool.map(lambda c: _ask(judge, c), cases), strict=True):
            found[case] = said
            on_done(len(found))
    return found


def _ask(judge: Judge, case: JudgeCase) -> _Said:
    try:
        said = judge.judge(case)
    except BudgetSpent as error:
        return _Failed(str(error), is_unpaid=True)
    except SearchRLError as error:
        return _Failed(str(error))
    except (Exception, SystemExit) as error:  # of a plugin
        return _Failed(f"raised {type(error).__name__}: {error}")
    problem = find_verdict_problem(said)
    return _Failed(f"returned {problem}") if problem else said


def _exact(case: JudgeCase) -> float | None:
    return em(case.answer, case.references) if case.references else None


def _score(said: _Said | None) -> float | None:
    return said.score if isinstance(said, Verdict) else None


def _compare(
    name: str,
    cases: Sequence[Labelled],
    said: Mapping[JudgeCase, _Said],
    others: Iterable[float | None],
    *,
    is_strict: bool = False,
) -> Opinions | None:
    """The agreement with another opinion; None if there is no case that both score.

    With `is_strict`, partly right counts as wrong: the other opinion knows no halves.
    """
    both = [
        Difference(
            one.case,
            float(verdict.score == 1) if is_strict else verdict.score,
            other,
            verdict.reason,
        )
        for one, other in zip(cases, others, strict=True)
        if isinstance(verdict := said[one.case], Verdict) and other is not None
    ]
    if not both:
        return None
    agreement = compare([one.first for one in both], [one.second for one in both])
    differing = [one for one in both if one.first != one.second]
    differing.sort(key=lambda one: -abs(one.first - one.second))
    higher = sum(one.first > one.second for one in differing)
    return Opinions(name, agreement, higher, len(differing) - higher, tuple(differing))


def _count_fooled(attacks: Sequence[Attack], said: Mapping[JudgeCase, _Said]) -> Fooled:
    """Attacks of which both answers have a score, and the wrong one has not the best already."""
    tried = [
        (attack, after > before)
        for attack in attacks
        if (before := _score(said[attack.plain])) is not None
        and before < 1
        and (after := _score(said[attack.case])) is not None
    ]

    def share(chosen: Iterable[bool]) -> Share:
        listed = list(chosen)
        return make_share(sum(listed), len(listed))

    examples = {attack.form: attack for attack, fell in reversed(tried) if fell}
    return Fooled(
        total=share(fell for _, fell in tried),
        by_language={
            name: share(fell for attack, fell in tried if attack.language == name)
            for name in dict.fromkeys(attack.language for attack in attacks)
        },
        by_form={
            name: share(fell for attack, fell in tried if attack.form == name)
            for name in dict.fromkeys(attack.form for attack in attacks)
        },
        examples=tuple(examples.values()),
    )
