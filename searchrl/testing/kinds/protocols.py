"""Criteria of tag protocols: P1 to P12.

Owns the list; the criteria are in `protocol_turns` (what the model writes) and `protocol_texts`
(what it reads). `searchrl check` and authors' tests run them through `testing.conformance`.
"""

from __future__ import annotations

from searchrl.testing.criteria import Criterion
from searchrl.testing.kinds import protocol_texts, protocol_turns
from searchrl.testing.kinds.protocol_subject import ProtocolSubject

__all__ = ["PROTOCOL_CRITERIA", "ProtocolSubject"]

PROTOCOL_CRITERIA: tuple[Criterion[ProtocolSubject], ...] = (
    protocol_turns.is_protocol,
    protocol_turns.reads_anything,
    protocol_turns.judges_anything,
    protocol_turns.stops_are_reached,
    protocol_turns.turns_end_with_stops,
    protocol_turns.reads_back,
    protocol_turns.opens_turns,
    protocol_texts.neutralises,
    protocol_texts.is_not_swayed,
    protocol_texts.refuses_forgeries,
    protocol_texts.keeps_to_budget,
    protocol_texts.explains_tags,
)
"""Everything a tag protocol is held to, in order."""
