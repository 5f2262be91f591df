"""Observations inside their tags: what the environment says, wrapped for the model within a budget.

The content is cut first and then wrapped, so that the closing tag is always there. The caller
neutralises foreign text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from searchrl.contracts import TokenBudget
from searchrl.core.episode import Passage
from searchrl.errors import ConfigError

NO_PASSAGE = "No passage matches this query."
"""Observation of a search without results."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an observation; a cut one is shown only if some `text` fits behind its `head`."""

    head: str
    text: str


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The environment's tag `name`, and the text `before` and `after` its content."""

    name: str
    before: str
    after: str

    def wrap(self, lines: Sequence[Line], budget: TokenBudget | None) -> str:
        """Wrap the lines that fit into a budget; cut the next one, and drop the rest."""
        whole = self._around("\n".join(line.head + line.text for line in lines))
        if budget is None or budget.count(whole) <= budget.max_tokens:
            return whole
        return self._around(self._fit(lines, budget))

    def _around(self, body: str) -> str:
        return f"{self.before}{body}{self.after}"

    def _fit(self, lines: Sequence[Line], budget: TokenBudget) -> str:
        """The longest body of whole lines and one cut line whose wrapped text fits."""
        empty = budget.count(self._around(""))
        if empty > budget.max_tokens:
            raise ConfigError(
                f"an observation budget of {budget.max_tokens} tokens cannot hold the "
                f"<{self.name}> tags alone ({empty}); raise the observation budget"
            )
        body = ""
        for line in lines:
            longer = f"{body}\n{line.head}{line.text}".lstrip("\n")
            if budget.count(self._around(longer)) > budget.max_tokens:
                cut = self._cut(body, line.head + line.text, budget)
                # The first passage may be cut to its title; a later one must show some text.
                return cut if not body or len(cut) > len(body) + 1 + len(line.head) else body
            body = longer
        return body

    def _cut(self, body: str, line: str, budget: TokenBudget) -> str:
        """`body` and the longest beginning of `line` that fits below it."""
        above = f"{body}\n" if body else ""
        room = budget.max_tokens - budget.count(self._around(above))
        while room > 0:
            cut = (above + budget.cut(line, room)).rstrip()
            excess = budget.count(self._around(cut)) - budget.max_tokens
            if excess <= 0:
                return cut
            # Half the excess: joined texts can have more or fewer tokens than their parts.
            room -= max(1, excess // 2)
        return body


def passage_lines(passages: Sequence[Passage]) -> list[Line]:
    """Passages, best first: `Doc i(Title: …) text`, one per line; a sentence if there is none."""
    return [_passage_line(i, p) for i, p in enumerate(passages, 1)] or [Line("", NO_PASSAGE)]


def _passage_line(number: int, passage: Passage) -> Line:
    title = f"(Title: {_one_line(passage.title)})" if passage.title.strip() else ":"
    return Line(f"Doc {number}{title} ", _one_line(passage.text))


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
