"""The built-in tag protocol: think, then search or answer, in an inline dialogue.

Owns the tags' names, the instruction that explains them, the stop strings, the parser, the wire
text of observations and the format verdict, so that none of these can disagree. Reads
model-written turns only; what a retriever returns is never parsed. Deliberately holds no tokens
(see `engine.rendering`) and no reward. Called by environments, the rollout driver and experts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from searchrl.contracts import TokenBudget
from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action, Passage
from searchrl.errors import ConfigError
from searchrl.protocols.automaton import Part, Segment, TagGrammar, Tags, is_valid_order

FIRST_THOUGHT = "I should look this up."
"""The thought with which a forced search begins; demonstrations begin with it too."""

ANSWER_THOUGHT = "I know enough to answer."
"""The thought with which a forced answer begins."""

NO_PASSAGE = "No passage matches this query."
"""What an observation says when a search found nothing."""

INFORMATION_VARIANTS = ("information", "context", "result", "r")
"""Names other systems use for the environment's tag; any of them may be configured."""

_TAG_NAME = re.compile(r"[a-z][a-z0-9_]*")

_INSTRUCTION = """\
Answer the user's question. Work in turns. Begin every turn by reasoning inside <{think}> and \
</{think}>. Then do exactly one of two things:
- To look something up, write a short query inside <{search}> and </{search}>. What was found \
comes back between <{information}> and </{information}>. Several queries go on several lines.
- When you have what you need, write the final answer inside <{answer}> and </{answer}>.
Search whenever the answer may depend on documents you have not read, as often as you need. \
Never write <{information}> yourself. Keep the answer brief: only what was asked, no explanation."""


class ThinkSearchAnswer:
    """Protocol `think-search-answer`; implements `contracts.TagProtocol`.

    Args:
        think, search, information, answer: the tag names, distinct, lower case.
        instruction: replaces the default instruction; `@path` reads it from a UTF-8 file.

    Raises:
        ConfigError: a tag name is unusable, or the instruction's file cannot be read.

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
        self.name = "think-search-answer"
        self.tags = _ensure_tags(Tags(think, search, information, answer))
        self.stops: tuple[str, ...] = (f"</{search}>", f"</{answer}>")
        if instruction is None:
            self.instruction = _INSTRUCTION.format(**self.tags._asdict())
        elif instruction.startswith("@"):
            self.instruction = _load_instruction(Path(instruction[1:]))
        else:
            self.instruction = instruction
        self._grammar = TagGrammar(self.tags)
        # Foreign text may come from a corpus made for another system: its usual tags go too.
        names = sorted({*self.tags, *INFORMATION_VARIANTS, "think", "search", "answer"})
        self._foreign_tag = re.compile(rf"<(\s*/?\s*(?:{'|'.join(names)})\s*/?\s*)>", re.IGNORECASE)

    def parse(self, text: str) -> Action:
        """Read one model turn: the one action it commits to, or why there is none.

        Order and thoughts are the format verdict's business: a search without a thought is a
        search. Total: never raises on model text.
        """
        return self._read(self._grammar.split(text))

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """The answer, if the turns hold exactly one complete answer block and it was acted on.

        A block in a turn that did not parse to an answer (say, beside a forged observation) is
        none, and it still counts against a second one.
        """
        return self._final_answer([self._grammar.split(turn) for turn in turns])

    def format_score(self, turns: Sequence[str]) -> float:
        """The format verdict: 1 valid order, 0.5 a final answer in invalid order, 0 otherwise."""
        split = [self._grammar.split(turn) for turn in turns]
        if self._final_answer(split) is None:
            return 0.0
        return 1.0 if is_valid_order(split) else 0.5

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """Wrap passages for the model, best first: `Doc i(Title: …) text`, one per line.

        With a budget, passages are truncated before they are wrapped: whole ones as long as they
        fit, then the next one cut, the rest dropped; the result, tags included, is within it.

        Raises:
            ConfigError: the budget cannot hold even the two tags.
        """
        lines = [_passage_line(i, p) for i, p in enumerate(passages, 1)] or [("", NO_PASSAGE)]
        return self._wrap_within(
            [(self.neutralise(head), self.neutralise(text)) for head, text in lines], budget
        )

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """Wrap a message of the environment for the model.

        With a budget, the message is truncated before it is wrapped; the result, tags included,
        is within it.

        Raises:
            ConfigError: the budget cannot hold even the two tags.
        """
        return self._wrap_within([("", self.neutralise(text.strip()))], budget)

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`. Protocol tags in its texts are neutralised.

        Queries and answers stand between spaces, as in Search-R1: a word copied from running text
        is then the same token it was there, for which small models are grateful.
        """
        think = f"<{self.tags.think}>{self.neutralise(thought)}</{self.tags.think}>"
        if action.kind == SEARCH:
            queries = (" ".join(self.neutralise(query).splitlines()) for query in action.queries)
            return f"{think}\n<{self.tags.search}> " + "\n".join(queries) + f" {self.stops[0]}"
        if action.kind == ANSWER:
            answer = self.neutralise(str(action.payload))
            return f"{think}\n<{self.tags.answer}> {answer} {self.stops[1]}"
        if action.kind == INVALID:
            return think
        raise ValueError(f"{self.name} writes search, answer and invalid turns, not {action.kind}")

    def opening(self, kind: str) -> str:
        """Text that commits a turn to a `search` or an `answer`, up to and with its tag."""
        if kind == SEARCH:
            thought, tag = FIRST_THOUGHT, self.tags.search
        elif kind == ANSWER:
            thought, tag = ANSWER_THOUGHT, self.tags.answer
        else:
            raise ValueError(f"{self.name} can open a search or an answer, not {kind!r}")
        return f"<{self.tags.think}>{thought}</{self.tags.think}>\n<{tag}>"

    def neutralise(self, text: str) -> str:
        """Turn every protocol tag in foreign text, in any case and spacing, into `‹tag›`."""
        return self._foreign_tag.sub(r"‹\1›", text)

    def _read(self, segments: Sequence[Segment]) -> Action:
        tags = self.tags
        actions = [s for s in segments if s.part in (Part.SEARCH, Part.ANSWER)]
        if any(s.part is Part.INFORMATION for s in segments):
            return _invalid(f"Only the search engine may write <{tags.information}>.")
        if len(actions) > 1:
            return _invalid("A turn holds one search or one answer, not several.")
        if not actions:
            return _invalid(self._why_no_action(segments))
        action = actions[0]
        is_search = action.part is Part.SEARCH
        if not action.text:
            return _invalid(f"The <{tags.search if is_search else tags.answer}> block is empty.")
        if not is_search:
            return Action(ANSWER, action.text)
        lines = (self._grammar.strip(line) for line in action.text.splitlines())
        return Action(SEARCH, tuple(line for line in lines if line))

    def _why_no_action(self, segments: Sequence[Segment]) -> str:
        strays = {s.text for s in segments if s.part is Part.STRAY}
        actions = (self.tags.search, self.tags.answer)
        for tag in actions:
            if f"<{tag}>" in strays and f"</{tag}>" in strays:
                return f"The <{tag}> block holds another tag; write only text inside it."
        for tag in actions:
            if f"<{tag}>" in strays:
                return f"The <{tag}> tag was not closed with </{tag}>."
            if f"</{tag}>" in strays:
                return f"</{tag}> has no <{tag}> before it."
        if f"<{self.tags.think}>" in strays:
            return f"The <{self.tags.think}> tag was not closed with </{self.tags.think}>."
        return (
            f"The turn has no action: after thinking, write <{self.tags.search}>query"
            f"</{self.tags.search}> or <{self.tags.answer}>answer</{self.tags.answer}>."
        )

    def _final_answer(self, turns: Sequence[Sequence[Segment]]) -> str | None:
        holders = [turn for turn in turns for s in turn if s.part is Part.ANSWER]
        if len(holders) != 1:
            return None
        action = self._read(holders[0])
        return str(action.payload) if action.kind == ANSWER else None

    def _wrap(self, body: str) -> str:
        return f"\n\n<{self.tags.information}>{body}</{self.tags.information}>\n\n"

    def _wrap_within(self, lines: Sequence[tuple[str, str]], budget: TokenBudget | None) -> str:
        whole = self._wrap("\n".join(head + text for head, text in lines))
        if budget is None or budget.count(whole) <= budget.max_tokens:
            return whole
        return self._wrap(self._fit(lines, budget))

    def _fit(self, lines: Sequence[tuple[str, str]], budget: TokenBudget) -> str:
        """The longest body of whole lines and one cut line whose wrapped text fits."""
        empty = budget.count(self._wrap(""))
        if empty > budget.max_tokens:
            raise ConfigError(
                f"an observation budget of {budget.max_tokens} tokens cannot hold the "
                f"<{self.tags.information}> tags alone ({empty}); raise the observation budget"
            )
        body = ""
        for head, text in lines:
            longer = f"{body}\n{head}{text}".lstrip("\n")
            if budget.count(self._wrap(longer)) > budget.max_tokens:
                cut = self._cut(body, head + text, budget)
                # The first passage shows what it can; a later one without its text says nothing.
                return cut if not body or len(cut) > len(body) + 1 + len(head) else body
            body = longer
        return body

    def _cut(self, body: str, line: str, budget: TokenBudget) -> str:
        """`body` and the longest beginning of `line` that fits below it."""
        above = f"{body}\n" if body else ""
        room = budget.max_tokens - budget.count(self._wrap(above))
        while room > 0:
            cut = (above + budget.cut(line, room)).rstrip()
            excess = budget.count(self._wrap(cut)) - budget.max_tokens
            if excess <= 0:
                return cut
            # Half the excess: text at a seam costs more or less than its parts.
            room -= max(1, excess // 2)
        return body


def _invalid(reason: str) -> Action:
    return Action(INVALID, None, reason)


def _passage_line(number: int, passage: Passage) -> tuple[str, str]:
    title = f"(Title: {_one_line(passage.title)})" if passage.title.strip() else ":"
    return f"Doc {number}{title} ", _one_line(passage.text)


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def _ensure_tags(tags: Tags) -> Tags:
    for setting, name in tags._asdict().items():
        if not isinstance(name, str) or not _TAG_NAME.fullmatch(name):
            raise ConfigError(
                f"protocol.{setting}: {name!r} is not a tag name; expected a lower-case letter "
                "followed by lower-case letters, digits or underscores"
            )
    if len(set(tags)) < len(tags):
        raise ConfigError(f"protocol tags must differ from each other, got {', '.join(tags)}")
    return tags


def _load_instruction(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"protocol.instruction: cannot read {path}: {error}; expected a UTF-8 text file "
            "after the '@'"
        ) from error
