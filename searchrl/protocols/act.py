"""The tag protocol for acting: an optional thought, then an act; the environment replies.

There is no answer in it: the environment decides when an episode is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from searchrl.core.episode import ACT, INVALID, Action
from searchrl.protocols.inline import InlineProtocol, load_instruction
from searchrl.protocols.tags import ACT_ORDER, Tags, ensure_tag_names, is_valid_order


class ThinkAct(InlineProtocol):
    """Protocol `act`; implements `contracts.TagProtocol`.

    Args:
        think, act, observation: the tag names, distinct, lower case.
        instruction: replaces the default instruction; `@path` reads it from a UTF-8 file.

    >>> ThinkAct().parse("<think>The lake is to the left.</think>\\n<act>right</act>").payload
    'right'
    """

    request = "act"
    example = "action"
    replier = "the environment"
    lead = "write"

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
        # The environment's text may come from another system: neutralise its usual tag, too.
        super().__init__("act", Tags(*names.values()), foreign=["act"])
        self.instruction = load_instruction(instruction, self.name, **names)

    def read_request(self, text: str) -> Action:
        """The act itself."""
        return Action(ACT, text)

    def format_score(self, turns: Sequence[str]) -> float:
        """The format verdict: 1 if every turn is at most one thought and then one act.

        0.5 if every turn has one act, but more beside it; 0 otherwise, and for no turns.
        """
        split = [self._grammar.split(turn) for turn in turns]
        if not split or any(self._read(turn).kind == INVALID for turn in split):
            return 0.0
        return 1.0 if is_valid_order(split, ACT_ORDER) else 0.5

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`; without a thought, there is no think block."""
        think = f"<{self.tags.think}>{self.neutralise(thought)}</{self.tags.think}>"
        if action.kind == INVALID:
            return think
        act = f"{self.opening(action.kind)}{self.neutralise(str(action.payload))}{self.stops[0]}"
        return f"{think}\n{act}" if thought else act

    def opening(self, kind: str) -> str:
        """Text that commits a turn to an `act`: its opening tag. ValueError for other kinds."""
        if kind != ACT:
            raise ValueError(f"{self.name} knows act and invalid turns, not {kind!r}")
        return f"<{self.tags.request}>"
