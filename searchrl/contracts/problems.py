"""The checks of what crosses several boundaries: what came in place of what was expected.

Each returns "" for a value that can be relied on, else a few words for an error. The boundaries
of episodes, protocols and judges call them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from searchrl.core.episode import (
    ACT,
    ANSWER,
    SEARCH,
    Action,
    Passage,
    Task,
    Unscored,
    Verdict,
    is_finite_number,
)

JUDGE_SCALE = (0.0, 0.5, 1.0)
"""The scores of a verdict on one answer: wrong, partly right, right."""


MAX_REWARD = 1e30
"""Largest score or reward, either way: beyond it, squares in the loss overflow 32 bits."""


_SLICE = re.compile(r"[\w.-]+")


def find_passages_problem(value: object) -> str:
    """Say what came in place of a list of passages, or "" if `value` is one.

    Passages come from a retriever's result and an environment's `info`.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"{type(value).__name__}; expected a list of Passage"
    for passage in value:
        if not isinstance(passage, Passage):
            return f"a list that holds {type(passage).__name__}; expected Passage"
        for name in ("id", "text", "title"):
            if not isinstance(getattr(passage, name), str):
                kind = type(getattr(passage, name)).__name__
                return f"a Passage whose {name} is {kind}; expected text"
    return ""


def find_ranks_problem(value: object) -> str:
    """Say what came in place of the ranks of gold passages, or "" if `value` is such a list.

    Ranks come from an environment's `info`.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"{type(value).__name__}; expected a list of one mapping per query"
    for one in value:
        if not isinstance(one, Mapping):
            return (
                f"a list that holds {type(one).__name__}; expected mappings of passage id to rank"
            )
        for name, rank in one.items():
            is_rank = rank is None or (isinstance(rank, int) and rank >= 1)
            if not isinstance(name, str) or not is_rank:
                return f"the rank {rank!r} of {name!r}; expected a number from 1, or None"
    return ""


def find_action_problem(value: object) -> str:
    """Say what came in place of an `Action`, or "" if `value` is a valid one.

    Actions come from a protocol's `parse` and an environment's `info`.
    """
    if not isinstance(value, Action):
        return f"{type(value).__name__}; expected an Action"
    if not isinstance(value.kind, str) or not isinstance(value.reason, str):
        return f"an Action of kind {value.kind!r} and reason {value.reason!r}; expected texts"
    if value.kind == SEARCH and not (
        isinstance(value.payload, tuple | list)
        and all(isinstance(query, str) for query in value.payload)
    ):
        return f"a search with the payload {value.payload!r}; expected a tuple of queries"
    if value.kind in (ANSWER, ACT) and not isinstance(value.payload, str):
        return f"an {value.kind} with the payload {value.payload!r}; expected text"
    return ""


def find_task_problem(value: object) -> str:
    """Say what came in place of a `Task`, or "" if it is one that rewards and records can read."""
    if not isinstance(value, Task):
        return f"{type(value).__name__}; expected a Task"
    for name in ("id", "split", "question", "kind", "env", "difficulty"):
        if not isinstance(getattr(value, name), str):
            return f"a Task whose {name} is {getattr(value, name)!r}; expected text"
    if not isinstance(value.index, int):
        kind = type(value.index).__name__
        return f"a Task whose index is {value.index!r} ({kind}); expected an int"
    for name in ("answers", "gold_ids", "slices", "changed_answers"):
        texts = getattr(value, name)
        # The usual slip: a text instead of a tuple of texts. It is a sequence of its letters.
        if not isinstance(texts, tuple | list) or not all(isinstance(t, str) for t in texts):
            return f"a Task whose {name} are {texts!r}; expected a tuple of texts"
    for name in value.slices:
        if problem := find_slice_problem(name, value.kind):
            return f"a Task with {problem}"
    if value.difficulty and not _SLICE.fullmatch(value.difficulty):
        expected = "expected letters, digits, '_', '.' and '-' only"
        return f"a Task of the difficulty {value.difficulty!r}; {expected}"
    if not isinstance(value.meta, Mapping):
        return f"a Task whose meta is {value.meta!r}; expected a mapping"
    return ""


def find_slice_problem(name: str, kind: str) -> str:
    """Say why a task of `kind` cannot be in a slice of this name, or "" if it can.

    A slice is the part `SLICE` of the metric `em/SLICE`, beside the kinds of task.
    """
    if not _SLICE.fullmatch(name):
        return f"the slice {name[:60]!r}; expected letters, digits, '_', '.' and '-' only"
    return f"the slice {name!r}, which is its kind; leave it out" if name == kind else ""


def find_verdict_problem(value: object, *, is_ranked: bool = False) -> str:
    """Say what came in place of a verdict, or "" if it is one.

    With `is_ranked` its score is any number from 0 to 1, otherwise one of `JUDGE_SCALE`.
    """
    if isinstance(value, Unscored):
        is_told = isinstance(value.reason, str) and value.reason
        return "" if is_told else "Unscored without a reason"
    if not isinstance(value, Verdict):
        return f"{type(value).__name__}; expected a Verdict, or Unscored"
    if not isinstance(value.reason, str):
        return f"a Verdict whose reason is {value.reason!r}; expected text"
    if isinstance(value.score, bool) or not is_finite_number(value.score):
        return f"a Verdict whose score is {value.score!r}; expected a number"
    number = 0 if value.number is None else value.number
    if not is_finite_number(number) or not 0 <= number <= 1:
        return f"a Verdict whose number is {number!r}; expected 0 to 1, or None"
    is_fit = 0 <= value.score <= 1 if is_ranked else value.score in JUDGE_SCALE
    allowed = "0 to 1" if is_ranked else "one of " + ", ".join(f"{one:g}" for one in JUDGE_SCALE)
    return "" if is_fit else f"a Verdict with the score {value.score:g}; expected {allowed}"
