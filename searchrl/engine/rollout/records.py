"""A rollout as one JSON row: what any other tool needs to check what was trained. No torch.

Columns are over tokens; `sampler_logp`, `ratio` and `entropy` are null where nothing was sampled or
trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import Any

from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action, EpisodeTurn
from searchrl.core.trajectory import RowId, TokenColumns, Trajectory, is_finite
from searchrl.engine.rollout.drawing import draw_rollout
from searchrl.engine.rollout.rollout import Rollout

_OF_TASK = (
    *("id", "split", "index", "kind", "slices", "difficulty"),
    *("question", "answers", "gold_ids", "changed_answers"),
)


def rollout_record(
    rollout: Rollout, phase: str, columns: Mapping[RowId, TokenColumns]
) -> dict[str, Any]:
    """Describe a rollout completely; `columns` are those of the segments that were trained on.

    `phase` is `train`, `during`, `before` or `after`, with `_forced` where the first turn was
    forced; other programs have their own name.
    """
    trajectory, episode, scored = rollout.trajectory, rollout.episode, rollout.scored
    failure = episode.failure or scored.failure
    turn_scores = rollout.episode_scores or [None] * len(episode.turns)
    return {
        "rollout_id": trajectory.rollout_id,
        "group_id": trajectory.group_id,
        "parent": trajectory.parent,
        "num_kept": trajectory.num_kept,
        "segments": [0, *accumulate(map(len, trajectory.segments))][:-1],
        "segment_reasons": [segment.reason for segment in trajectory.segments],
        "origin": str(trajectory.origin),
        "phase": phase,
        "step": episode.step,
        "env": trajectory.env,
        "task": {name: getattr(episode.task, name) for name in _OF_TASK},
        "ids": list(trajectory.ids),
        "authors": "".join("PME"[author] for author in trajectory.authors),
        "turn": [n if n < 0 else trajectory.num_kept + n for n in trajectory.turns_of],
        "policy_version": max(trajectory.policy_versions, default=-1),
        "sampler_logp": [logp if is_finite(logp) else None for logp in trajectory.sampler_logps],
        **_spread(trajectory, columns),
        "generated_text": trajectory.generated_text,
        "turns": [
            turn_record(turn)
            | {"passages": [passage.id for passage in turn.passages], "reward": turn.reward}
            | {"ranks": [dict(one) for one in turn.ranks] or None, "score": score}
            for turn, score in zip(episode.turns, turn_scores, strict=True)
        ],
        "signals": dict(episode.signals),
        "final_answer": episode.final_answer,
        "stop_reason": str(episode.stop_reason),
        "reward": scored.reward,
        "scores": dict(scored.scores),
        "drawings": draw_rollout(rollout.world, episode),
        "unscored": scored.unscored,
        "failure": None
        if failure is None
        else {"kind": str(failure.kind), "owner": failure.owner, "message": failure.message},
    }


def turn_record(turn: EpisodeTurn) -> dict[str, Any]:
    """Return a turn and its observation, without the passages and the reward."""
    return {
        "text": turn.text,
        "action": turn.action.kind,
        "queries": list(turn.action.queries),
        "payload": plain_payload(turn.action),
        "reason": turn.action.reason,
        "observation": turn.observation,
    }


def plain_payload(action: Action) -> Any:
    """Payload of an action of a kind that the core does not know, as JSON or its `repr`."""
    if action.kind in (SEARCH, ANSWER, INVALID):
        return None
    payload = action.payload
    if is_dataclass(payload) and not isinstance(payload, type):
        payload = {field.name: getattr(payload, field.name) for field in fields(payload)}
    try:
        return json.loads(json.dumps(payload, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(action.payload)


def _spread(
    trajectory: Trajectory, columns: Mapping[RowId, TokenColumns]
) -> dict[str, float | list[Any] | None]:
    """Columns of the update over all tokens; null where it saw none, or no finite number."""
    spread: dict[str, Any] = dict.fromkeys(("ratio", "entropy", "advantage", "weight", "clipped"))
    start = 0
    for number, segment in enumerate(trajectory.segments):
        figures = columns.get((trajectory.rollout_id, number))
        trained = [place for place, is_trained in enumerate(segment.trained) if is_trained]
        for name, values in () if figures is None else figures._asdict().items():
            if name == "clipped" and values is not None:
                spread[name] = (spread[name] or []) + [start + trained[one] for one in values]
            elif isinstance(values, tuple):
                row = spread[name] = spread[name] or [None] * len(trajectory)
                for place, value in zip(trained, values, strict=True):
                    row[start + place] = value if is_finite(value) else None
            else:
                spread[name] = values
        start += len(segment)
    return spread
