"""An episode as a person reads it: tags and passages coloured, then the answer and its scores.

Owns the colours and the layout of episodes. It knows tags by their shape only, so it shows those of
every protocol. It parses nothing and scores nothing. Used by `train`, `eval`, `ask`, `play`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from searchrl.core.episode import Episode, EpisodeTurn
from searchrl.engine.episodes.rollout import Rollout

_TAG = re.compile(r"<(/?)([a-z][a-z0-9_]*)>")

_INSIDE = {"think": "italic", "search": "cyan", "answer": "bold green"}
"""Colour of the text inside a tag; inside an unknown tag it is plain."""

_OBSERVATION = "yellow"
_TAG_STYLE = "bold blue"


def colour_turn(text: str) -> Text:
    """A model turn with its tags and what they enclose coloured."""
    return _colour(text, "", _INSIDE)


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


def render_turns(turns: Sequence[EpisodeTurn]) -> RenderableType:
    """All turns with what came back, indented."""
    lines: list[Text] = []
    for turn in turns:
        lines.append(colour_turn(turn.text.strip("\n")))
        if turn.observation.strip():
            lines.append(colour_observation(turn.observation.strip("\n")))
    return Padding(Group(*lines), (0, 0, 0, 2), expand=False)


def render_rollout(title: str, rollout: Rollout) -> RenderableType:
    """A whole episode: question, turns, answer beside the gold answer, every score."""
    episode = rollout.episode
    names = ", ".join((episode.task.kind, *episode.task.slices))
    head = Text.assemble((title, "bold"), (f"  {episode.task.id} ({names})", "dim"))
    question = Text.assemble(("  question  ", "dim"), episode.task.question)
    parts: list[RenderableType] = [head, question, render_turns(episode.turns)]
    return Group(*parts, *verdict_lines(rollout))


def verdict_lines(rollout: Rollout) -> list[Text]:
    """The answer beside the gold answer, then every score of an episode."""
    episode, scored = rollout.episode, rollout.scored
    lines = [Text.assemble(("  answer    ", "dim"), _answer(episode))]
    if episode.task.answers:
        lines.append(Text.assemble(("  expected  ", "dim"), " | ".join(episode.task.answers)))
    scores = [f"{name} {value:g}" for name, value in scored.scores.items()]
    reward = f"reward {scored.reward:g}" if scored.reward is not None else "not scored"
    lines.append(Text.assemble(("  scores    ", "dim"), (reward, "bold"), "  ", "  ".join(scores)))
    if scored.unscored:
        lines.append(Text(f"  {scored.unscored}", "red"))
    return lines


def _answer(episode: Episode) -> Text:
    if episode.final_answer is None:
        return Text(f"none ({episode.stop_reason})", "red")
    is_right = episode.final_answer.strip() in episode.task.answers
    return Text(episode.final_answer, "bold green" if is_right else "bold")
