"""An episode as a person reads it: tags and passages coloured, then the answer and its scores.

Owns the colours and the layout of episodes. It knows tags by their shape only, so it shows those of
every protocol. It parses nothing and scores nothing. Used by `train`, `eval`, `ask`, `play`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from searchrl.core.episode import ANSWER, INVALID, SEARCH, StopReason
from searchrl.engine.episodes.playing import Rollout

_TAG = re.compile(r"<(/?)([a-z][a-z0-9_]*)>")

_INSIDE = {"think": "italic", "search": "cyan"}
"""Colour of the text inside a tag; inside an unknown tag it is plain."""

_RIGHT, _WRONG, _UNKNOWN = "bold green", "bold red", "bold"
"""Colours of an answer. It is green only if it is known to be right."""

_SAMPLE_TURNS = 3
"""Turns of an episode that is shown in a few lines: its last ones."""

_OBSERVATION = "yellow"
_TAG_STYLE = "bold blue"


def colour_turn(text: str, answer: str = _UNKNOWN) -> Text:
    """A model turn with its tags and what they enclose coloured; `answer` is an answer's style."""
    return _colour(text, "", {**_INSIDE, "answer": answer})


def colour_observation(text: str) -> Text:
    """What the environment answered, in its own colour."""
    return _colour(text, _OBSERVATION, {})


def _colour(text: str, outside: str, inside: Mapping[str, str]) -> Text:
    # Folded, never cut at the margin: all of it is what the model read.
    shown = Text(no_wrap=False, overflow="fold")
    position, style = 0, outside
    for match in _TAG.finditer(text):
        shown.append(text[position : match.start()], style)
        shown.append(match.group(), _TAG_STYLE)
        style = outside if match.group(1) else inside.get(match.group(2), outside)
        position = match.end()
    shown.append(text[position:], style)
    return shown


def render_turns(turns: Iterable[tuple[str, str]], answer: str = _UNKNOWN) -> RenderableType:
    """Turns with the observations that came back, indented; `answer` is the style of an answer."""
    lines: list[Text] = []
    for text, observation in turns:
        lines.append(colour_turn(text.strip("\n"), answer))
        if observation.strip():
            lines.append(colour_observation(observation.strip("\n")))
    return Padding(Group(*lines), (0, 0, 0, 2), expand=False)


def render_rollout(title: str, row: Mapping[str, Any]) -> RenderableType:
    """A whole episode, as the files of rollouts have it: question, turns, answers, every score."""
    task = row["task"]
    names = ", ".join((task["kind"], *task["slices"]))
    head = Text.assemble((title, "bold"), (f"  {task['id']} ({names})", "dim"))
    question = Text.assemble(("  question  ", "dim"), task["question"])
    if row.get("choices"):
        shown = _chosen(row["generated_text"], row["stop_reason"])
        chosen = Text.assemble(("  choices   ", "dim"), shown)
        return Group(head, question, chosen, *verdict_lines(row))
    style = answer_style(row["final_answer"], task["answers"], row["scores"])
    turns = render_turns(((turn["text"], turn["observation"]) for turn in row["turns"]), style)
    return Group(head, question, turns, *verdict_lines(row))


def render_sample(title: str, rollout: Rollout) -> Group:
    """An episode in a few lines, each cut at the margin: what it asked, read and answered."""
    episode, scored = rollout.episode, rollout.scored
    reward = "not scored" if scored.reward is None else f"reward {scored.reward:g}"
    rows = [("question", Text(episode.task.question))]
    if is_chosen := bool(rollout.trajectory.views):
        shown = _chosen(rollout.trajectory.generated_text, episode.stop_reason)
        rows.append(("choices", shown))
    for turn in () if is_chosen else episode.turns[-_SAMPLE_TURNS:]:
        action = turn.action
        if action.kind == SEARCH:
            found = "; ".join(passage.title or passage.text for passage in turn.passages)
            rows.append(("search", Text(" | ".join(action.queries), "cyan")))
            rows.append(("found", Text(found or "nothing", _OBSERVATION)))
        elif action.kind == INVALID:
            rows.append(("invalid", Text(action.reason, "red")))
        elif action.kind != ANSWER:
            rows.append((action.kind, Text(str(action.payload), "cyan")))
    if not is_chosen:
        answers = " | ".join(episode.task.answers)
        expected = f"  (expected {answers})" if answers else ""
        style = answer_style(episode.final_answer, episode.task.answers, scored.scores)
        answer = _answer(episode.final_answer, episode.stop_reason, style)
        rows.append(("answer", Text.assemble(answer, (expected, "dim"))))
    lines = [Text.assemble((title, "bold"), f"  {reward}")]
    for name, shown in rows:
        one_line = Text(" ").join(shown.split("\n"))
        lines.append(Text.assemble((f"  {name:<10}", "dim"), one_line))
    for line in lines:
        line.no_wrap = True
        line.overflow = "ellipsis"
    return Group(*lines)


def verdict_lines(row: Mapping[str, Any]) -> list[Text]:
    """The answer beside the gold answer, then every score of an episode.

    Choices by number are no answer, so there is none of such an episode.
    """
    accepted, scored = row["task"]["answers"], row["scores"]
    lines = []
    if not row.get("choices"):
        style = answer_style(row["final_answer"], accepted, scored)
        answer = _answer(row["final_answer"], row["stop_reason"], style)
        lines.append(Text.assemble(("  answer    ", "dim"), answer))
        if accepted:
            lines.append(Text.assemble(("  expected  ", "dim"), " | ".join(accepted)))
    scores = [f"{name} {value:g}" for name, value in scored.items()]
    reward = f"reward {row['reward']:g}" if row["reward"] is not None else "not scored"
    lines.append(Text.assemble(("  scores    ", "dim"), (reward, "bold"), "  ", "  ".join(scores)))
    if row["unscored"]:
        lines.append(Text(f"  {row['unscored']}", "red"))
    return lines


def answer_style(answer: str | None, accepted: Sequence[str], scores: Mapping[str, float]) -> str:
    """The colour of an episode's answer: right, wrong, or not known to be either."""
    if "em" in scores:
        return _RIGHT if scores["em"] == 1 else _WRONG
    if answer is None or not accepted:
        return _UNKNOWN
    return _RIGHT if answer.strip() in accepted else _WRONG


def _chosen(text: str, stop: str) -> Text:
    """What a policy without tokens chose, and what ended it if it was not its last choice."""
    end = "" if stop == StopReason.ANSWERED else f" ({stop})"
    return Text.assemble((text, "cyan"), (end, "dim"))


def _answer(answer: str | None, stop: str, style: str) -> Text:
    return Text(f"none ({stop})", "red") if answer is None else Text(answer, style)
