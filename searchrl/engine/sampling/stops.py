"""Stop strings: found in a text, or on the fly, token by token.

A stop string may begin inside one token and end inside another. `StopTable` is an automaton over
bytes, tabulated for all tokens of a vocabulary at once. Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from searchrl.errors import PolicyError

START, STOPPED = 0, 1
"""States of every table: nothing read yet; a stop string was read (final)."""


def find_stop_end(text: str, stops: Sequence[str]) -> int | None:
    """End of the stop string that ends first in a text; None: there is none.

    >>> find_stop_end("a</search>b", ("</answer>", "</search>"))
    10
    """
    ends = [text.find(stop) + len(stop) for stop in stops if stop and stop in text]
    return min(ends, default=None)


class StopTable:
    """`next_SV[state, token]` for a set of stop strings; state 0 starts, state 1 has stopped."""

    def __init__(self, token_bytes: Sequence[bytes], stops: Sequence[str]) -> None:
        step = _byte_automaton([stop.encode() for stop in stops if stop])
        lengths = np.array([len(piece) for piece in token_bytes])
        state = np.repeat(np.arange(len(step))[:, None], len(token_bytes), axis=1)
        for position in range(int(lengths.max(initial=0))):
            # Tokens still unread at this byte; ever fewer.
            index = np.nonzero(lengths > position)[0]
            byte = np.array([token_bytes[int(i)][position] for i in index])
            state[:, index] = step[state[:, index], byte]
        self.next_SV: np.ndarray[Any, np.dtype[np.int16]] = state.astype(np.int16)

    def feed(self, state: int, token: int) -> int:
        """The state after one more token."""
        return int(self.next_SV[state, token])

    def find_end(self, ids: Sequence[int]) -> int | None:
        """Number of tokens up to the one that completes a stop string; None: none does."""
        state = START
        for number, token in enumerate(ids):
            state = self.feed(state, token)
            if state == STOPPED:
                return number + 1
        return None


def _byte_automaton(stops: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Aho and Corasick (1975): `step[state, byte]`, all of it filled in, stops absorbed."""
    children: list[dict[int, int]] = [{}, {}]
    for stop in stops:
        state = START
        for number, byte in enumerate(stop):
            if number == len(stop) - 1:
                children[state][byte] = STOPPED
            elif children[state].get(byte) != STOPPED:
                if byte not in children[state]:
                    children[state][byte] = len(children)
                    children.append({})
                state = children[state][byte]
            else:
                break  # a shorter stop string ends here
    step = np.zeros((len(children), 256), np.int64)
    step[STOPPED] = STOPPED
    queue = [(state, START) for state in children[START].values() if state != STOPPED]
    for byte, state in children[START].items():
        step[START, byte] = state
    while queue:
        state, fallback = queue.pop(0)
        step[state] = step[fallback]
        for byte, child in children[state].items():
            if step[fallback, byte] == STOPPED:
                continue  # a stop string inside a longer one ends first
            if child != STOPPED:
                queue.append((child, int(step[fallback, byte])))
            step[state, byte] = child
    return step


def vocabulary_bytes(tokenizer: Any, vocab_size: int) -> list[bytes]:
    """The bytes of each token in the middle of a text; empty for ids beyond the tokenizer.

    Raises:
        PolicyError: if the tokenizer is neither byte-level nor of pieces with byte fallback, or
            decodes its tokens to other bytes.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    known = min(vocab_size, len(tokenizer))
    pieces = tokenizer.convert_ids_to_tokens(list(range(known)))
    added = tokenizer.added_tokens_decoder
    backend = getattr(tokenizer, "backend_tokenizer", None)
    is_byte_level = "ByteLevel" in str(getattr(backend, "decoder", ""))
    byte_of = {char: byte for byte, char in bytes_to_unicode().items()}
    result = [b""] * vocab_size
    for number, piece in enumerate(pieces):
        if piece is None:
            continue
        if number in added:
            result[number] = added[number].content.encode()
        elif is_byte_level:
            result[number] = bytes(byte_of[char] for char in piece if char in byte_of)
        elif len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            result[number] = bytes([int(piece[3:5], 16)])
        else:
            result[number] = piece.replace("\u2581", " ").encode()
    _check_bytes(tokenizer, result, known, added)
    return result


def _check_bytes(
    tokenizer: Any, token_bytes: Sequence[bytes], known: int, added: dict[int, Any]
) -> None:
    """Compare with what the tokenizer itself decodes, on runs of tokens spread over it."""
    ordinary = [i for i in range(known) if i not in added]
    for start in range(0, len(ordinary), max(1, len(ordinary) // 64)):
        run = ordinary[start : start + 8]
        text = tokenizer.decode(run, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        expected = b"".join(token_bytes[i] for i in run).decode("utf-8", "replace")
        # Piece tokenizers drop the space before a text's first word.
        if text not in (expected, expected.removeprefix(" ")):
            raise PolicyError(
                f"tokens {run} read {text!r}, their bytes {expected!r}: stop strings cannot be "
                "found in this vocabulary on the fly; use --set engine.generator=hf"
            )
