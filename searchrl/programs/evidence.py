"""Tasks played again with one thing changed, to see if the answers rest on what was read.

The wrapper `altered` changes passages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from searchrl.core.episode import Task
from searchrl.engine.metrics.evaluation import EvalResult
from searchrl.engine.model.rendering import TextCodec
from searchrl.engine.rollout.dialogue import Branch
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.sampling.stops import find_stop_end
from searchrl.errors import ConfigError
from searchrl.programs.evaluate import Player, needs_model
from searchrl.protocols.inline import InlineProtocol
from searchrl.rewards import answers
from searchrl.statistics import compare, estimate, proportion

AS_IS = "as_is"

OUTCOMES = ("sticks", "follows", "gives_up", "other")
"""The answer is the gold one, the changed one, none, or another."""

_NO_ANSWER = re.compile(
    r"unknown|none|no ?answer|(?:i |it |is )*(?:cannot|cant|dont|not|could not|do not|does not)\b.*"
)


def play_changed(
    player: Player, on_phase: Callable[[str, int, int], None]
) -> dict[str, EvalResult]:
    """Play the test tasks as they are, and once for each change, by its name.

    ConfigError for an environment that has a wrapper already.
    """
    config = player.config
    if wrapped := [task.wrapper.name for task in config.tasks if task.wrapper]:
        raise ConfigError(
            f"the wrapper '{wrapped[0]}' stands where 'altered' has to; leave it out: "
            "--set wrapper=null"
        )
    play = partial(player.play, split=config.eval.split, num_tasks=config.eval.num_tasks)
    results = {AS_IS: play(on_progress=partial(on_phase, AS_IS))}
    for change in ("value", "other", "none"):
        wrapper = {"wrapper": {"name": "altered", "change": change}}
        results[change] = play(wrapper, on_progress=partial(on_phase, change))
    whole = results[AS_IS].rollouts
    if needs_model(config.policy) and isinstance(whole[0].world.protocol.inner, InlineProtocol):
        several = [one for one in whole if len(one.episode.turns) > 1]
        branches = {one.trajectory.group_id: blank(one, player.driver.codec) for one in several}
        played = play(branches=branches, on_progress=partial(on_phase, "thoughts"))
        # Where nothing was thought before the answer, there is nothing to take away.
        same = tuple(one for one in whole if len(one.episode.turns) < 2)
        results["thoughts"] = replace(played, rollouts=(*played.rollouts, *same))
    return results


def blank(rollout: Rollout, codec: TextCodec) -> Branch:
    """The turns before the last one, with no text in their thoughts."""
    trajectory, protocol = rollout.trajectory, rollout.world.protocol.inner
    assert isinstance(protocol, InlineProtocol)
    think, spans = protocol.tags.think, trajectory.turns
    thought = re.compile(rf"(?s)(<{think}>\s*).*?(\s*</{think}>)")
    ids, kept, num_tokens = list(trajectory.ids[: spans[0].start]), [], 0
    for turn, (span, after) in zip(rollout.episode.turns, pairwise(spans), strict=False):
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
    """Shares of each outcome by change, and their differences to the tasks as they are.

    Over the tasks that have a value to change, and failed with no change. `if_shown`: with the
    change `value`, over those that showed the changed value; no other can follow.
    """
    played = {
        change: {r.trajectory.group_id: r for r in result.rollouts if r.episode.failure is None}
        for change, result in results.items()
    }
    tasks = {
        name: one
        for name, one in played["value"].items()
        if one.task.changed_answers and all(name in of_change for of_change in played.values())
    }
    if not tasks:
        raise ConfigError(
            "no task has a value that can be changed: an answer that is a text of a passage and "
            "not of the question, and a near task with another one of its kind"
        )
    figures = {}
    for change, of_change in played.items():
        judged = {n: _judge(of_change[n], one.task, normalization) for n, one in tasks.items()}
        figures[change] = {
            outcome: {n: float(one == outcome) for n, one in judged.items()} for outcome in OUTCOMES
        }
    shown = [n for n, one in tasks.items() if any(p.original for p in one.episode.passages)]
    if_shown = {name: {n: one[n] for n in shown} for name, one in figures["value"].items()}
    others = [change for change in figures if change != AS_IS]
    return {
        "num_tasks": len(results[AS_IS].rollouts),
        "num_changed": len(tasks),
        "shown": proportion(len(shown), len(tasks)),
        "outcomes": {change: estimate(one) for change, one in figures.items()},
        "if_shown": estimate(if_shown),
        "paired": {change: compare(figures[change], figures[AS_IS]) for change in others},
    }


def _judge(rollout: Rollout, changed: Task, normalization: str) -> str:
    answer = rollout.episode.final_answer
    if answers.em(answer, changed.answers, normalization):
        return "sticks"
    if answers.em(answer, changed.changed_answers, normalization):
        return "follows"
    is_given_up = answer is None or _NO_ANSWER.fullmatch(answers.normalize_n1(answer))
    return "gives_up" if is_given_up else "other"
