"""The scripted generator: replays an environment's own policy; needs no model and no torch.

Behind `--policy scripted` and demonstrations for `sft`. Its turns carry no log-probs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from searchrl.contracts import Expert, TokenBudget
from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.rendering import RenderedPrompt, TextCodec
from searchrl.engine.sampling.generator import Experts, FinishedTurn, Handle
from searchrl.errors import GenerationFailure, ProtocolFailure


class ByteCodec:
    """Text as UTF-8 bytes: one id per byte. Lossless, so trajectories work without a tokenizer."""

    end_ids: Sequence[int] = ()

    def render_prompt(
        self, instruction: str, user_text: str, *, thinking: bool = True, forced_opening: str = ""
    ) -> RenderedPrompt:
        """Render raw: instruction, blank line, prompt, newline, forced opening."""
        text = "\n\n".join(part for part in (instruction, user_text) if part) + "\n"
        text += forced_opening
        return RenderedPrompt(self.encode_plain(text), forced_opening, text)

    def encode_plain(self, text: str) -> list[int]:
        """UTF-8 bytes of the text."""
        return list(text.encode("utf-8", "surrogatepass"))

    def encode_model_text(self, text: str) -> list[int]:
        """UTF-8 bytes of the text: a byte has no control meaning."""
        return self.encode_plain(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of UTF-8 bytes."""
        return bytes(ids).decode("utf-8", "replace")

    def budget(self, max_tokens: int) -> TokenBudget:
        """A token budget taken as words: a byte is no measure of a token."""
        return TokenBudget.words(max_tokens)


class ScriptedGenerator:
    """Answers every submit with the next turn of the dialogue's expert, in the ids of `codec`.

    Where no stop string ends a turn, the policy's own end does.
    """

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        self._dialogues: dict[Handle, tuple[Expert, str]] = {}
        """Expert of each dialogue, and the text shown to it last."""
        self._limits: dict[Handle, tuple[int, bool]] = {}
        """Tokens of the turn, and whether a stop string ends it."""
        self._numbers = itertools.count()

    def open(
        self, prompt_ids: Sequence[int], n: int, rng_keys: Sequence[int], experts: Experts = None
    ) -> list[Handle]:
        """See `Generator.open`.

        Raises:
            GenerationFailure: if the env gave no scripted policy.
        """
        if experts is None or len(experts) != n:
            raise GenerationFailure("the scripted policy needs one expert per dialogue")
        handles = [Handle(next(self._numbers)) for _ in range(n)]
        for handle, expert in zip(handles, experts, strict=True):
            self._dialogues[handle] = expert, self._codec.decode(prompt_ids)
        return handles

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """See `Generator.submit`."""
        if append_ids:
            self._dialogues[handle] = self._dialogues[handle][0], self._codec.decode(append_ids)
        self._limits[handle] = max_tokens, bool(stops)

    def poll(self) -> list[FinishedTurn]:
        """See `Generator.poll`; every submitted dialogue finishes at once.

        A script that raises, or returns no text, ends its own dialogue with an error.
        """
        turns = []
        for handle, (limit, has_stops) in self._limits.items():
            try:
                ids = self._codec.encode_model_text(self._act(handle))
            except (GenerationFailure, ProtocolFailure) as error:
                turns.append(FinishedTurn(handle, (), None, TurnStop.EOS, version=0, error=error))
                continue
            reason = TurnStop.STOP_STRING
            if not has_stops and self._codec.end_ids:
                ids, reason = [*ids, *self._codec.end_ids], TurnStop.EOS
            reason = reason if len(ids) <= limit else TurnStop.MAX_TOKENS
            turns.append(FinishedTurn(handle, tuple(ids[:limit]), None, reason, version=0))
        self._limits.clear()
        return turns

    def _act(self, handle: Handle) -> str:
        """Ask the script for its turn. A plain BaseException (Ctrl-C) passes through."""
        expert, observation = self._dialogues[handle]
        try:
            text = expert.act(observation)
        except ProtocolFailure:
            raise
        except (Exception, SystemExit) as error:
            raise GenerationFailure(f"act() raised {type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise GenerationFailure(f"act() returned {type(text).__name__}; expected a turn")
        return text

    def close(self, handle: Handle) -> None:
        """See `Generator.close`."""
        self._dialogues.pop(handle, None)
        self._limits.pop(handle, None)

    def sync(self, policy: Any) -> int:
        """A script has no weights."""
        return 0
