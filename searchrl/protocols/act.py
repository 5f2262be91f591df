"""The tag protocol for acting: think if you like, then act; the environment says what came of it.

Owns the names of its tags, the instruction, the parser and the format verdict. There is no answer
in it: the environment decides when an episode is over. What it shares with the search protocols
(the grammar of blocks, observations within a budget) is in `automaton` and `wrapping`. Called by
environments that are acted in, the rollout driver and scripts.
"""

from __future__ import annotations

from collections.abc import Sequence

from searchrl.contracts import TokenBudget
from searchrl.core.episode import ACT, INVALID, Action, Passage
from searchrl.protocols.automaton import Part, Segment, TagGrammar
from searchrl.protocols.inline import invalid, load_instruction
from searchrl.protocols.tag_names import ensure_tag_names, foreign_tags
from searchrl.protocols.wrapping import Line, Wrapping, passage_lines

_INSTRUCTION = """\
You act in an environment, in turns. In every turn you may first reason inside <{think}> and \
</{think}>; then write one action inside <{act}> and </{act}>, and nothing after it. What came of \
it comes back between <{observation}> and </{observation}>. Never write <{observation}> yourself."""


class ThinkAct:
    """Protocol `act`; implements `contracts.TagProtocol`.

    Args:
        think, act, observation: the tag names, distinct, lower case.
        instruction: replaces the default instruction; `@path` reads it from a UTF-8 file.

    Raises:
        ConfigError: a tag name is unusable, or the instruction's file cannot be read.

    >>> ThinkAct().parse("<think>The lake is to the left.</think>\\n<act>right</act>").payload
    'right'
    """

    def __init__(
        self,
        *,
        think: str = "think",
        act: str = "act",
        observation: str = "observation",
        instruction: str | None = None,
    ) -> None:
        names = {"think": think, "act": act, "observation": observation}
        ensure_tag_names(names)
        self.name = "act"
        self.stops: tuple[str, ...] = (f"</{act}>",)
        if instruction is None:
            self.instruction = _INSTRUCTION.format(**names)
        else:
            self.instruction = load_instruction(instruction)
        self._think, self._act, self._environment = think, act, observation
        self._grammar = TagGrammar(
            {think: Part.THINK, act: Part.ACT, observation: Part.INFORMATION}
        )
        self._wrapping = Wrapping(observation, f"\n\n<{observation}>", f"</{observation}>\n\n")
        # What an environment says may be written for another system: its usual tags go too.
        self._foreign_tag = foreign_tags({*names.values(), "act"})

    def parse(self, text: str) -> Action:
        """Read one model turn: the one act it commits to, or why there is none.

        Thoughts are the format verdict's business. Total: never raises on model text.
        """
        return self._read(self._grammar.split(text))

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """None: who acts does not answer."""
        return None

    def format_score(self, turns: Sequence[str]) -> float:
        """The format verdict on all turns of an episode.

        1 if every turn is at most one thought and then one act; 0.5 if every turn has one act, but
        text or thoughts in the wrong place beside it; 0 otherwise, and for no turns.
        """
        split = [self._grammar.split(turn) for turn in turns]
        if not split or any(self._read(turn).kind == INVALID for turn in split):
            return 0.0
        is_whole = _is_whole(_without_blank(split[0])) and all(map(_is_whole, split[1:]))
        return 1.0 if is_whole else 0.5

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """Wrap passages for the model, as the search protocols do; within the budget if any.

        Raises:
            ConfigError: the budget cannot hold even the two tags.
        """
        return self._wrap(passage_lines(passages), budget)

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """Wrap what the environment says for the model; its end is cut if a budget asks for it.

        Raises:
            ConfigError: the budget cannot hold even the two tags.
        """
        return self._wrap([Line("", text.strip())], budget)

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`; without a thought, there is no think block.

        Protocol tags in the texts are neutralised.
        """
        think = f"<{self._think}>{self.neutralise(thought)}</{self._think}>"
        if action.kind == INVALID:
            return think
        if action.kind != ACT:
            raise ValueError(f"{self.name} writes act and invalid turns, not {action.kind}")
        act = f"<{self._act}>{self.neutralise(str(action.payload))}</{self._act}>"
        return f"{think}\n{act}" if thought else act

    def opening(self, kind: str) -> str:
        """Text that commits a turn to an `act`: its opening tag."""
        if kind != ACT:
            raise ValueError(f"{self.name} can open an act, not {kind!r}")
        return f"<{self._act}>"

    def neutralise(self, text: str) -> str:
        """Turn every protocol tag in foreign text, in any case and spacing, into `‹tag›`."""
        return self._foreign_tag.sub(r"‹\1›", text)

    def _wrap(self, lines: Sequence[Line], budget: TokenBudget | None) -> str:
        safe = [Line(self.neutralise(line.head), self.neutralise(line.text)) for line in lines]
        return self._wrapping.wrap(safe, budget)

    def _read(self, segments: Sequence[Segment]) -> Action:
        acts = [s for s in segments if s.part is Part.ACT]
        if any(s.part is Part.INFORMATION for s in segments):
            return invalid(f"Only the environment may write <{self._environment}>.")
        if len(acts) > 1:
            return invalid("A turn holds one act, not several.")
        if not acts:
            return invalid(self._why_no_act(segments))
        if not acts[0].text:
            return invalid(f"The <{self._act}> block is empty.")
        return Action(ACT, acts[0].text)

    def _why_no_act(self, segments: Sequence[Segment]) -> str:
        strays = {s.text for s in segments if s.part is Part.STRAY}
        act, think = self._act, self._think
        if f"<{act}>" in strays and f"</{act}>" in strays:
            return f"The <{act}> block holds another tag; write only text inside it."
        if f"<{act}>" in strays:
            return f"The <{act}> tag was not closed with </{act}>."
        if f"</{act}>" in strays:
            return f"</{act}> has no <{act}> before it."
        if f"<{think}>" in strays:
            return f"The <{think}> tag was not closed with </{think}>."
        return f"The turn has no action: write <{act}>action</{act}>."


def _is_whole(turn: Sequence[Segment]) -> bool:
    """Whether a turn is at most one thought, then one act, and nothing else."""
    parts = [segment.part for segment in turn]
    return parts in ([Part.ACT], [Part.THINK, Part.ACT])


def _without_blank(turn: Sequence[Segment]) -> Sequence[Segment]:
    """A first turn without the empty think block that chat templates write with thinking off.

    A model that thinks all the same has not thought twice.
    """
    is_blank = bool(turn) and turn[0].part is Part.THINK and not turn[0].text
    return turn[1:] if is_blank else turn
