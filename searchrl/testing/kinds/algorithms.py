"""Criteria of algorithms: A1 to A9, over made-up steps and a micro-batch of a few tokens.

Owns what an algorithm is held to: advantages for every rollout of any step, and a loss that moves
the policy where they point, on the tokens that the model wrote. Does not judge how well it learns.
Torch is imported by the criteria of the loss, not by this module. `searchrl check` runs them.
"""

from __future__ import annotations

import copy
import io
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from searchrl.algorithms import Algorithm
from searchrl.core.advantage import StepScores
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import Criterion, NotApplicable, Problem, criterion
from searchrl.testing.kit.steps import DEAD_STEPS, STEPS, StepCase, TokenBatch, make_step, reorder
from searchrl.testing.probes.subject import PluginSubject

_TOLERANCE = 1e-9

REDUCTIONS = ("token-mean", "sequence-mean", "constant")
"""The reductions an algorithm may name: `core.loss.Reduction`, known without torch."""


class AlgorithmSubject(PluginSubject):
    """A registered algorithm."""

    __slots__ = ()

    def make(self) -> Algorithm:
        """A fresh algorithm."""
        made: Algorithm = self.build()
        return made

    def place(self, algorithm: Algorithm, step: StepScores) -> object:
        """Where the plugin's file returns the advantages of a step; else its registration."""
        return self.returned_at(lambda: algorithm.advantages(step))


@criterion(
    "A1",
    "is an Algorithm with usable numbers",
    "The learner reads every field of it; a wrong one ends the run at its first update.",
)
def _is_an_algorithm(subject: AlgorithmSubject) -> Iterator[Problem]:
    made: Any = subject.make()
    at = subject.entry.load()
    missing = [f.name for f in fields(Algorithm) if not hasattr(made, f.name)]
    missing += [name for name in ("resolve", "length_penalty_of") if not hasattr(made, name)]
    if missing:
        yield Problem(
            f"the factory makes a {type(made).__name__} without {', '.join(missing)}",
            "return searchrl.algorithms.Algorithm(name, advantages, loss, reduction, ...)", at,
        )  # fmt: skip
        return
    called = ("advantages", "loss", "extend", "parameters", "state_dict", "load_state_dict")
    for name in called:
        if not callable(getattr(made, name)):
            yield Problem(f"{name} = {getattr(made, name)!r}; expected a function", "", at)
    if made.reduction not in REDUCTIONS:
        yield Problem(
            f"reduction = {made.reduction!r}; expected one of {', '.join(REDUCTIONS)}",
            "name the reduction of its paper", at,
        )  # fmt: skip
    for name in ("clip_low", "clip_high", "beta"):
        value = getattr(made, name)
        if not _is_number(value) or value < 0:
            yield Problem(
                f"{name} = {value!r}; expected a number of at least 0",
                "give the number of its paper, or leave it out", at,
            )  # fmt: skip
    if made.length_penalty is not None:
        for num_tokens in (0, 1, 99, 100, 10_000):
            penalty: Any = made.length_penalty(num_tokens, 100)
            if not _is_number(penalty) or penalty > 0:
                yield Problem(
                    f"length_penalty({num_tokens}, 100) is {penalty!r}; expected at most 0",
                    "return what is taken from the reward, as a negative number",
                    made.length_penalty,
                )  # fmt: skip


@criterion(
    "A2",
    "gives every rollout a finite advantage",
    "One number too few or a NaN ends the run; the step it was for is lost.",
)
def _one_each(subject: AlgorithmSubject) -> Iterator[Problem]:
    yield from _find_misfits(subject, STEPS)


@criterion(
    "A3",
    "gives unscored rollouts 0 and reads nothing of them",
    "Could not score is not zero: such a rollout must not move the baseline of its group.",
)
def _ignores_unscored(subject: AlgorithmSubject) -> Iterator[Problem]:
    algorithm = _made(subject)
    seen: dict[str, list[Any]] = {}
    for reward in ("0", "100", "nan"):
        step = make_step(f"1 {reward} 0 0.5 1", "p p p q q", [1])
        algorithm = subject.make()
        given = _advantages(algorithm, step)
        if not _is_zero(given[1]):
            yield Problem(
                f"an unscored rollout (its reward reads {reward}) has the advantage {given[1]!r}",
                "skip rollouts whose step.is_scored is False, and give them 0.0",
                subject.place(algorithm, step),
            )
            return
        seen[reward] = given
    if not all(_is_close(seen["0"], given) for given in seen.values()):
        step = make_step("1 100 0 0.5 1", "p p p q q", [1])
        yield Problem(
            f"the reward of an unscored rollout changes the others: {seen['0']} where it reads 0, "
            f"{seen['100']} where it reads 100, {seen['nan']} where it reads nan",
            "take means and deviations over the scored rollouts alone",
            subject.place(algorithm, step),
        )


@criterion(
    "A4",
    "takes groups without contrast",
    "Half of all groups are won or lost as a whole; 0 / 0 there is a NaN in every weight.",
)
def _takes_dead_groups(subject: AlgorithmSubject) -> Iterator[Problem]:
    yield from _find_misfits(subject, DEAD_STEPS)


@criterion(
    "A5",
    "gives the same step the same advantages, and leaves it as it is",
    "A resumed run must take the step that the interrupted one would have taken.",
)
def _is_repeatable(subject: AlgorithmSubject) -> Iterator[Problem]:
    for case in STEPS:
        algorithm, other = _made(subject), subject.make()
        step = copy.deepcopy(case.step)
        first = _advantages(algorithm, step)
        if step != case.step:
            yield Problem(
                f"{case}: the step is another one afterwards",
                "copy what is changed: list(step.rewards)", subject.place(other, case.step),
            )  # fmt: skip
            return
        second = _advantages(other, copy.deepcopy(case.step))
        if not _is_close(first, second):
            yield Problem(
                f"{case}: {first} from one algorithm and {second} from an equal one",
                "draw nothing; what is learned on the way belongs into state_dict()",
                subject.place(other, case.step),
            )
            return


@criterion(
    "A6",
    "does not depend on the order of the rollouts",
    "Rollouts stand in the order in which they finished, which is chance.",
)
def _is_equivariant(subject: AlgorithmSubject) -> Iterator[Problem]:
    for case in (*STEPS, *DEAD_STEPS[1:2]):
        count = len(case.step.rewards)
        order = [*range(1, count, 2), *range(0, count, 2)]
        straight = _advantages(_made(subject), case.step)
        shuffled = _advantages(subject.make(), reorder(case.step, order))
        if not _is_close([straight[i] for i in order], shuffled):
            yield Problem(
                f"{case}: in another order of the rollouts the advantages are {shuffled}, "
                f"expected {[straight[i] for i in order]}",
                "find the rollouts of a group by step.group_ids; groups need not stand together",
                subject.place(subject.make(), case.step),
            )
            return


@criterion(
    "A7",
    "has a loss that can be differentiated",
    "A loss without a gradient trains nothing, and one that is not finite skips the update.",
)
def _has_gradient(subject: AlgorithmSubject) -> Iterator[Problem]:
    import torch

    algorithm = _made(subject)
    for what, mask in (("a micro-batch", None), ("no trained token at all", [False] * 6)):
        batch = TokenBatch(algorithm, mask=mask)
        loss: Any = batch.loss()
        at = subject.returned_at(TokenBatch(algorithm, mask=mask).loss) or algorithm.loss
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            yield Problem(
                f"{what}: the loss is {loss!r:.80}; expected a scalar tensor with a gradient",
                "return columns.reduce(objective_T, ratio_T), undetached", at,
            )  # fmt: skip
            return
        loss.backward()
        gradient = batch.gradient()
        if not torch.isfinite(loss).all() or not torch.isfinite(gradient).all():
            yield Problem(
                f"{what}: the loss is {loss.item():g}, its gradient {gradient.tolist()}",
                "mask with torch.where before exp and division, never by multiplying", at,
            )  # fmt: skip


@criterion(
    "A8",
    "raises what has a positive advantage and lowers what has a negative one",
    "With the sign reversed, a run learns to fail, and does so steadily.",
)
def _points_right(subject: AlgorithmSubject) -> Iterator[Problem]:
    algorithm = _made(subject)
    batch = TokenBatch(algorithm)
    gradient = _gradient(batch)
    at = subject.returned_at(TokenBatch(algorithm).loss) or algorithm.loss
    mend = "minimise the negative of the objective: loss = -(columns.weight_T * ratio * adv).sum()"
    for i, (advantage, slope) in enumerate(zip(batch.adv, gradient, strict=True)):
        if slope * advantage > 0:
            way = "down" if advantage > 0 else "up"
            yield Problem(
                f"token {i} has the advantage {advantage:+g} and the gradient {slope:+g}: an "
                f"update moves its log-prob {way}", mend, at,
            )  # fmt: skip
            return
    if not any(gradient):
        yield Problem("the gradient is 0 at every token, whatever its advantage", mend, at)


@criterion(
    "A9",
    "trains no token outside the mask",
    "Masked tokens are what the environment wrote: training on them teaches to invent results.",
)
def _keeps_to_mask(subject: AlgorithmSubject) -> Iterator[Problem]:
    algorithm = _made(subject)
    mask = [True, False, True, True, False, True]
    expected = _gradient(TokenBatch(algorithm, mask=mask))
    at = subject.returned_at(TokenBatch(algorithm, mask=mask).loss) or algorithm.loss
    for i, is_trained in enumerate(mask):
        if not is_trained and expected[i] != 0:
            yield Problem(
                f"token {i} is not in the mask and has the gradient {expected[i]:g}",
                "weigh every token by columns.weight_T, which is 0 there", at,
            )  # fmt: skip
            return
    for odd in (7.0, math.nan, math.inf):
        found = _gradient(TokenBatch(algorithm, mask=mask, masked_value=odd))
        if not _is_close(expected, found):
            yield Problem(
                f"the gradient is {found} where masked log-probs are {odd}, and {expected} where "
                "they are as the others",
                "weigh every token by columns.weight_T, and nothing by the number of tokens", at,
            )  # fmt: skip
            return


@criterion(
    "A10",
    "restores its state",
    "A resumed run goes on with what the algorithm had learned, or is another run.",
)
def _restores_state(subject: AlgorithmSubject) -> Iterator[Problem]:
    import torch

    used, fresh = _made(subject), subject.make()
    for case in STEPS:
        used.advantages(case.step)
    state = used.state_dict()
    if not isinstance(state, Mapping):
        yield Problem(
            f"state_dict() returned {type(state).__name__}; expected a mapping",
            "return a dict of what is to be kept", used.state_dict,
        )  # fmt: skip
        return
    buffer = io.BytesIO()
    try:
        torch.save(dict(state), buffer)
        buffer.seek(0)
        fresh.load_state_dict(torch.load(buffer, weights_only=True))
    except Exception as error:
        yield Problem(
            f"what state_dict() returned cannot be saved and loaded: {describe_error(error)}",
            "keep tensors, numbers, texts, lists and dicts only", error,
        )  # fmt: skip
        return
    for case in STEPS[:2]:
        before, after = _advantages(used, case.step), _advantages(fresh, case.step)
        if not _is_close(before, after):
            yield Problem(
                f"{case}: {after} after state_dict() was loaded, {before} without a break",
                "put everything that later steps depend on into state_dict(), and restore it in "
                "load_state_dict()", used.state_dict,
            )  # fmt: skip
            return


ALGORITHM_CRITERIA: tuple[Criterion[AlgorithmSubject], ...] = (
    _is_an_algorithm, _one_each, _ignores_unscored, _takes_dead_groups, _is_repeatable,
    _is_equivariant, _has_gradient, _points_right, _keeps_to_mask, _restores_state,
)  # fmt: skip
"""A1 to A10."""


def _gradient(batch: TokenBatch) -> list[float]:
    try:
        batch.loss().backward()
    except Exception as error:
        raise NotApplicable("its loss cannot be differentiated; see A7") from error
    gradient: list[float] = batch.gradient().tolist()
    return gradient


def _made(subject: AlgorithmSubject) -> Algorithm:
    """A fresh algorithm that can be called at all; A1 says why not."""
    try:
        made = subject.make()
        is_usable = callable(made.advantages) and callable(made.loss)
    except (Exception, SystemExit) as error:
        raise NotApplicable("the algorithm cannot be made; see A1") from error
    if not is_usable:
        raise NotApplicable("its functions cannot be called; see A1")
    return made


def _advantages(algorithm: Algorithm, step: StepScores) -> list[Any]:
    """The advantages of a step, if there is one for each rollout; A2 and A4 say why not."""
    try:
        values = _plain(algorithm.advantages(step))
    except (Exception, SystemExit) as error:
        raise NotApplicable("it raises on a step; see A2 and A4") from error
    if _find_problem(values, step):
        raise NotApplicable("it gives advantages that do not fit a step; see A2 and A4")
    return list(values)


def _find_misfits(subject: AlgorithmSubject, cases: Sequence[StepCase]) -> Iterator[Problem]:
    algorithm = _made(subject)
    for case in cases:
        try:
            values = _plain(algorithm.advantages(case.step))
        except (Exception, SystemExit) as error:
            yield Problem(
                f"{case}: it raised {describe_error(error)}",
                "give rollouts 0.0 where there is nothing to compare", error,
            )  # fmt: skip
            continue
        if problem := _find_problem(values, case.step):
            yield Problem(
                f"{case}: {problem}",
                "return one number per rollout, in the order given, or a list with one per turn "
                "or per token; 0.0 where there is nothing to compare",
                subject.place(algorithm, case.step),
            )


def _find_problem(values: Any, step: StepScores) -> str:
    count = len(step.rewards)
    if not isinstance(values, list):
        return f"the advantages are {type(values).__name__}; expected a list"
    if len(values) != count:
        return f"{len(values)} advantages for {count} rollouts"
    for i, value in enumerate(values):
        given = value if isinstance(value, list) else [value]
        if not all(map(_is_number, given)):
            return f"the advantage of rollout {i} is {value!r}"
        turns, tokens = (step.num_turns or [])[i], (step.num_tokens or [])[i]
        is_scored = step.is_scored[i]
        if isinstance(value, list) and is_scored and len(value) not in (turns, tokens):
            return f"{len(value)} advantages for rollout {i} of {turns} turns and {tokens} tokens"
    return ""


def _plain(values: Any) -> Any:
    """Lists for tuples, arrays and tensors, inside too; anything else as it is."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _is_zero(value: Any) -> bool:
    return not any(value) if isinstance(value, list) else value == 0


def _is_close(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_close, left, right))
    try:
        return math.isclose(left, right, rel_tol=1e-7, abs_tol=_TOLERANCE)
    except TypeError:
        return bool(left == right)
