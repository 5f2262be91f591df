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

from searchrl.core.episode import ANSWER, INVALID, SEARCH, EpisodeTurn, StopReason
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


def render_turns(turns: Sequence[EpisodeTurn], answer: str = _UNKNOWN) -> RenderableType:
    """All turns with what came back, indented; `answer` is the style of an answer."""
    lines: list[Text] = []
    for turn in turns:
        lines.append(colour_turn(turn.text.strip("\n"), answer))
        if turn.observation.strip():
            lines.append(colour_observation(turn.observation.strip("\n")))
    return Padding(Group(*lines), (0, 0, 0, 2), expand=False)


def render_rollout(title: str, rollout: Rollout) -> RenderableType:
    """A whole episode: question, turns, answer beside the gold answer, every score."""
    episode = rollout.episode
    names = ", ".join((episode.task.kind, *episode.task.slices))
    head = Text.assemble((title, "bold"), (f"  {episode.task.id} ({names})", "dim"))
    question = Text.assemble(("  question  ", "dim"), episode.task.question)
    if rollout.trajectory.views:
        chosen = Text.assemble(("  choices   ", "dim"), _chosen(rollout))
        return Group(head, question, chosen, *verdict_lines(rollout))
    turns = render_turns(episode.turns, answer_style(rollout))
    return Group(head, question, turns, *verdict_lines(rollout))


def render_sample(title: str, rollout: Rollout) -> Group:
    """An episode in a few lines, each cut at the margin: what it asked, read and answered."""
    episode, scored = rollout.episode, rollout.scored
    reward = "not scored" if scored.reward is None else f"reward {scored.reward:g}"
    rows = [("question", Text(episode.task.question))]
    if is_chosen := bool(rollout.trajectory.views):
        rows.append(("choices", _chosen(rollout)))
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
        rows.append(("answer", Text.assemble(_answer(rollout), (expected, "dim"))))
    lines = [Text.assemble((title, "bold"), f"  {reward}")]
    for name, shown in rows:
        one_line = Text(" ").join(shown.split("\n"))
        lines.append(Text.assemble((f"  {name:<10}", "dim"), one_line))
    for line in lines:
        line.no_wrap = True
        line.overflow = "ellipsis"
    return Group(*lines)


def verdict_lines(rollout: Rollout) -> list[Text]:
    """The answer beside the gold answer, then every score of an episode.

    Choices by number are no answer, so there is none of such an episode.
    """
    episode, scored = rollout.episode, rollout.scored
    is_answer = not rollout.trajectory.views
    lines = [Text.assemble(("  answer    ", "dim"), _answer(rollout))] if is_answer else []
    if episode.task.answers and is_answer:
        lines.append(Text.assemble(("  expected  ", "dim"), " | ".join(episode.task.answers)))
    scores = [f"{name} {value:g}" for name, value in scored.scores.items()]
    reward = f"reward {scored.reward:g}" if scored.reward is not None else "not scored"
    lines.append(Text.assemble(("  scores    ", "dim"), (reward, "bold"), "  ", "  ".join(scores)))
    if scored.unscored:
        lines.append(Text(f"  {scored.unscored}", "red"))
    return lines


def answer_style(rollout: Rollout) -> str:
    """The colour of an episode's answer: right, wrong, or not known to be either."""
    episode, em = rollout.episode, rollout.scored.scores.get("em")
    if em is not None:
        return _RIGHT if em == 1 else _WRONG
    if episode.final_answer is None or not episode.task.answers:
        return _UNKNOWN
    return _RIGHT if episode.final_answer.strip() in episode.task.answers else _WRONG


def _chosen(rollout: Rollout) -> Text:
    """What a policy without tokens chose, and what ended it if it was not its last choice."""
    stop = rollout.episode.stop_reason
    end = "" if stop is StopReason.ANSWERED else f" ({stop})"
    return Text.assemble((rollout.trajectory.generated_text, "cyan"), (end, "dim"))


def _answer(rollout: Rollout) -> Text:
    episode = rollout.episode
    if episode.final_answer is None:
        return Text(f"none ({episode.stop_reason})", "red")
    return Text(episode.final_answer, answer_style(rollout))
