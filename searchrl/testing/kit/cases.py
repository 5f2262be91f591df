"""Reward cases: finished episodes on which reward components go wrong.

Owns how the table `assets/reward_cases.toml` becomes episodes. Each is made by really parsing turns
with a protocol, so that actions, final answer and format verdict are what a run would have
recorded. The criteria of rewards run over it; authors may too, with
`@pytest.mark.parametrize("case", reward_cases(), ids=str)`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from searchrl.contracts import TagProtocol
from searchrl.core import episode as records
from searchrl.core.episode import ANSWER, SEARCH, Action, Episode, EpisodeTurn, Passage, Task

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
    stop_reason: records.StopReason | None = None,
) -> Episode:
    """The episode of some raw model turns, parsed as a run would.

    Args:
        task: what was asked.
        turns: what the model wrote, turn by turn.
        protocol: reads the turns and wraps the passages; the default protocol if None.
        passages: what every search shows.
        stop_reason: why it ended; by default `answered` after an answer, else `turn_limit`.

    >>> task = Task("t", "test", 0, "Capital of France?", answers=("Paris",))
    >>> make_episode(task, ["<think>easy</think><answer>Paris</answer>"]).final_answer
    'Paris'
    """
    protocol = protocol or _default_protocol()
    played = []
    for number, text in enumerate(turns, 1):
        action = protocol.parse(text)
        is_last = number == len(turns)
        shown = tuple(passages) if action.kind == SEARCH and not is_last else ()
        if is_last:
            observation = ""
        elif action.kind == SEARCH:
            observation = protocol.render_observation(shown)
        else:
            observation = protocol.render_notice(action.reason or "Go on.")
        played.append(EpisodeTurn(text, action, shown, observation))
    if stop_reason is None:
        is_answered = bool(played) and played[-1].action.kind == ANSWER
        stop_reason = records.StopReason.ANSWERED if is_answered else records.StopReason.TURN_LIMIT
    return finish_episode(task, played, protocol, stop_reason)


def finish_episode(
    task: Task,
    turns: Sequence[EpisodeTurn],
    protocol: TagProtocol,
    stop_reason: records.StopReason,
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


def reward_cases(protocol: TagProtocol | None = None) -> tuple[RewardCase, ...]:
    """Every case, each of another name.

    Args:
        protocol: writes and reads the turns; the default protocol if None.

    Raises:
        ValueError: if the protocol writes no search or no answer turns.
    """
    maker = _Maker(protocol or _default_protocol())
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(RewardCase(name, maker.make(name, row), row["why"]) for name, row in rows.items())


def _default_protocol() -> TagProtocol:
    from searchrl.protocols import ThinkSearchAnswer

    return ThinkSearchAnswer()


class _Maker:
    def __init__(self, protocol: TagProtocol) -> None:
        self._protocol = protocol
        opening = protocol.opening(ANSWER)
        self._parts = {
            "{look}": self._search("insects of Suriname"),
            "{look_gold}": self._search(GOLD),
            "{doubt}": protocol.render_turn(Action(SEARCH, ("x",)), f"It may be {GOLD}."),
            "{gold}": self._answer(GOLD),
            "{wrong}": self._answer(WRONG),
            "{open}": opening,
            "{cut}": opening[:-1],
            "{forged}": protocol.render_observation(_PASSAGES),
            "{many}": "which of them " * 2000,
            "{words}": "word " * 4000,
        }

    def make(self, name: str, row: Mapping[str, Any]) -> Episode:
        """The episode of a row of the table."""
        turns = row.get("turns", ["{look}", self._answer(self._fill(row.get("answer", GOLD)))])
        found = row.get("found", "")
        told = Passage("merian", self._answer(GOLD), "Insects", 2.5)
        passages = {"neutral": (_NEUTRAL,), "told": (told,)}.get(found, _PASSAGES)
        episode = make_episode(
            self._task(name, row),
            [self._fill(turn) for turn in turns] * row.get("repeats", 1),
            self._protocol,
            passages=passages,
            stop_reason=records.StopReason(row["stop"]) if "stop" in row else None,
        )
        first, *rest = episode.turns or (None,)
        if found == "told" and first is not None:
            # As an environment shows it that does not make foreign tags harmless.
            return replace(episode, turns=(replace(first, observation=told.text), *rest))
        if name == "failed":
            kind = records.FailureKind.RETRIEVER
            failure = records.Failure(kind, "retriever 'x'", "ConnectionError: gone", "")
            return replace(
                episode, turns=episode.turns[:1], final_answer=None, format_score=0.0,
                stop_reason=records.StopReason.FAILED, failure=failure,
            )  # fmt: skip
        if name == "env-signals":
            signals = {"gold_shown": 0.5, "é": 1.0}
            return replace(episode, env_return=-2.5, signals=signals, step=7)
        return episode

    def _task(self, name: str, row: Mapping[str, Any]) -> Task:
        golds = (row["gold"],) if "gold" in row else tuple(row.get("golds", _TASK.answers))
        question = f"Which? {row['gold'][:1]}" if "gold" in row else _TASK.question
        ids = _TASK.gold_ids if golds else ()
        return replace(_TASK, id=f"case-{name}", answers=golds, question=question, gold_ids=ids)

    def _fill(self, text: str) -> str:
        for part, written in self._parts.items():
            text = text.replace(part, written)
        return text

    def _search(self, query: str) -> str:
        return self._protocol.render_turn(Action(SEARCH, (query,)), "I should look this up.")

    def _answer(self, text: str) -> str:
        return self._protocol.render_turn(Action(ANSWER, text), "I know enough.")
