"""Text to ids and back: the contract, prompt rendering and control-token safety.

Owns the one rendering of a prompt through the tokenizer's chat template, and the rule that foreign
text (users, corpora, tools) never becomes a control token. No torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from searchrl.contracts import TokenBudget, make_encodable
from searchrl.errors import PolicyError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt, rendered once.

    `ids` are all author PROMPT. `assistant_prefix` is the part of `text` that already belongs to
    the assistant's first turn (what the template puts after the assistant header, and a forced
    opening): the parser gets it as the beginning of that turn.
    """

    ids: list[int]
    assistant_prefix: str
    text: str


class TextCodec(Protocol):
    """Text to ids and back: the policy's tokenizer, or bytes where there is no model."""

    end_ids: Sequence[int]
    """Ids that close a message of the policy; may be empty."""

    def render_prompt(
        self, instruction: str, user_text: str, *, thinking: bool = True, forced_opening: str = ""
    ) -> RenderedPrompt:
        """A prompt as ids, rendered once."""

    def encode_plain(self, text: str) -> list[int]:
        """Foreign text as ids; never a control token."""

    def encode_model_text(self, text: str) -> list[int]:
        """A demonstrated turn as ids."""

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text."""

    def budget(self, max_tokens: int) -> TokenBudget:
        """An observation budget measured with this codec."""


class Trust(Enum):
    """Which added tokens of the tokenizer a piece of text may become."""

    FOREIGN = "foreign"
    """None: text that looks like one stays ordinary text."""
    AUTHORED = "authored"
    """All that are not special: for our own text, such as an instruction that names `<think>` or a
    demonstration. A special one could end the message."""
    TEMPLATE = "template"
    """All: the chat template itself."""


class Renderer:
    """Encodes and decodes for one fast Hugging Face tokenizer.

    `decode(encode_plain(text)) == text` for byte-level tokenizers, up to the tokenizer's own
    normaliser (NFC for Qwen).

    Raises:
        PolicyError: the tokenizer has no `tokenizers` backend, or turns plain text into control
            tokens however it is cut.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise PolicyError(
                f"{type(tokenizer).__name__} is not a fast tokenizer; SearchRL needs one with a "
                "tokenizer.json (convert it with transformers' AutoTokenizer, use_fast=True)"
            )
        self._tokenizer: Any = tokenizer
        self._backend: Any = backend
        end = tokenizer.eos_token_id
        self.end_ids: Sequence[int] = () if end is None else (end,)
        added = dict(sorted(tokenizer.added_tokens_decoder.items()))
        # Unknown characters and white space control nothing, though their ids may be added ones.
        self._control_ids = frozenset(
            token_id
            for token_id, token in added.items()
            if token.content.strip(" \t\r\n\u2581") and token_id != tokenizer.unk_token_id
        )
        self._plain: Any = _without_added_tokens(backend)
        self._matchers = {
            Trust.AUTHORED: _AddedTokens((i, t) for i, t in added.items() if not t.special),
            Trust.TEMPLATE: _AddedTokens(added.items()),
        }
        self._words = {
            Trust.FOREIGN: self._unused_word("userslot"),
            Trust.AUTHORED: self._unused_word("instructionslot"),
        }
        # One for each use of thinking, of an instruction, and of white space around texts.
        self._make_skeleton = lru_cache(64)(self._render_skeleton)
        for token in added.values():
            self.encode_plain(str(token.content))

    def render_prompt(
        self, instruction: str, user_text: str, *, thinking: bool = True, forced_opening: str = ""
    ) -> RenderedPrompt:
        """Render a prompt to ids: through the chat template if there is one, raw otherwise.

        Args:
            instruction: the protocol's instruction; the system message where templates have one,
                else the head of the user message. Empty: none.
            user_text: the environment's prompt; foreign.
            thinking: the template's `enable_thinking`.
            forced_opening: text that begins the first turn, appended to the assistant prefix. A
                tag the template has already opened is not opened twice.

        Raises:
            PolicyError: the template does not show the user's text exactly once, or fails.
        """
        pieces: list[tuple[str, Trust]] = []
        prefix = ""
        if self._tokenizer.chat_template:
            texts = {Trust.FOREIGN: user_text, Trust.AUTHORED: instruction}
            # White space around a text stays in the template, which may trim it.
            shapes = (t.replace(t.strip(), self._words[trust], 1) for trust, t in texts.items())
            parts, prefix = self._make_skeleton(thinking, bool(instruction), *shapes)
            pieces += [
                (texts[part].strip(), part) if isinstance(part, Trust) else (part, Trust.TEMPLATE)
                for part in parts
            ]
        else:
            if instruction:
                pieces.append((f"{instruction}\n\n", Trust.AUTHORED))
            pieces.append((f"{user_text}\n", Trust.FOREIGN))
        opening = _continue_prefix(prefix, forced_opening)
        pieces.append((opening, Trust.AUTHORED))
        ids = self._encode(pieces)
        if not self._tokenizer.chat_template:
            ids = self._leading_ids() + ids
        return RenderedPrompt(ids, prefix + opening, "".join(text for text, _ in pieces))

    def show(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> str:
        """The chat template's text of a dialogue that goes on with the assistant.

        Raises PolicyError if there is no template, or it fails.
        """
        if not self._tokenizer.chat_template:
            raise PolicyError("this policy has no chat template, and messages need one")
        return apply_template(self._tokenizer, messages, **settings)

    def encode_shown(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Ids of parts of a shown dialogue: text, and whether it is the template's own."""
        return self._encode(
            (text, Trust.TEMPLATE if is_own else Trust.FOREIGN) for text, is_own in parts
        )

    def encode_plain(self, text: str) -> list[int]:
        """Ids of foreign text (observations, users): never an added token, special or not."""
        text = make_encodable(text)
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        if self._control_ids.isdisjoint(ids):
            return ids
        # Some models hold added tokens in their own vocabulary too: spell those out by characters.
        chunks: list[str] = []
        position = 0
        for start, end, _ in self._matchers[Trust.TEMPLATE].find(text):
            chunks += [text[position:start], *text[start:end]]
            position = end
        chunks.append(text[position:])
        ids = [i for c in chunks for i in self._plain.encode(c, add_special_tokens=False).ids]
        if not self._control_ids.isdisjoint(ids):
            bad = self.decode([i for i in ids if i in self._control_ids][:1])
            raise PolicyError(
                f"this tokenizer turns ordinary text into the control token {bad!r}; foreign text "
                "cannot be made safe with it, use another tokenizer"
            )
        return ids

    def encode_model_text(self, text: str) -> list[int]:
        """Ids of authored model text: added tokens as the model writes them, special ones never."""
        return self._encode([(text, Trust.AUTHORED)])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, added tokens shown; nothing is skipped or cleaned up."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def count(self, text: str) -> int:
        """Number of tokens that `encode_plain` makes of `text`."""
        return len(self.encode_plain(text))

    def cut(self, text: str, limit: int) -> str:
        """The longest prefix of whole characters whose own encoding has at most `limit` tokens."""
        if limit <= 0:
            return ""
        encoding = self._plain.encode(make_encodable(text), add_special_tokens=False)
        if len(encoding.ids) <= limit:
            return text
        for size in range(limit, 0, -1):
            prefix = text[: encoding.offsets[size - 1][1]]
            # More than `size` if it ends in a character of several tokens, or merges differently.
            if self.count(prefix) <= limit:
                return prefix
        return ""

    def budget(self, max_tokens: int) -> TokenBudget:
        """A `TokenBudget` measured with this tokenizer."""
        return TokenBudget(max_tokens, self.count, self.cut)

    def _encode(self, pieces: Iterable[tuple[str, Trust]]) -> list[int]:
        """Encode pieces to the ids their concatenation would have, added tokens by trust.

        Tokenizers split at added tokens first and encode what lies between on its own. So we
        split each piece at those it may use and encode the rest, across pieces, without any.
        """
        ids: list[int] = []
        pending: list[str] = []
        for text, trust in pieces:
            position = 0
            if trust is not Trust.FOREIGN:
                for start, end, token_id in self._matchers[trust].find(text):
                    pending.append(text[position:start])
                    ids.extend(self.encode_plain("".join(pending)))
                    ids.append(token_id)
                    pending, position = [], end
            pending.append(text[position:])
        ids.extend(self.encode_plain("".join(pending)))
        return ids

    def _leading_ids(self) -> list[int]:
        """Ids that the tokenizer puts before a text by itself (a begin-of-text token, or none)."""
        bare = self._backend.encode("a", add_special_tokens=False).ids
        full = self._backend.encode("a", add_special_tokens=True).ids
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return list(full[:start])
        return []

    def _render_skeleton(
        self, thinking: bool, has_instruction: bool, user: str, system: str
    ) -> tuple[list[str | Trust], str]:
        """The chat template around empty slots, and the assistant prefix.

        FOREIGN is the slot of the user's text, AUTHORED that of the instruction; `user` and
        `system` are their words, with white space around them.
        """
        user_word, system_word = self._words.values()
        messages = [{"role": "user", "content": user}]
        text = ""
        if has_instruction:
            with_system = [{"role": "system", "content": system}, *messages]
            with suppress(PolicyError):
                text = apply_template(self._tokenizer, with_system, thinking=thinking)
            # A template that knows no system message: the instruction heads the user's.
            messages = [{"role": "user", "content": f"{system}\n\n{user}"}]
        if not has_instruction or text.count(system_word) != 1:
            text = apply_template(self._tokenizer, messages, thinking=thinking)
        if text.count(user_word) != 1 or text.count(system_word) != int(has_instruction):
            raise PolicyError(
                "the tokenizer's chat template does not show the user's text and the instruction "
                "exactly once; set another `chat_template` on the tokenizer, or none"
            )
        tail = text.split(user_word)[1]
        prefix = tail[self._header_length(tail, user, thinking) :]
        slots = {word: trust for trust, word in self._words.items()}
        parts = re.split(f"({user_word}|{system_word})", text)
        return [slots.get(part, part) for part in parts if part], prefix

    def _header_length(self, tail: str, user: str, thinking: bool) -> int:
        """Characters after the user's message that are its closing and the assistant header.

        It is what an earlier assistant message begins with too: templates write think blocks for
        the message to be generated only. Should one write them everywhere, they are cut off here.
        """
        reply = self._unused_word("replyslot")
        dialogue = [
            {"role": "user", "content": user},
            {"role": "assistant", "content": reply},
            {"role": "user", "content": "next"},
        ]
        text = apply_template(self._tokenizer, dialogue, thinking=thinking)
        earlier = text.partition(self._words[Trust.FOREIGN])[2].partition(reply)[0]
        shared = 0
        while tail[: shared + 1] == earlier[: shared + 1] and shared < len(tail):
            shared += 1
        return len(tail[:shared].partition("<think>")[0])

    def _unused_word(self, stem: str) -> str:
        template, number = str(self._tokenizer.chat_template), 0
        while f"{stem}{number}x" in template:
            number += 1
        return f"{stem}{number}x"


def apply_template(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, thinking: bool, tools: Any = None
) -> str:
    """The text of a dialogue whose next turn is the assistant's.

    Raises:
        PolicyError: the template fails.
    """
    try:
        text = tokenizer.apply_chat_template(
            list(messages),
            tools=tools,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
    except Exception as error:  # it may compute anything: ZeroDivisionError, …
        raise PolicyError(
            f"the tokenizer's chat template failed on a plain dialogue: {error or type(error)}"
        ) from error
    return str(text)


class _AddedTokens:
    """Finds added tokens in text, leftmost first and longest first, as tokenizers do."""

    def __init__(self, tokens: Iterable[tuple[int, Any]]) -> None:
        ordered = sorted(tokens, key=lambda item: -len(item[1].content))
        self._ids = [token_id for token_id, _ in ordered]
        patterns = [
            ("\\s*" if token.lstrip else "")
            + ("(?<!\\w)" if token.single_word else "")
            + re.escape(token.content)
            + ("(?!\\w)" if token.single_word else "")
            + ("\\s*" if token.rstrip else "")
            for _, token in ordered
        ]
        self._pattern = re.compile("|".join(f"({p})" for p in patterns)) if patterns else None

    def find(self, text: str) -> Iterable[tuple[int, int, int]]:
        if self._pattern is None:
            return
        for match in self._pattern.finditer(text):
            assert match.lastindex is not None
            yield match.start(), match.end(), self._ids[match.lastindex - 1]


def _without_added_tokens(backend: Any) -> Any:
    """A `tokenizers.Tokenizer` over the same model that knows no added token and adds none."""
    from tokenizers import Tokenizer

    plain = Tokenizer(backend.model)
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        plain.pre_tokenizer = backend.pre_tokenizer
    return plain


def _continue_prefix(prefix: str, opening: str) -> str:
    """The opening without its first tag if the prefix ends with that tag already open."""
    tag = re.match(r"<[^<>/]+>", opening)
    if tag and prefix.rstrip().endswith(tag.group()):
        return opening[tag.end() :]
    return opening
