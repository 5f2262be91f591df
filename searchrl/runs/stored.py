"""Episodes rebuilt from the rows of a run folder, for rewards.

A component that reads what a row does not hold (the text of passages, `Task.meta`) fails with a
sentence that says so, and its episode is unscored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from searchrl.contracts import TagProtocol
from searchrl.core.episode import (
    ANSWER,
    COMPACT,
    INVALID,
    SEARCH,
    Action,
    Episode,
    EpisodeTurn,
    Failure,
    FailureKind,
    Passage,
    StopReason,
    Task,
)
from searchrl.errors import ScoringFailure


def _refuse(what: str) -> NoReturn:
    raise ScoringFailure(
        f"{what} is not in stored rollouts; score with this component while the episodes are "
        "played: searchrl eval RUN --reward …"
    )


class StoredPassage(Passage):
    """A passage of which a row holds the id only."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("text", "title", "score", "original"):
            _refuse(f"the {name} of passage {self.id!r}")
        return super().__getattribute__(name)


class StoredMeta(Mapping[str, Any]):
    """The `meta` of a task, which no row holds. `get` and `in` ask for the value as well."""

    def __getitem__(self, key: str) -> Any:
        _refuse(f"Task.meta[{key!r}]")

    def __iter__(self) -> Iterator[str]:
        _refuse("Task.meta")

    def __len__(self) -> int:
        _refuse("Task.meta")


def read_episode(row: Mapping[str, Any], protocol: TagProtocol) -> Episode:
    """The episode of a rollout row; the verdict on its format is asked of `protocol` again."""
    task, failure = row["task"], row["failure"]
    turns = tuple(_read_turn(turn, protocol, row["final_answer"]) for turn in row["turns"])
    # A failure of scoring is what is tried again; one of the episode itself stays.
    has_failed = failure is not None and row["stop_reason"] == StopReason.FAILED
    facts = {name: task[name] for name in ("id", "split", "index", "kind", "question")}
    facts |= {name: tuple(task[name]) for name in ("answers", "gold_ids", "slices")}
    facts["changed_answers"] = tuple(task.get("changed_answers", ()))
    facts |= {"difficulty": task.get("difficulty", ""), "env": row["env"], "meta": StoredMeta()}
    return Episode(
        task=Task(**facts),
        turns=turns,
        final_answer=row["final_answer"],
        format_score=protocol.format_score([t.text for t in turns if t.action.kind != COMPACT]),
        signals=dict(row.get("signals", {})),
        env_return=sum(turn.reward for turn in turns),
        num_model_tokens=row["authors"].count("M"),
        stop_reason=StopReason(row["stop_reason"]),
        failure=Failure(FailureKind(failure["kind"]), failure["owner"], failure["message"])
        if has_failed
        else None,
        step=row["step"],
    )


def _read_turn(
    turn: Mapping[str, Any], protocol: TagProtocol, final_answer: str | None
) -> EpisodeTurn:
    """A turn. The payload of its action is read in its text again, where a row does not hold it."""
    text, kind, payload = turn["text"], turn["action"], turn["payload"]
    if kind == SEARCH:
        payload = tuple(turn["queries"])
    elif kind != INVALID:
        again = protocol.parse(text)
        if again.kind == kind:
            payload = again.payload
        elif kind == ANSWER:  # the environment read it in its own way
            payload = final_answer or ""
    return EpisodeTurn(
        text=text,
        action=Action(kind, payload, turn["reason"]),
        passages=tuple(StoredPassage(name, "") for name in turn["passages"]),
        observation=turn["observation"],
        reward=turn["reward"],
        ranks=tuple(turn.get("ranks") or ()),
    )
