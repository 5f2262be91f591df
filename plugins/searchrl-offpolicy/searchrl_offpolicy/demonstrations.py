"""Demonstrations: traces that were played in the training task that asks their question.

A trace is written anew by nobody: its turns go through the driver that plays scripts, which
tokenises each once, records who wrote which token and scores the episode. Only what comes out as it
went in is kept; the others are counted by reason and left out whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from searchrl import DataError
from searchrl.algorithms import Trainer
from searchrl.contracts import INVALID
from searchrl_offpolicy.traces import Trace, key_of, written_by

Task = tuple[int, int]
"""Entry, and index of a training task."""

QUESTION = "its question is asked by no training task"
TEMPLATE = "it holds tokens of a chat template"
LENGTH = "it is longer than the limits of the run"
AUTHORS = "a turn goes on behind its end, with what the environment writes"
OBSERVATIONS = "the environment answers something else"
TAGS = "a turn is not as the protocol writes it"
END = "its last turn does not end the episode, or one before it does"
FAILED = "its episode failed or was not scored"
FAILURE = "it is no success, or its reward is below min_reward"
TWICE = "it is there twice"


def load(
    traces: Iterable[Trace], trainer: Trainer, is_success: Callable[[Any], bool]
) -> dict[Task, list[Any]]:
    """Play traces; return those that fit, by task. Tell the user the counts and the reasons.

    Raises:
        DataError: none fits.
    """
    kept: dict[Task, list[Any]] = {}
    reasons: Counter[str] = Counter()
    seen = set[tuple[Task, tuple[str, ...]]]()
    for place, trace in _placed(list(traces), trainer):
        fault = QUESTION
        if place is not None:
            trace = written_by(trace, trainer.protocols[place[0]])
            fault = TWICE if (place, trace.turns) in seen else ""
        if place is not None and not fault:
            seen.add((place, trace.turns))
            rollout, fault = _play(trace, place, trainer)
            fault = fault or ("" if is_success(rollout) else FAILURE)
            if not fault:
                kept.setdefault(place, []).append(rollout)
                continue
        reasons[fault] += 1
    num_kept, num_left = sum(map(len, kept.values())), reasons.total()
    told = f"traces: {num_kept} of {num_kept + num_left} fit, for {len(kept)} training tasks"
    why = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
    if not kept:
        raise DataError(f"no trace of algorithm.traces fits this run ({why or 'there are none'})")
    trainer.on_note(f"{told}; left out {why}" if why else told)
    return kept


def _placed(traces: Sequence[Trace], trainer: Trainer) -> Iterator[tuple[Task | None, Trace]]:
    """Each trace with the training task whose question it answers.

    The question is its whole prompt or a line of it; or the task has its id, and is in the prompt.
    """
    keys = [set(filter(None, trace.questions())) for trace in traces]
    wanted = set().union(*keys)
    by_id: dict[str, list[int]] = {}
    for number, trace in enumerate(traces):
        by_id.setdefault(trace.task_id, []).append(number)
    asked: dict[str, Task] = {}
    named: dict[int, Task] = {}
    hints = sorted({trace.index for trace in traces if trace.index is not None})
    # All are looked through only for those that come from no run: making them takes its time.
    needs_all = any(trace.index is None for trace in traces)
    for entry, index, task in trainer.tasks(None if needs_all else hints):
        question = key_of(task.question)
        own = {n for n in by_id.get(task.id, ()) if question in key_of(traces[n].question)}
        if question not in wanted and not own:
            continue
        asked.setdefault(question, (entry, index))
        named = dict.fromkeys(own, (entry, index)) | named
        if all(n in named or asked.keys() & keys[n] for n in range(len(traces))):
            break
    for number, trace in enumerate(traces):
        found = next((asked[key] for key in trace.questions() if key in asked), None)
        yield found or named.get(number), trace


def _play(trace: Trace, place: Task, trainer: Trainer) -> tuple[Any, str]:
    if trace.holds_template:
        return None, TEMPLATE
    stops = trainer.protocols[place[0]].stops
    if any(stop in text.strip().removesuffix(stop) for text in trace.turns for stop in stops):
        return None, AUTHORS
    rollout = trainer.imitate(*place, trace.turns)
    played = rollout.episode.turns
    if played and trace.turns and played[0].text != trace.turns[0]:
        # The chat template has begun the turn already, as for a thinking model.
        prefix = played[0].text.removesuffix(trace.turns[0])
        turns = (trace.turns[0].removeprefix(prefix), *trace.turns[1:])
        rollout = trainer.imitate(*place, turns)
    return rollout, _find_fault(trace, rollout)


def _find_fault(trace: Trace, rollout: Any) -> str:
    episode, played = rollout.episode, rollout.episode.turns
    if episode.stop_reason in ("turn_tokens", "total_tokens"):
        return LENGTH
    if any(turn.action.kind == INVALID for turn in played):
        return TAGS
    shown = zip(trace.observations, played, strict=False)
    if any(before.strip() and before.strip() != now.observation.strip() for before, now in shown):
        return OBSERVATIONS
    if len(played) != len(trace.turns) or episode.stop_reason != "answered":
        return END
    if [turn.text for turn in played] != list(trace.turns):
        return TAGS
    return FAILED if rollout.reward is None else ""
