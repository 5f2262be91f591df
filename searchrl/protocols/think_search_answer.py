"""The default tag protocol: think, then search or answer, in an inline dialogue."""

from __future__ import annotations

from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action
from searchrl.protocols.inline import (
    ANSWER_THOUGHT,
    FIRST_THOUGHT,
    InlineProtocol,
    load_instruction,
)
from searchrl.protocols.tags import Tags, ensure_tag_names


class ThinkSearchAnswer(InlineProtocol):
    """Protocol `think-search-answer`; implements `contracts.TagProtocol`.

    Args:
        think, search, information, answer: the tag names, distinct, lower case.
        instruction: replaces the default instruction; `@path` reads it from a UTF-8 file.

    >>> ThinkSearchAnswer().parse("<think>easy</think>\\n<answer>Paris</answer>").payload
    'Paris'
    """

    def __init__(
        self,
        *,
        think: str = "think",
        search: str = "search",
        information: str = "information",
        answer: str = "answer",
        instruction: str | None = None,
    ) -> None:
        names = {"think": think, "search": search, "information": information, "answer": answer}
        ensure_tag_names(names)
        super().__init__("think-search-answer", Tags(*names.values()))
        self.instruction = load_instruction(instruction, self.name, **names)

    def read_request(self, text: str) -> Action:
        """A search: one query per line."""
        lines = (self._grammar.strip(line) for line in text.splitlines())
        return Action(SEARCH, tuple(line for line in lines if line))

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`. Protocol tags in its texts are neutralised."""
        think = f"<{self.tags.think}>{self.neutralise(thought)}</{self.tags.think}>"
        if action.kind == SEARCH:
            queries = (" ".join(self.neutralise(query).splitlines()) for query in action.queries)
            return f"{think}\n<{self.tags.request}> " + "\n".join(queries) + f" {self.stops[0]}"
        if action.kind == ANSWER:
            answer = self.neutralise(str(action.payload))
            return f"{think}\n<{self.tags.answer}> {answer} {self.stops[1]}"
        if action.kind == INVALID:
            return think
        raise ValueError(f"{self.name} writes search, answer and invalid turns, not {action.kind}")

    def opening(self, kind: str) -> str:
        """Text that commits a turn to a `search` or an `answer`, up to and with its tag."""
        if kind == SEARCH:
            thought, tag = FIRST_THOUGHT, self.tags.request
        elif kind == ANSWER:
            thought, tag = ANSWER_THOUGHT, self.tags.answer
        else:
            raise ValueError(f"{self.name} can open a search or an answer, not {kind!r}")
        return f"<{self.tags.think}>{thought}</{self.tags.think}>\n<{tag}>"
