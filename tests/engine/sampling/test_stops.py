"""Stop strings found token by token, on every seam between tokens that there is."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from searchrl.engine.sampling.stops import STOPPED, StopTable, find_stop_end, vocabulary_bytes
from searchrl.errors import PolicyError

LETTERS = [b"a", b"b", b"ab", b"ba", b"aab", b"", b"abab"]


def stopped_at(table: StopTable, tokens: list[int]) -> int | None:
    state = 0
    for count, token in enumerate(tokens, 1):
        state = table.feed(state, token)
        if state == STOPPED:
            return count
    return None


@pytest.mark.parametrize(
    ("text", "stops", "end"),
    [
        ("x</search> y</answer>", ("</answer>", "</search>"), 10),
        ("x</answer></search>", ("</answer>", "</search>"), 10),
        ("x</search", ("</answer>", "</search>"), None),
        ("", ("</search>",), None),
    ],
)
def test_the_stop_string_that_ends_first_wins(text: str, stops: tuple[str, ...], end: int | None):
    assert find_stop_end(text, stops) == end


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
    st.lists(st.integers(0, len(LETTERS) - 1), max_size=12),
)
def test_every_stop_string_is_found_with_the_token_that_completes_it(
    stops: list[str], tokens: list[int]
):
    table = StopTable(LETTERS, stops)
    expected = None
    for count in range(1, len(tokens) + 1):
        text = b"".join(LETTERS[token] for token in tokens[:count]).decode()
        if find_stop_end(text, stops) is not None:
            expected = count
            break
    assert stopped_at(table, tokens) == expected


def test_a_stop_string_inside_another_attempt_is_found():
    """`aab` on a a a b: the third `a` fails as `aab` and is the second `a` of the next one."""
    assert stopped_at(StopTable([b"a", b"b"], ["aab"]), [0, 0, 0, 1]) == 4
    assert stopped_at(StopTable([b"a", b"b"], ["aba", "b"]), [0, 1, 0]) == 2


def test_a_stop_string_of_characters_of_many_bytes():
    pieces = [bytes([byte]) for byte in "größe 終".encode()]
    table = StopTable(pieces, ["ß", "終"])
    assert stopped_at(table, list(range(len(pieces)))) == len("grö".encode()) + 2
    assert stopped_at(StopTable(pieces, ["終"]), list(range(len(pieces)))) == len(pieces)


def test_the_bytes_of_a_byte_level_vocabulary(micro_model: Path):
    tokenizer = AutoTokenizer.from_pretrained(micro_model)
    pieces = vocabulary_bytes(tokenizer, len(tokenizer) + 5)
    assert pieces[-5:] == [b""] * 5, "a model may score more ids than the tokenizer has"
    text = "I should look this up. größe 😀 終\n</search>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert b"".join(pieces[i] for i in ids) == text.encode()


def of_pieces(vocab: dict[str, int], decoder: Any) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_the_bytes_of_a_vocabulary_of_pieces_with_byte_fallback():
    vocab = {"▁stop": 0, "▁at": 1, "<0xC3>": 2, "<0x9F>": 3, "x": 4}
    decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    pieces = vocabulary_bytes(of_pieces(vocab, decoder), 5)
    assert pieces == [b" stop", b" at", b"\xc3", b"\x9f", b"x"]


def test_a_vocabulary_that_reads_otherwise_is_refused():
    vocab = {"##a": 0, "b": 1, "##c": 2}
    decoder = decoders.WordPiece(prefix="##")
    with pytest.raises(PolicyError, match="engine.generator=hf"):
        vocabulary_bytes(of_pieces(vocab, decoder), 3)
