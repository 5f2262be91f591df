"""Whether answers rest on what was read: the same tasks, played again with one thing changed.

Owns what is changed for the policy, and how an answer then counts. The passages are changed by the
wrapper `altered`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from searchrl.engine.metrics.evaluation import EvalResult
from searchrl.engine.model.rendering import TextCodec
from searchrl.engine.rollout.dialogue import Branch
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.sampling.stops import find_stop_end
from searchrl.errors import ConfigError
from searchrl.programs.evaluate import Player, needs_model
from searchrl.protocols.inline import InlineProtocol
from searchrl.rewards import answers
from searchrl.statistics import compare, estimate

AS_IS = "as it is"
CHANGES = ("value", "other", "none")
THOUGHTS = "thoughts"

STICKS, FOLLOWS, GIVES_UP, OTHER = OUTCOMES = ("sticks", "follows", "gives_up", "other")
"""Outcomes of an episode: the answer is the gold one, the changed one, none, or another."""

_NO_ANSWER = re.compile(
    r"unknown|none|no ?answer|(?:i |it |is )*(?:cannot|cant|dont|not|could not|do not|does not)\b.*"
)


def play_changed(
    player: Player, on_phase: Callable[[str, int, int], None]
) -> dict[str, EvalResult]:
    """Play the test tasks as they are, and once for each change, by its name.

    Raises:
        ConfigError: for an environment that has a wrapper already.
    """
    config = player.config
    if wrapped := [task.wrapper.name for task in config.tasks if task.wrapper]:
        raise ConfigError(
            f"the wrapper '{wrapped[0]}' stands where 'altered' has to; leave it out: "
            "--set wrapper=null"
        )
    play = partial(player.play, split=config.eval.split, num_tasks=config.eval.num_tasks)
    results = {AS_IS: play(on_progress=partial(on_phase, AS_IS))}
    for change in CHANGES:
        wrapper = {"wrapper": {"name": "altered", "change": change}}
        results[change] = play(wrapper, on_progress=partial(on_phase, change))
    whole = results[AS_IS].rollouts
    if needs_model(config.policy) and isinstance(whole[0].world.protocol.inner, InlineProtocol):
        made = {one.trajectory.group_id: blank(one, player.driver.codec) for one in whole}
        branches = {name: branch for name, branch in made.items() if branch is not None}
        played = play(branches=branches, on_progress=partial(on_phase, THOUGHTS))
        # Where nothing was thought before the answer, there is nothing to take away.
        same = tuple(one for one in whole if one.trajectory.group_id not in branches)
        results[THOUGHTS] = replace(played, rollouts=(*played.rollouts, *same))
    return results


def blank(rollout: Rollout, codec: TextCodec) -> Branch | None:
    """The turns before the last one, with no text in their thoughts; None: it has one turn."""
    trajectory, protocol = rollout.trajectory, rollout.world.protocol
    turns, spans = rollout.episode.turns[:-1], trajectory.turns
    if not turns or len(spans) <= len(turns):
        return None
    think = protocol.inner.tags.think
    thought = re.compile(rf"(?s)(<{think}>\s*).*?(\s*</{think}>)")
    ids, kept, num_tokens = list(trajectory.ids[: spans[0].start]), [], 0
    for turn, span, after in zip(turns, spans, spans[1:], strict=False):
        sampled = codec.decode(trajectory.ids[span.start : span.stop])
        # What stands before it is the end of the prompt: a template may open the thought.
        start = len(turn.text) - len(sampled[: find_stop_end(sampled, protocol.stops)])
        text = thought.sub(r"\1\2", turn.text)
        own = codec.encode_model_text(text[start:])
        ids += [*own, *trajectory.ids[span.stop : after.start]]
        num_tokens += len(own)
        kept.append(replace(turn, text=text))
    return Branch(trajectory.rollout_id, tuple(kept), tuple(ids), num_tokens)


def measure_changed(results: Mapping[str, EvalResult], normalization: str) -> dict[str, Any]:
    """Shares of each outcome, for every change, and their differences to the tasks as they are.

    Over the tasks that have a value to change, and that did not fail with any change. `if_shown`
    are the shares over those that showed the changed value: no other can follow.
    """
    rollouts = {
        name: {r.trajectory.group_id: r for r in result.rollouts if r.episode.failure is None}
        for name, result in results.items()
    }
    value = rollouts["value"]
    names = [n for n, one in value.items() if one.task.changed_answers]
    names = [n for n in names if all(n in played for played in rollouts.values())]
    if not names:
        raise ConfigError(
            "no task has a value that can be changed: an answer that is a text of a passage, and "
            "not of the question, and another task with one of the same kind"
        )
    figures = {
        change: _spread(
            {n: _judge(played[n], value[n].task.changed_answers, normalization) for n in names}
        )
        for change, played in rollouts.items()
    }
    shown = {n: float(any(p.original for p in value[n].episode.passages)) for n in names}
    if_shown = {
        name: {task: one for task, one in of_task.items() if shown[task]}
        for name, of_task in figures["value"].items()
    }
    return {
        "num_tasks": len(results[AS_IS].rollouts),
        "num_changed": len(names),
        "shown": estimate({"shown": shown})["shown"],
        "outcomes": {change: estimate(one) for change, one in figures.items()},
        "if_shown": estimate(if_shown),
        "paired": {
            change: compare(one, figures[AS_IS])
            for change, one in figures.items()
            if change != AS_IS
        },
    }


def _spread(outcomes: Mapping[str, str]) -> dict[str, dict[str, float]]:
    return {name: {n: float(one == name) for n, one in outcomes.items()} for name in OUTCOMES}


def _judge(rollout: Rollout, changed: Sequence[str], normalization: str) -> str:
    answer = rollout.episode.final_answer
    if answers.em(answer, rollout.task.answers, normalization):
        return STICKS
    if answers.em(answer, changed, normalization):
        return FOLLOWS
    is_given_up = answer is None or _NO_ANSWER.fullmatch(answers.normalize_n1(answer))
    return GIVES_UP if is_given_up else OTHER
