"""Stop strings: found in a text, or on the fly, token by token.

A stop string may begin inside one token and end inside another, and a token may hold text beyond
it. `StopTable` is an automaton over bytes, tabulated for all tokens of a vocabulary at once;
feeding one is then a look-up. Owns what the bytes of a vocabulary are. Callers: the generators,
and the rollout driver, which cuts a turn after its stop string. Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from searchrl.errors import PolicyError

START, STOPPED = 0, 1
"""States of every table: nothing read yet, and a stop string was read (it stays so)."""


class StopHit(NamedTuple):
    """Where a stop string ends in a text, and which one it was."""

    end: int
    stop: str


def find_stop_string(text: str, stops: Sequence[str]) -> StopHit | None:
    """The stop string that ends first in a text, or None.

    >>> find_stop_string("a</search>b", ("</answer>", "</search>"))
    StopHit(end=10, stop='</search>')
    """
    hits = [
        StopHit(position + len(stop), stop)
        for stop in stops
        if stop and (position := text.find(stop)) >= 0
    ]
    return min(hits, default=None)


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
    """The bytes each token stands for in the middle of a text; empty for ids beyond the tokenizer.

    Raises:
        PolicyError: if the tokenizer is neither byte-level nor of pieces with byte fallback, or
            reads its own tokens otherwise than their bytes say.
    """
    known = min(vocab_size, len(tokenizer))
    pieces = tokenizer.convert_ids_to_tokens(list(range(known)))
    added = tokenizer.added_tokens_decoder
    is_byte_level = "ByteLevel" in _decoder_text(tokenizer)
    byte_of = {char: byte for byte, char in _byte_level_chars().items()}
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


def _decoder_text(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return str(getattr(backend, "decoder", "")) if backend is not None else ""


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


def _byte_level_chars() -> dict[int, str]:
    """The printable character by which a byte-level vocabulary writes each byte (GPT-2)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    return {byte: chr(byte) for byte in shown} | {
        byte: chr(256 + number) for number, byte in enumerate(hidden)
    }
