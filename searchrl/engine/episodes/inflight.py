"""Rollouts of the step that is being sampled, on disk as they finish.

Owns `rollouts/.step_NNNNNN.inflight`: one line per finished episode, whole enough to train on: its
SHA-256, a space, its JSON. A line that is not what was written is left out and sampled again.
The file goes when the step is recorded. A run that was stopped while it sampled has one; `--resume`
removes it and samples the step again, which repeats it bit for bit, and `--resume-inflight` takes
the episodes from it. An episode that JSON cannot hold exactly (a plugin's own object in an action)
is not kept. Callers: `train`, and the rollout driver.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from searchrl.core.episode import SEARCH, Action, Episode, ToolCall
from searchrl.core.trajectory import Origin, Trajectory, TurnStop, View
from searchrl.run_folder import guarding

_SUFFIX = ".inflight"
_EPISODE: TypeAdapter[Episode] = TypeAdapter(Episode)

_UNFIT = (ValueError, ValidationError, LookupError, TypeError, AttributeError, RecursionError)
"""What a line raises that no run wrote: whoever makes a run folder can make checksums, too."""


class Played(NamedTuple):
    """A finished episode and its tokens."""

    trajectory: Trajectory
    episode: Episode


class Inflight:
    """The episodes of one step that have finished so far.

    Args:
        run_dir: the run folder.
        step: the step that is sampled, counted from 1 as in the names of files.
    """

    def __init__(self, run_dir: Path, step: int) -> None:
        self.run_dir = run_dir
        self.path = run_dir / "rollouts" / f".step_{step:06d}{_SUFFIX}"
        self.found: dict[str, Played] = {}
        """By rollout id, what an earlier process left; empty before `read`."""
        self.num_damaged = 0
        """Lines that `read` left out, but for a last one that a kill has torn."""

    def read(self) -> int:
        """Take what an earlier process left of this step; returns how many episodes that is."""
        try:
            *lines, torn = self.path.read_bytes().split(b"\n")
        except OSError:  # there is none, or it cannot be read: all is sampled anew
            return 0
        if torn:
            with guarding(self.run_dir):
                os.truncate(self.path, sum(len(line) + 1 for line in lines))
        for line in lines:
            played = _decode(line)
            if played is None:
                self.num_damaged += 1
            else:
                self.found[played.trajectory.rollout_id] = played
        return len(self.found)

    def add(self, played: Played) -> None:
        """Append a finished episode. Raises `RunFolderError` if it cannot be written."""
        line = _encode(played)
        if line is not None:
            self._append(line)

    def _append(self, data: bytes) -> None:
        with guarding(self.run_dir):
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("ab") as file:
                file.write(data)

    def remove(self) -> None:
        """The step is recorded."""
        with guarding(self.run_dir):
            self.path.unlink(missing_ok=True)


def remove_inflight(run_dir: Path, but: int | None = None) -> None:
    """Remove the files of all steps, but for the step `but`."""
    with guarding(run_dir):
        for path in (run_dir / "rollouts").glob(f".step_*{_SUFFIX}"):
            if but is None or path != Inflight(run_dir, but).path:
                path.unlink()


def _encode(played: Played) -> bytes | None:
    """One line; None for an episode that would not be read back as it is."""
    episode = played.episode
    payloads = [turn.action.payload for turn in episode.turns]
    if not all(map(_is_exact, (dict(episode.task.meta), dict(episode.signals), *payloads))):
        return None
    try:
        tokens = json.dumps(_flat(played.trajectory), allow_nan=False).encode()
        told = _EPISODE.dump_json(episode)
    except ValueError:  # a number that is not finite, or half a surrogate pair
        return None
    row = b'{"trajectory": ' + tokens + b', "episode": ' + told + b"}"
    return _digest(row) + b" " + row + b"\n"


def _digest(row: bytes) -> bytes:
    return hashlib.sha256(row).hexdigest().encode()


def _is_exact(value: Any) -> bool:
    """Whether JSON, and what `_restore` knows, give this value back as it is."""
    if isinstance(value, ToolCall):
        return _is_exact(dict(value.arguments))
    if type(value) is dict:
        return all(type(key) is str and _is_exact(inner) for key, inner in value.items())
    if type(value) is list:
        return all(map(_is_exact, value))
    if type(value) is tuple:  # the queries of a search
        return all(type(one) is str for one in value)
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (str, bool, int)


def _decode(line: bytes) -> Played | None:
    """What a line holds; None for one that is not what was written."""
    digest, _, text = line.partition(b" ")
    if digest != _digest(text):
        return None
    try:
        row = json.loads(text)
        trajectory = _build(row["trajectory"])
        episode = _EPISODE.validate_json(json.dumps(row["episode"]))
    except _UNFIT:
        return None
    turns = tuple(
        replace(turn, action=_restore(turn.action, turn.action.payload)) for turn in episode.turns
    )
    return Played(trajectory, replace(episode, turns=turns))


def _restore(action: Action, payload: Any) -> Action:
    """An action whose payload is what the core knows of its kind."""
    if action.kind == SEARCH:
        return replace(action, payload=tuple(payload))
    if isinstance(payload, Mapping) and payload.keys() == {"name", "arguments"}:
        return replace(action, payload=ToolCall(**payload))
    return action


def _flat(trajectory: Trajectory) -> dict[str, Any]:
    """The ledger as it was appended."""
    ids, logps, versions = trajectory.ids, trajectory.sampler_logps, trajectory.policy_versions
    turns = trajectory.turns
    nexts = [*(turn.start for turn in turns[1:]), len(ids)]
    return {
        "rollout_id": trajectory.rollout_id,
        "group_id": trajectory.group_id,
        "env": trajectory.env,
        "task_id": trajectory.task_id,
        "origin": trajectory.origin,
        "generated_text": trajectory.generated_text,
        "after": trajectory.after and _flat_view(trajectory.after),
        "prompt": ids[: trajectory.num_prompt_tokens],
        "turns": [
            {
                "ids": ids[turn.start : turn.stop],
                "logps": logps[turn.start : turn.stop],
                "version": versions[turn.start] if turn.stop > turn.start else -1,
                "reason": turn.reason,
                "overhang": turn.overhang,
                "observation": ids[turn.stop : following],
                **(_flat_choice(trajectory, turn.index) if trajectory.views else {}),
            }
            for turn, following in zip(turns, nexts, strict=bool(turns))
        ],
    }


def _flat_choice(trajectory: Trajectory, turn: int) -> dict[str, Any]:
    return _flat_view(trajectory.views[turn]) | {"probs": list(trajectory.probs[turn])}


def _flat_view(view: View) -> dict[str, Any]:
    return {"seen": base64.b64encode(view.values).decode(), "legal": list(view.legal)}


def _build_view(turn: Mapping[str, Any]) -> View:
    return View(base64.b64decode(turn["seen"], validate=True), tuple(map(bool, turn["legal"])))


def _build(flat: Mapping[str, Any]) -> Trajectory:
    trajectory = Trajectory(
        rollout_id=flat["rollout_id"],
        group_id=flat["group_id"],
        env=flat["env"],
        task_id=flat["task_id"],
        origin=Origin(flat["origin"]),
        generated_text=flat["generated_text"],
        after=flat["after"] and _build_view(flat["after"]),
    )
    trajectory.append_prompt(flat["prompt"])
    for turn in flat["turns"]:
        trajectory.append_model(
            turn["ids"],
            turn["logps"],
            version=turn["version"],
            reason=TurnStop(turn["reason"]),
            overhang=turn["overhang"],
            saw=_build_view(turn) if "legal" in turn else None,
            probs=turn.get("probs", ()),
        )
        trajectory.append_env(turn["observation"])
    return trajectory
