"""An episode as a person reads it: tags and passages coloured, then the answer and its scores.

Tags are known by their shape only, so those of every protocol are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

_TAG = re.compile(r"<(/?)([a-z][a-z0-9_]*)>")

_INSIDE = {"think": "italic", "search": "cyan"}
"""Colour of the text inside a tag; inside an unknown tag it is plain."""

_RIGHT, _WRONG, _UNKNOWN = "bold green", "bold red", "bold"
"""Colours of an answer. It is green only if it is known to be right."""


def colour_turn(text: str, answer: str = _UNKNOWN) -> Text:
    """A model turn with its tags and what they enclose coloured; `answer` is an answer's style."""
    return _colour(text, "", {**_INSIDE, "answer": answer})


def colour_observation(text: str) -> Text:
    """An observation, in its own colour."""
    return _colour(text, "yellow", {})


def _colour(text: str, outside: str, inside: Mapping[str, str]) -> Text:
    # Folded, never cut at the margin: all of it is what the model read.
    shown = Text(no_wrap=False, overflow="fold")
    position, style = 0, outside
    for match in _TAG.finditer(text):
        shown.append(text[position : match.start()], style)
        shown.append(match.group(), "bold blue")
        style = outside if match.group(1) else inside.get(match.group(2), outside)
        position = match.end()
    return shown.append(text[position:], style)


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
    style = _answer_style(row["final_answer"], task["answers"], row["scores"])
    turns = render_turns(((turn["text"], turn["observation"]) for turn in row["turns"]), style)
    return Group(head, _line("question", task["question"]), turns, *verdict_lines(row))


def verdict_lines(row: Mapping[str, Any]) -> list[Text]:
    """The answer beside the gold answer, then every score of an episode."""
    answer, accepted, scored = row["final_answer"], row["task"]["answers"], row["scores"]
    lines = [_line("answer", f"none ({row['stop_reason']})", "red")]
    if answer is not None:
        lines = [_line("answer", answer, _answer_style(answer, accepted, scored))]
    if accepted:
        lines.append(_line("expected", " | ".join(accepted)))
    reward = f"reward {row['reward']:g}" if row["reward"] is not None else "not scored"
    scores = "  ".join(f"{name} {value:g}" for name, value in scored.items())
    lines.append(_line("scores", reward, "bold").append(f"  {scores}"))
    if row["unscored"]:
        lines.append(Text(f"  {row['unscored']}", "red"))
    return lines


def _line(name: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"  {name:<10}", "dim"), (text, style))


def _answer_style(answer: str | None, accepted: Sequence[str], scores: Mapping[str, float]) -> str:
    """The colour of an episode's answer: right, wrong, or not known to be either."""
    if "em" in scores:
        return _RIGHT if scores["em"] == 1 else _WRONG
    if answer is None or not accepted:
        return _UNKNOWN
    return _RIGHT if answer.strip() in accepted else _WRONG
