"""Criteria of algorithms: A1 to A10, over made-up steps and a micro-batch of a few tokens."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import Column, Per, StepScores
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import MAX_PROBLEMS, NotApplicable, Problem, criterion, is_real
from searchrl.testing.kit.steps import DEAD_STEPS, STEPS, TokenBatch, make_step, reorder
from searchrl.testing.kit.subject import Subject
from searchrl.testing.trials import Trial, Way, judged, unchanged

REDUCTIONS = ("token-mean", "sequence-mean", "constant")
"""The reductions an algorithm may name: `core.loss.Reduction`, known without torch."""


@criterion("A1")
def _is_an_algorithm(subject: Subject) -> Iterator[Problem]:
    made: Any = subject.make()
    at = subject.entry.load()
    if not isinstance(made, Algorithm):
        yield Problem(f"the factory makes a {type(made).__name__}; expected an Algorithm", at)
        return
    if made.reduction not in REDUCTIONS:
        what = f"reduction = {made.reduction!r}; expected one of {', '.join(REDUCTIONS)}"
        yield Problem(what, at)
    for name in ("clip_low", "clip_high", "beta"):
        value = getattr(made, name)
        if not is_real(value) or value < 0:
            yield Problem(f"{name} = {value!r}; expected a number of at least 0", at)


def _give(algorithm: Algorithm, step: StepScores) -> Any:
    values = algorithm.advantages(step)
    return values.tolist() if hasattr(values, "tolist") else values


def _plain(values: Any) -> Any:
    """Lists for tuples, arrays, tensors and columns, inside too; anything else as it is."""
    values = values.values if isinstance(values, Column) else values
    values = values.tolist() if hasattr(values, "tolist") else values
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


ADVANTAGES = Trial(lambda subject: STEPS, _give)


def _find_problem(step: StepScores, values: Any) -> str:
    if not isinstance(values, list | tuple):
        return f"the advantages are {type(values).__name__}; expected a list"
    if len(values) != len(step.rewards):
        return f"{len(values)} advantages for {len(step.rewards)} rollouts"
    for i, (value, sizes) in enumerate(zip(values, step.turn_sizes, strict=True)):
        column = value if isinstance(value, Column) else Column([value], Per.ROLLOUT)
        given = _plain(column)
        if not all(map(is_real, given)):
            return f"the advantage of rollout {i} is {value!r}; expected a number or a Column"
        if step.is_scored[i] and len(given) != (expected := column.expected(sizes)):
            return f"{len(given)} advantages for rollout {i}; {expected} expected per {column.per}"
    return ""


_one_each = criterion("A2")(judged(ADVANTAGES, raises=True, most=MAX_PROBLEMS)(_find_problem))
_takes_dead_groups = criterion("A4")(
    judged(replace(ADVANTAGES, cases=lambda subject: DEAD_STEPS), raises=True, most=MAX_PROBLEMS)(
        _find_problem
    )
)


def _advantages(algorithm: Algorithm, step: StepScores) -> Any:
    values = _give(algorithm, copy.deepcopy(step))
    if problem := _find_problem(step, values):
        raise NotApplicable(f"{problem} (A2, A4)")
    return _plain(values)


def _is_close(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_close, left, right))
    return math.isclose(left, right, rel_tol=1e-7, abs_tol=1e-9)


@criterion("A3")
def _ignores_unscored(subject: Subject) -> Iterator[Problem]:
    seen: dict[str, Any] = {}
    for reward in ("0", "100", "nan"):
        step = make_step(f"1 {reward} 0 0.5 1", "p p p q q", [1])
        seen[reward] = given = _advantages(subject.make(), step)
        values = given[1] if isinstance(given[1], list) else [given[1]]
        problem = ""
        if any(values):
            problem = f"an unscored rollout (its reward reads {reward}) has the advantage {values}"
        elif not _is_close(seen["0"], given):
            readings = f"{seen['0']} where it reads 0, {given} where it reads {reward}"
            problem = f"the reward of an unscored rollout changes the others: {readings}"
        if problem:
            yield Problem(problem, ADVANTAGES.find_place(subject, step))
            return


_is_repeatable = criterion("A5")(unchanged(ADVANTAGES, Way.ANEW))


@criterion("A6")
def _is_equivariant(subject: Subject) -> Iterator[Problem]:
    for name, step in STEPS.items():
        count = len(step.rewards)
        order = [*range(1, count, 2), *range(0, count, 2)]
        straight = _advantages(subject.make(), step)
        expected = [straight[i] for i in order]
        shuffled = _advantages(subject.make(), reorder(step, order))
        if not _is_close(expected, shuffled):
            what = f"{name}: in another order of the rollouts the advantages are {shuffled}"
            at = ADVANTAGES.find_place(subject, step)
            yield Problem(f"{what}, expected {expected}", at)
            return


def _loss_place(subject: Subject, batch: TokenBatch) -> object:
    """The line of the plugin's file that returns the loss; else that of its definition."""
    return subject.returned_at(batch.loss) or batch.algorithm.loss


@criterion("A7")
def _has_gradient(subject: Subject) -> Iterator[Problem]:
    import torch

    for what, mask in (("a micro-batch", None), ("no trained token at all", [False] * 6)):
        batch = TokenBatch(subject.make(), mask=mask)
        loss: Any = batch.loss()
        at = _loss_place(subject, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            problem = f"the loss is {loss!r:.80}; expected a scalar tensor with a gradient"
            yield Problem(f"{what}: {problem}", at)
            return
        gradient = batch.gradient()
        if not torch.isfinite(loss).all() or not all(map(math.isfinite, gradient)):
            problem = f"the loss is {loss.item():g}, its gradient {gradient}"
            fix = "mask with torch.where before exp and division, never by multiplying"
            yield Problem(f"{what}: {problem}", at, fix)


@criterion("A8")
def _points_right(subject: Subject) -> Iterator[Problem]:
    batch = TokenBatch(subject.make())
    gradient = batch.gradient()
    at = _loss_place(subject, batch)
    for i, (advantage, slope) in enumerate(zip(batch.adv, gradient, strict=True)):
        if slope * advantage > 0:
            way = "down" if advantage > 0 else "up"
            what = f"token {i} has the advantage {advantage:+g} and the gradient {slope:+g}"
            yield Problem(f"{what}: an update moves its log-prob {way}", at)
            return
    if not any(gradient):
        yield Problem("the gradient is 0 at every token, whatever its advantage", at)


@criterion("A9")
def _keeps_to_mask(subject: Subject) -> Iterator[Problem]:
    mask = [True, False, True, True, False, True]
    batch = TokenBatch(subject.make(), mask=mask)
    with_others = batch.gradient()
    alone = TokenBatch(subject.make(), mask=mask, has_others=False).gradient()
    if not _is_close(with_others, alone):
        left_out = f"{alone} where the tokens outside the mask are left out of the micro-batch"
        what = f"the gradient is {with_others}, and {left_out}"
        yield Problem(what, _loss_place(subject, batch))


@criterion("A10")
def _restores_state(subject: Subject) -> Iterator[Problem]:
    from searchrl.engine.learning.state_files import load_state, save_state

    used: Algorithm = subject.make()
    fresh: Algorithm = subject.make()
    for step in STEPS.values():
        used.advantages(copy.deepcopy(step))
    try:
        with tempfile.TemporaryDirectory() as folder:
            save_state(Path(folder), "state", dict(used.hooks.state_dict()))
            fresh.hooks.load_state_dict(load_state(Path(folder), "state"))
    except Exception as error:
        what = f"what state_dict() returned cannot be saved and loaded: {describe_error(error)}"
        yield Problem(what, error)
        return
    for name, step in [*STEPS.items()][:2]:
        before, after = _advantages(used, step), _advantages(fresh, step)
        if not _is_close(before, after):
            what = f"{name}: {after} after state_dict() was loaded, {before} without a break"
            yield Problem(what, used.hooks.state_dict)
            return
