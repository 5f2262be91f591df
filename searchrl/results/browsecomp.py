"""Episodes as a run of BrowseComp-Plus: a folder with one JSON file per question.

Owns that format, as the evaluation scripts of texttron/BrowseComp-Plus read it: `run_*.json` with
`query_id`, `status`, `tool_call_counts`, `retrieved_docids` and `result` (arXiv 2508.06600). So
their judge and their recall can be had for our agents. Caller: `searchrl eval --browsecomp`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from searchrl.core.encoding import encode_text
from searchrl.core.episode import ANSWER, SEARCH, EpisodeTurn, StopReason
from searchrl.engine.episodes.playing import Rollout
from searchrl.errors import RunFolderError
from searchrl.run_folder import guarding

COMPLETED, INCOMPLETE = "completed", "incomplete"
"""The two statuses. Their scripts take only `completed` ones for answers."""


def write_browsecomp(folder: Path, rollouts: Iterable[Rollout], model: str) -> int:
    """Write the episodes that did not fail to a new or empty folder; returns how many there were.

    Of several samples of a task only the first is written: the format has one per question.

    Args:
        folder: where.
        rollouts: the episodes.
        model: who played them.

    Raises:
        RunFolderError: if the folder holds something already, or cannot be written.
    """
    ensure_new(folder)
    written: set[str] = set()
    with guarding(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for rollout in rollouts:
            query_id = rollout.episode.task.id
            if rollout.episode.failure is not None or query_id in written:
                continue
            written.add(query_id)
            text = json.dumps(browsecomp_row(rollout, model), indent=2, ensure_ascii=False)
            (folder / f"run_{len(written):06d}.json").write_bytes(encode_text(f"{text}\n"))
    return len(written)


def ensure_new(folder: Path) -> None:
    """Refuse a folder that holds something, before anything is played.

    Raises:
        RunFolderError: naming it.
    """
    with guarding(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunFolderError(f"'{folder}' is not an empty folder; choose another")


def browsecomp_row(rollout: Rollout, model: str) -> Mapping[str, Any]:
    """One episode as one file of a run."""
    episode = rollout.episode
    is_completed = episode.stop_reason is StopReason.ANSWERED and episode.final_answer is not None
    counts = {"search": sum(len(turn.action.queries) for turn in episode.turns)}
    calls = {"tool": episode.num_tool_calls}
    return {
        "metadata": {"model": model, "env": rollout.world.name},
        "query_id": episode.task.id,
        "tool_call_counts": {name: n for name, n in (counts | calls).items() if n},
        "status": COMPLETED if is_completed else INCOMPLETE,
        "retrieved_docids": list(dict.fromkeys(passage.id for passage in episode.passages)),
        "result": [step for turn in episode.turns for step in _steps(turn)],
    }


def _steps(turn: EpisodeTurn) -> Iterable[dict[str, Any]]:
    """A turn as steps: what was thought, then what was done."""
    action = turn.action
    if action.kind == ANSWER:
        yield {
            "type": "output_text",
            "tool_name": None,
            "arguments": None,
            "output": str(action.payload),
        }
        return
    yield {"type": "reasoning", "tool_name": None, "arguments": None, "output": [turn.text]}
    found = [
        {"docid": passage.id, "snippet": passage.text, "score": passage.score}
        for passage in turn.passages
    ]
    if action.kind == SEARCH:
        yield {
            "type": "tool_call",
            "tool_name": "search",
            "arguments": json.dumps({"query": "\n".join(action.queries)}, ensure_ascii=False),
            "output": json.dumps(found, ensure_ascii=False),
        }
