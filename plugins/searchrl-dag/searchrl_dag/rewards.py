"""The rewards and costs of plans: `dag`, `dag_judge`, `dag_sources`, `dag_nodes`.

They read the episode alone: a plan is read again from the text of its turn, because a stored
episode has only the queries. The protocol judges sources and the number of nodes: a turn that it
refused is no search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from searchrl.contracts import SEARCH, Episode, Judge, Unscored
from searchrl.rewards import FunctionReward, ask_judge
from searchrl_dag.plans.plan import Plan
from searchrl_dag.plans.reading import read_any_plan

_BODY = re.compile(r"<search>(.*?)</search>", re.DOTALL)


def make_dag() -> FunctionReward:
    """1 if the episode holds a plan and every `<search>` in it is a valid one, else 0."""
    return FunctionReward("dag", _score_dag, (0.0, 1.0))


def make_dag_judge(judge: Judge) -> FunctionReward:
    """The judge's score, 0 to 1; 0 without a valid plan, or without an answer, as published."""

    def score(episode: Episode) -> float | Unscored:
        return ask_judge(judge, episode, as_number=True) if _score_dag(episode) == 1 else 0.0

    return FunctionReward("dag_judge", score, (0.0, 1.0), is_range=True)


def make_sources() -> FunctionReward:
    """The share of planned queries that go to the source which the task knows to be right.

    The policy has to find that out, so it belongs in a reward with weight 0. Queries that the plan
    of the task does not have, and tasks without one, count 0.
    """

    def score(episode: Episode) -> float:
        right = {(query, source) for _, query, source in episode.task.meta.get("nodes", ())}
        nodes = [node for plan in _plans_of(episode) for node in plan.nodes]
        return sum((n.query, n.source.casefold()) in right for n in nodes) / max(1, len(nodes))

    return FunctionReward("dag_sources", score, (0.0, 1.0), is_range=True)


def make_nodes() -> FunctionReward:
    """The number of planned queries: `-0.01*dag_nodes` makes them a cost."""

    def score(episode: Episode) -> float:
        return float(sum(len(plan.nodes) for plan in _plans_of(episode)))

    return FunctionReward("dag_nodes", score, (0.0, math.inf), is_range=True)


def _score_dag(episode: Episode) -> float:
    is_planned = False
    for turn in episode.turns:
        if "<search" not in turn.text:
            continue
        if turn.action.kind != SEARCH or not any(_plans_in(turn.text)):
            return 0.0
        is_planned = True
    return float(is_planned)


def _plans_of(episode: Episode) -> Iterator[Plan]:
    for turn in episode.turns:
        if turn.action.kind == SEARCH:
            yield from _plans_in(turn.text)


def _plans_in(text: str) -> Iterator[Plan]:
    for body in _BODY.findall(text):
        plan = read_any_plan(body)
        if isinstance(plan, Plan):
            yield plan
