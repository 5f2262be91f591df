"""An inline dialogue of tags: the common part of all built-in tag protocols.

A subclass says what a request's text means, how turns are written and what the instruction is. A
plugin's protocol need not derive from it (`contracts.TagProtocol`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from searchrl.contracts import TokenBudget
from searchrl.core.episode import ANSWER, INVALID, Action, Passage
from searchrl.errors import ConfigError, suggest_path
from searchrl.protocols.tags import (
    SEARCH_ORDER,
    Part,
    Segment,
    TagGrammar,
    Tags,
    foreign_tags,
    is_valid_order,
)
from searchrl.protocols.wrapping import Line, Wrapping, passage_lines

INSTRUCTIONS = Path(__file__).resolve().parents[1] / "assets" / "instructions"
"""Default instructions, as NAME.txt. The middle of that of `tool-call` is copied from the models'
templates, with one call instead of several."""

FIRST_THOUGHT = "I should look this up."
"""The thought with which a forced search begins; demonstrations begin with it too."""

ANSWER_THOUGHT = "I know enough to answer."
"""The thought with which a forced answer begins."""


class InlineProtocol:
    """The common part of tag protocols whose observations are inside the assistant's own text.

    Args:
        name: the protocol's registered name.
        tags: its tag names.
        wrapping: the environment's tag and the text around it; by default the tag with a blank
            line on both sides.
        foreign: further tag names that are neutralised in foreign text.
    """

    # Words in the reasons of invalid turns: the request and its content, the only author of the
    # environment's tag, and the thing to do.
    request = "search"
    example = "query"
    replier = "the search engine"
    lead = "after thinking, write"

    def __init__(
        self,
        name: str,
        tags: Tags,
        *,
        wrapping: Wrapping | None = None,
        foreign: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.tags = tags
        self._actions = tuple(filter(None, (tags.request, tags.answer)))
        self.stops: tuple[str, ...] = tuple(f"</{tag}>" for tag in self._actions)
        self._grammar = TagGrammar(tags)
        tag = tags.information
        self._wrapping = wrapping or Wrapping(tag, f"\n\n<{tag}>", f"</{tag}>\n\n")
        # A corpus may be made for another system: its usual tags count, too.
        self._foreign_tag = foreign_tags({*filter(None, tags), *foreign})
        self._reasons = self._say_reasons()

    @abstractmethod
    def read_request(self, text: str) -> Action:
        """The action of a request's text (stripped, not empty), or an invalid one. Never raises."""
        raise NotImplementedError

    def parse(self, text: str) -> Action:
        """Read one model turn: its one action, or the reason why there is none."""
        return self._read(self._grammar.split(text))

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """The answer, if the turns hold exactly one complete answer block, as an action."""
        return self._final_answer([self._grammar.split(turn) for turn in turns])

    def format_score(self, turns: Sequence[str]) -> float:
        """The format verdict: 1 valid order, 0.5 a final answer in invalid order, 0 otherwise."""
        split = [self._grammar.split(turn) for turn in turns]
        if self._final_answer(split) is None:
            return 0.0
        return 1.0 if is_valid_order(map(self._readable, split), SEARCH_ORDER) else 0.5

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """Wrap passages for the model, best first: `Doc i(Title: …) text`, one per line.

        The result, tags included, is within the budget; `ConfigError` if even the tags are not.
        """
        return self._wrap(passage_lines(passages), budget)

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """Wrap a message of the environment for the model.

        If it begins with a reason of this protocol, the tags there stay, because the model has to
        write them; all other text is foreign. For the budget, see `render_observation`.
        """
        notice = text.strip()
        reasons = filter(notice.startswith, self._reasons.values())
        reason = max(reasons, key=len, default="")
        return self._wrapping.wrap([Line(reason, self.neutralise(notice[len(reason) :]))], budget)

    def neutralise(self, text: str) -> str:
        """Turn every protocol tag in foreign text, in any case and spacing, into `‹tag›`."""
        return self._foreign_tag.sub(r"‹\1›", text)

    def _wrap(self, lines: Sequence[Line], budget: TokenBudget | None) -> str:
        safe = [Line(self.neutralise(line.head), self.neutralise(line.text)) for line in lines]
        return self._wrapping.wrap(safe, budget)

    def _read(self, segments: Sequence[Segment]) -> Action:
        actions = [s for s in segments if s.part in (Part.REQUEST, Part.ANSWER)]
        if any(s.part is Part.INFORMATION for s in segments):
            return invalid(self._reasons["forged"])
        if len(actions) > 1:
            return invalid(self._reasons["several"])
        if not actions:
            return invalid(self._why_no_action(segments))
        action = actions[0]
        is_request = action.part is Part.REQUEST
        if not action.text:
            tag = self.tags.request if is_request else self.tags.answer
            return invalid(self._reasons[f"empty {tag}"])
        return self.read_request(action.text) if is_request else Action(ANSWER, action.text)

    def _readable(self, turn: Sequence[Segment]) -> list[Segment]:
        """The segments of a turn; a request that cannot be read becomes a fault."""
        return [
            Segment(Part.STRAY, s.text)
            if s.part is Part.REQUEST and s.text and self.read_request(s.text).kind == INVALID
            else s
            for s in turn
        ]

    def _why_no_action(self, segments: Sequence[Segment]) -> str:
        strays = {s.text for s in segments if s.part is Part.STRAY}
        for tag in self._actions:
            if f"<{tag}>" in strays and f"</{tag}>" in strays:
                return self._reasons[f"nested {tag}"]
        for tag in self._actions:
            if f"<{tag}>" in strays:
                return self._reasons[f"unclosed {tag}"]
            if f"</{tag}>" in strays:
                return self._reasons[f"unopened {tag}"]
        if f"<{self.tags.think}>" in strays:
            return self._reasons[f"unclosed {self.tags.think}"]
        return self._reasons["no action"]

    def _say_reasons(self) -> dict[str, str]:
        """Reasons why a turn is invalid, by fault; none holds text of a model."""
        examples = {self.tags.answer: "answer", self.tags.request: self.example}
        names = {self.tags.answer: "answer", self.tags.request: self.request}
        one = " or ".join(f"one {names[tag]}" for tag in self._actions)
        choice = " or ".join(f"<{tag}>{examples[tag]}</{tag}>" for tag in self._actions)
        reasons = {
            "forged": f"Only {self.replier} may write <{self.tags.information}>.",
            "several": f"A turn holds {one}, not several.",
            "no action": f"The turn has no action: {self.lead} {choice}.",
        }
        for tag in self._actions:
            reasons[f"empty {tag}"] = f"The <{tag}> block is empty."
            reasons[f"nested {tag}"] = (
                f"The <{tag}> block holds another tag; write only text inside it."
            )
            reasons[f"unopened {tag}"] = f"</{tag}> has no <{tag}> before it."
        for tag in (*self._actions, self.tags.think):
            reasons[f"unclosed {tag}"] = f"The <{tag}> tag was not closed with </{tag}>."
        return reasons

    def _final_answer(self, turns: Sequence[Sequence[Segment]]) -> str | None:
        holders = [turn for turn in turns for s in turn if s.part is Part.ANSWER]
        if len(holders) != 1:
            return None
        action = self._read(holders[0])
        return str(action.payload) if action.kind == ANSWER else None


def invalid(reason: str) -> Action:
    """The action of a turn without a usable one; `reason` is shown to the model."""
    return Action(INVALID, None, reason)


def load_instruction(
    instruction: str | None, protocol: str, *, key: str = "instruction", **tags: str
) -> str:
    """Return the text of the setting `key`: itself, or the UTF-8 file named behind an `@`.

    The default is that of `protocol` in `INSTRUCTIONS`, with the names of its `tags`.
    Raises `ConfigError` if the file cannot be read.
    """
    if instruction is None:
        default = (INSTRUCTIONS / f"{protocol}.txt").read_text(encoding="utf-8").strip()
        return default.format(**tags) if tags else default
    if not instruction.startswith("@"):
        return instruction
    path = Path(instruction[1:])
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no plain file")
        return path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        fault = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"protocol.{key}: cannot read '{path}': {fault}; expected a UTF-8 text file "
            f"after the '@'.{suggest_path(path)}"
        ) from error
