"""A run folder written by hand, of which every answer on the page is known.

Step 1 has one group of four on `chess` (two hops): one rollout is right, one misses the second
passage, one answers without a search, one failed. `before` and `after` play `chess` and `hall`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from searchrl.config import build_config
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.run_folder import RunWriter

HOSTILE = '<script>document.title = "taken"</script><img src=x onerror="document.title=1">'

CHESS = ("chess", "Who looks after the room of the chess club?", ("art-1", "art-2"), ["Nora Fell"])
HALL = ("hall", "When does the hall close?", ("art-3",), ["16:45"])

_TOKENIZER = Tokenizer.from_file(f"{find_packaged(EMBEDDED)}/tokenizer.json")


def encode(text: str) -> list[int]:
    """Ids of a text in the tokenizer of the embedded model."""
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids


def search(query: str, shown: Sequence[str], **more: Any) -> dict[str, Any]:
    """A turn that searched and was shown these passages."""
    observation = "".join(f"Doc {i}: {name} says so. " for i, name in enumerate(shown, 1))
    return turn("search", f"<search>{query}</search>", queries=[query], passages=list(shown),
                observation=observation, **more)  # fmt: skip


def answer(text: str) -> dict[str, Any]:
    """A turn that answered."""
    return turn("answer", f"<answer>{text}</answer>")


def turn(action: str, text: str, **more: Any) -> dict[str, Any]:
    """A stored turn."""
    blank = {"queries": [], "payload": None, "reason": "", "observation": "", "passages": []}
    return {"text": text, "action": action, **blank, "reward": 0.0, "ranks": None} | more


def make_row(
    name: str,
    task: tuple[str, str, tuple[str, ...], list[str]],
    turns: Sequence[Mapping[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    """A stored rollout; its tokens are those of its turns."""
    parts: list[tuple[str, int, str]] = [("P", -1, task[1])]
    for number, one in enumerate(turns):
        parts += [("M", number, one["text"])]
        parts += [("E", number, one["observation"])] if one["observation"] else []
    columns: list[tuple[int, str, int]] = []
    for author, number, text in parts:
        columns += [(token, author, number) for token in encode(text)]
    own = [author == "M" for _, author, _ in columns]
    is_trained = more.get("advantage") is not None
    last = turns[-1] if turns else turn("invalid", "")
    given = last["text"][8:-9] if last["action"] == "answer" else None
    is_right = given in task[3]
    return {
        "rollout_id": name, "group_id": name.rpartition("/")[0], "segments": [0],
        "origin": "sampled", "phase": "train", "step": 1, "env": "regulations",
        "task": {"id": task[0], "split": "train", "index": 0, "kind": "two_hop", "slices": [],
                 "question": task[1], "answers": task[3], "gold_ids": list(task[2])},
        "ids": [token for token, _, _ in columns],
        "authors": "".join(author for _, author, _ in columns),
        "turn": [number for _, _, number in columns],
        "policy_version": 0,
        "sampler_logp": [-0.5 if mine else None for mine in own],
        "ratio": [1.0 if mine else None for mine in own] if is_trained else None,
        "entropy": [0.9 if mine else None for mine in own] if is_trained else None,
        "advantage": None, "weight": 0.01 if is_trained else None,
        "clipped": [] if is_trained else None,
        "generated_text": "", "turns": list(turns), "signals": {},
        "final_answer": given, "stop_reason": "answered",
        "reward": 1.0 + is_right, "scores": {"format": 1.0, "em": float(is_right)},
        "unscored": None, "failure": None, "drawings": [],
    } | more  # fmt: skip


def make_rows() -> dict[str, list[dict[str, Any]]]:
    """File of rollouts -> its rows."""
    first = {"art-1": 1, "art-2": 9}
    second = {"art-1": 2, "art-2": 1}
    right = [
        search("room of the chess club", ["art-1", "art-7"], ranks=[first]),
        search("who looks after room B12", ["art-2", "art-1"], ranks=[second]),
        answer("Nora Fell"),
    ]
    missed = [search("room of the chess club", ["art-1", "art-7"], ranks=[first]), answer("B12")]
    failure = {"kind": "retriever", "owner": "retriever 'web' (shop)", "message": "it is down"}
    drawings = [
        {"by": "reward 'plan'", "kind": "graph", "title": "the plan", "nodes": {"a": "one"},
         "edges": []},
        {"by": "env 'handbook'", "kind": "text", "title": HOSTILE, "text": HOSTILE},
        {"by": "protocol 'x'", "kind": "table", "title": "the scores", "columns": ["name", "score"],
         "rows": [[HOSTILE, 0.25]]},
    ]  # fmt: skip
    train = [
        make_row("step0/p0/0", CHESS, right, advantage=1.4, drawings=drawings),
        make_row("step0/p0/1", CHESS, missed, advantage=-0.7),
        make_row("step0/p0/2", CHESS, [answer("I do not know")], advantage=-0.7),
        make_row("step0/p0/3", CHESS, [], reward=None, scores={}, failure=failure,
                 stop_reason="failed", unscored="it is down"),
    ]  # fmt: skip
    before = [
        make_row("eval/0/0/0", CHESS, [answer("nobody")], phase="before", step=0),
        make_row("eval/0/1/0", HALL, [answer("16:45")], phase="before", step=0),
    ]
    after = [
        make_row("eval/0/0/0", CHESS, right, phase="after", step=1),
        make_row("eval/0/1/0", HALL, [answer(HOSTILE)], phase="after", step=1),
    ]
    return {"eval_before": before, "step_000001": train, "eval_after": after}


def metric(value: float) -> dict[str, float]:
    """A metric with an interval."""
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "n": 2}


ALARM = {
    "step": 1, "alarm": "collapse", "severity": "critical", "action": "warn", "since": 1,
    "what": "The agent stopped searching.", "why": "It cannot know the answers.",
    "tries": ["lower the learning rate", "add a reward for searching"],
}  # fmt: skip


def write_run(folder: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> Path:
    """Write the folder and return it."""
    config = build_config(
        # As a run stores it: with what `auto` means for the environment.
        {
            "env": "regulations",
            "reward": "format+em",
            "protocol": "think-search-answer",
            "retriever": "bm25",
            "model": {"name": "tiny"},
            "max_steps": 1,
            "log": {"max_rollout_files": 1},
        }
    )
    writer = RunWriter.create(config, folder)
    writer.write_provenance([], seed=0)
    for name, of_file in (make_rows() if rows is None else rows).items():
        writer.write_rollouts(name, of_file, compress=True)
    writer.log(0, {"reward": metric(1.5), "em": metric(0.5)}, "before")
    for step, reward, passive in ((1, 1.2, 0.4), (2, 1.6, 0.2)):
        figures = {"reward": reward, "passive": passive, "sampled_tokens": 50.0 * step}
        writer.log(step, {name: metric(value) for name, value in figures.items()}, "train")
    writer.log(2, {"reward": metric(1.8), "em": metric(0.9)}, "after")
    writer.write_alarm(ALARM)
    return folder
