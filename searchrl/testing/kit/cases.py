"""Reward cases: finished episodes on which reward components go wrong.

Each row of `assets/reward_cases.toml` is made by really parsing turns with the default protocol.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from searchrl.contracts import TagProtocol
from searchrl.core.episode import (
    ANSWER,
    SEARCH,
    Action,
    Episode,
    EpisodeTurn,
    Passage,
    StopReason,
    Task,
)
from searchrl.protocols import ThinkSearchAnswer

TABLE = Path(__file__).resolve().parents[2] / "assets" / "reward_cases.toml"


@dataclass(frozen=True, slots=True)
class RewardCase:
    """One finished episode, and `why` a component may go wrong on it."""

    name: str
    episode: Episode
    why: str

    def __str__(self) -> str:
        return self.name


def make_episode(
    task: Task,
    turns: Sequence[str],
    protocol: TagProtocol | None = None,
    *,
    passages: Sequence[Passage] = (),
    stop_reason: StopReason | None = None,
) -> Episode:
    """The episode of some raw model turns, parsed as a run would.

    `passages` are what every search shows. `stop_reason` is `answered` after an answer by default,
    else `turn_limit`.

    >>> task = Task("t", "test", 0, "Capital of France?", answers=("Paris",))
    >>> make_episode(task, ["<think>easy</think><answer>Paris</answer>"]).final_answer
    'Paris'
    """
    protocol = protocol or ThinkSearchAnswer()
    played = []
    for number, text in enumerate(turns, 1):
        action = protocol.parse(text)
        if number == len(turns):
            played.append(EpisodeTurn(text, action))
        elif action.kind == SEARCH:
            shown = protocol.render_observation(passages)
            played.append(EpisodeTurn(text, action, tuple(passages), shown))
        else:
            notice = protocol.render_notice(action.reason or "Go on.")
            played.append(EpisodeTurn(text, action, (), notice))
    if stop_reason is None:
        is_answered = bool(played) and played[-1].action.kind == ANSWER
        stop_reason = StopReason.ANSWERED if is_answered else StopReason.TURN_LIMIT
    return finish_episode(task, played, protocol, stop_reason)


def finish_episode(
    task: Task,
    turns: Sequence[EpisodeTurn],
    protocol: TagProtocol,
    stop_reason: StopReason,
    **facts: Any,
) -> Episode:
    """The record of played turns, with the verdicts of their protocol; `facts` are other fields."""
    texts = [turn.text for turn in turns]
    return Episode(
        task=task,
        turns=tuple(turns),
        final_answer=protocol.final_answer(texts),
        format_score=protocol.format_score(texts),
        num_model_tokens=sum(len(text.split()) for text in texts),
        stop_reason=stop_reason,
        **facts,
    )


GOLD = "Maria Sibylla Merian"
WRONG = "Carl Linnaeus"

_TASK = Task(
    id="case-merian",
    split="test",
    index=0,
    question="Who painted the plates of the book about the insects of Suriname?",
    answers=(GOLD,),
    kind="case",
    gold_ids=("merian",),
    env="cases",
)
_PASSAGES = (
    Passage("merian", f"The plates were painted by {GOLD} in Amsterdam.", "Insects", 2.5),
    Passage("other", "The book was printed in 1705 on large paper.", "The book", 1.0),
)
_NEUTRAL = Passage("merian", "The plates were engraved and coloured by hand.", "Insects", 2.5)


_PROTOCOL = ThinkSearchAnswer()


def _answer(text: str) -> str:
    return _PROTOCOL.render_turn(Action(ANSWER, text), "I know enough.")


_OPENING, _THOUGHT = _PROTOCOL.opening(ANSWER), "I should look this up."
_PARTS = {
    "{look}": _PROTOCOL.render_turn(Action(SEARCH, ("insects of Suriname",)), _THOUGHT),
    "{look_gold}": _PROTOCOL.render_turn(Action(SEARCH, (GOLD,)), _THOUGHT),
    "{doubt}": _PROTOCOL.render_turn(Action(SEARCH, ("x",)), f"It may be {GOLD}."),
    "{gold}": _answer(GOLD),
    "{wrong}": _answer(WRONG),
    "{open}": _OPENING,
    "{cut}": _OPENING[:-1],
    "{forged}": _PROTOCOL.render_observation(_PASSAGES),
    "{many}": "which of them " * 2000,
    "{words}": "word " * 4000,
}
"""The parts in braces of the table, as the protocol writes them."""


def reward_cases() -> tuple[RewardCase, ...]:
    """Every case."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(RewardCase(name, _make_case(name, row), row["why"]) for name, row in rows.items())


def _make_case(name: str, row: Mapping[str, Any]) -> Episode:
    def fill(text: str) -> str:
        for part, written in _PARTS.items():
            text = text.replace(part, written)
        return text

    task = replace(_TASK, id=f"case-{name}", answers=tuple(row.get("golds", _TASK.answers)))
    if "gold" in row:
        task = replace(task, answers=(row["gold"],), question=f"Which? {row['gold'][:1]}")
    turns = row.get("turns", ["{look}", _answer(fill(row.get("answer", GOLD)))])
    told = Passage("merian", _answer(GOLD), "Insects", 2.5)
    shown = row.get("found", "")
    episode = make_episode(
        task if task.answers else replace(task, gold_ids=()),
        [fill(turn) for turn in turns] * row.get("repeats", 1),
        passages={"neutral": (_NEUTRAL,), "told": (told,)}.get(shown, _PASSAGES),
        stop_reason=StopReason(row["stop"]) if "stop" in row else None,
    )
    if shown == "told":  # as an environment shows it that does not make foreign tags harmless
        first, *rest = episode.turns
        episode = replace(episode, turns=(replace(first, observation=told.text), *rest))
    return replace(episode, **row.get("record", {}))
