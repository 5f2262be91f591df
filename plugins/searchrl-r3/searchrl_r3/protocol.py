"""The protocol `r3`: a turn is a step, an analysis and then a query or the final answer.

    Step 1:
    The problem analysis: …
    The retrieval query: …

A blank line ends a step. The format of R3-RAG (arXiv 2505.23794), but that there the model ends a
query by writing the header of the documents; here that header is the environment's alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from searchrl import ConfigError
from searchrl.contracts import ANSWER, INVALID, SEARCH, Action, Passage, TokenBudget
from searchrl.protocols import Line, Wrapping, invalid, load_instruction, passage_lines

ANALYSIS, QUERY, FINAL = "The problem analysis:", "The retrieval query:", "The final answer:"
DOCUMENTS = "The retrieval documents:"
END = "\n\n"
"""The end of a step."""

_LABEL = re.compile(
    rf"^[ \t]*(Step \d{{1,3}}:|{ANALYSIS}|{QUERY}|{FINAL}|{DOCUMENTS})", re.MULTILINE
)
_FOREIGN = re.compile(r"(Step\s+\d+|The\s+(?:problem\s+analysis|retrieval\s+(?:query|documents)"
                      r"|final\s+answer))\s*:", re.IGNORECASE)  # fmt: skip
_TEXTS = Path(__file__).with_name("assets")
_FIRST_ANALYSIS, _LAST_ANALYSIS = "I should look this up.", "I know enough to answer."

_REASONS = {
    "forged": f"Only the search engine writes '{DOCUMENTS}'.",
    "head": "A step begins with 'Step 1:' on a line of its own, with its own number.",
    "analysis": f"After its first line a step has one '{ANALYSIS}', on a new line.",
    "end": f"A step ends with one '{QUERY}' or one '{FINAL}', on a new line.",
    "empty analysis": f"'{ANALYSIS}' has no text behind it.",
    "empty query": f"'{QUERY}' has no text behind it.",
    "empty answer": f"'{FINAL}' has no text behind it.",
}


class Step(NamedTuple):
    """A well-formed step. `text` is the query or, if it `is_final`, the answer."""

    analysis: str
    text: str
    is_final: bool


class StepProtocol:
    """Protocol `r3`; implements `contracts.TagProtocol`. A query per line, where there are several.

    Args:
        max_tries: how often a step may be written before the episode is over.
        instruction: replaces the text of the first prompt; `@path` reads it from a UTF-8 file.
        documents: the text around what a search found, with `{documents}` in it; `@path` as well.

    Raises:
        ConfigError: a text cannot be read, or `documents` has no place for them.

    >>> StepProtocol().parse("Step 1:\\nThe problem analysis: a\\nThe final answer: Paris").payload
    'Paris'
    """

    name = "r3"
    min_format = 0.9
    """The share of well-formed turns from which a reward is of use."""

    def __init__(
        self,
        *,
        max_tries: Annotated[int, Field(ge=1)] = 3,
        instruction: str | None = None,
        documents: str | None = None,
    ) -> None:
        self.max_tries = max_tries
        self.stops: tuple[str, ...] = (END,)
        self.instruction = _read("instruction", instruction)
        before, place, after = _read("documents", documents).partition("{documents}")
        if not place:
            raise ConfigError(
                "protocol.documents: the text of a step has no {documents}, so nothing that was "
                "found would be shown; put {documents} where the passages belong"
            )
        self._wrapping = Wrapping(DOCUMENTS, before, f"{after.rstrip()}{END}")
        self._notice = Wrapping("notice", "", END)

    def parse(self, text: str) -> Action:
        """Read one step: a search, the answer, or an invalid action with its reason."""
        step = read_step(text)
        if isinstance(step, str):
            return invalid(step)
        if step.is_final:
            return Action(ANSWER, step.text)
        return Action(
            SEARCH, tuple(line.strip() for line in step.text.splitlines() if line.strip())
        )

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """The answer, if exactly one step gives one."""
        actions = [action for action in map(self.parse, turns) if action.kind == ANSWER]
        return str(actions[0].payload) if len(actions) == 1 else None

    def format_score(self, turns: Sequence[str]) -> float:
        """1 if all steps are well-formed and the last one answers, 0.5 for an answer, else 0."""
        if self.final_answer(turns) is None:
            return 0.0
        kinds = [self.parse(turn).kind for turn in turns]
        return 1.0 if kinds == [SEARCH] * (len(kinds) - 1) + [ANSWER] else 0.5

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """The passages in the text of a step: `Doc i(Title: …) text`, one per line."""
        lines = [Line(self.neutralise(one.head), self.neutralise(one.text))
                 for one in passage_lines(passages)]  # fmt: skip
        return self._wrapping.wrap(lines, budget)

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """The fault of a step, for the model to write it again."""
        text = text.strip()
        reason = next((one for one in _REASONS.values() if text.startswith(one)), "")
        return self._notice.wrap([Line(reason, self.neutralise(text[len(reason) :]))], budget)

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the step that parses to `action`, with the number 1."""
        analysis = f"Step 1:\n{ANALYSIS} {self._one_line(thought) or '-'}\n"
        if action.kind == SEARCH:
            queries = "\n".join(map(self._one_line, action.queries))
            return f"{analysis}{QUERY} {queries}{END}"
        if action.kind == ANSWER:
            return f"{analysis}{FINAL} {self._one_line(str(action.payload))}{END}"
        if action.kind == INVALID:
            return analysis.rstrip() + END
        raise ValueError(f"{self.name} writes search, answer and invalid turns, not {action.kind}")

    def number_turn(self, text: str, number: int) -> str:
        """Return the step with another number."""
        return re.sub(r"\AStep \d+:", f"Step {number}:", text)

    def opening(self, kind: str) -> str:
        """Text that commits a step to a `search` or an `answer`."""
        openings = {SEARCH: (_FIRST_ANALYSIS, QUERY), ANSWER: (_LAST_ANALYSIS, FINAL)}
        if kind not in openings:
            raise ValueError(f"{self.name} can open a search or an answer, not {kind!r}")
        analysis, label = openings[kind]
        return f"Step 1:\n{ANALYSIS} {analysis}\n{label}"

    def neutralise(self, text: str) -> str:
        """Labels of steps in foreign text, in any case and spacing, as `Step 1‹:›`."""
        return _FOREIGN.sub(r"\1‹:›", text)

    def _one_line(self, text: str) -> str:
        return " ".join(self.neutralise(text).split())


def read_step(text: str) -> Step | str:
    """The step of a turn, or the reason why it is none. Total; the number is not judged."""
    text = text.strip()
    marks = list(_LABEL.finditer(text))
    labels = [mark.group(1) for mark in marks]
    if DOCUMENTS in labels:
        return _REASONS["forged"]
    if not labels or not labels[0].startswith("Step") or marks[0].start():
        return _REASONS["head"]
    parts = [
        text[mark.end() : after.start() if after else len(text)].strip()
        for mark, after in zip(marks, [*marks[1:], None], strict=True)
    ]
    if labels[1:2] != [ANALYSIS] or parts[0]:
        return _REASONS["analysis"]
    if len(labels) != 3 or labels[2] not in (QUERY, FINAL):
        return _REASONS["end"]
    is_final = labels[2] == FINAL
    if not parts[1]:
        return _REASONS["empty analysis"]
    if not parts[2]:
        return _REASONS["empty answer" if is_final else "empty query"]
    return Step(parts[1], parts[2], is_final)


def _read(name: str, given: str | None) -> str:
    return load_instruction(f"@{_TEXTS / name}.txt" if given is None else given, "r3", key=name)
