"""What turns text into ids and back: a policy's tokenizer, or bytes where there is no model.

Owns the contract only; `rendering.Renderer` and `scripted.ByteCodec` keep it. Caller: the rollout
driver, which is the only place where strings and tokens meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from searchrl.contracts import TokenBudget
from searchrl.engine.model.rendering import RenderedPrompt


class TextCodec(Protocol):
    """Text to ids and back: the policy's tokenizer, or bytes where there is no model."""

    def render_prompt(
        self, instruction: str, user_text: str, *, thinking: bool = True, forced_opening: str = ""
    ) -> RenderedPrompt:
        """A prompt as ids, rendered once."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """Foreign text as ids; never a control token."""
        ...

    def encode_model_text(self, text: str) -> list[int]:
        """A demonstrated turn as ids."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text."""
        ...

    def budget(self, max_tokens: int) -> TokenBudget:
        """An observation budget measured with this codec."""
        ...
