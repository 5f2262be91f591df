"""Demonstrations from a file: what is read, and what is said of files that cannot be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from searchrl.errors import DataError
from searchrl.programs.traces import load_traces

ROW = json.dumps({"id": "a", "prompt": "q", "turns": [{"text": "t", "observation": "o"}]})
PACKED = gzip.compress((ROW + "\n").encode() * 200)


def test_plain_and_packed_read_the_same(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(f"{ROW}\n\n{ROW}\n")
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(f"{ROW}\n{ROW}\n".encode()))
    plain = load_traces(tmp_path / "t.jsonl")
    assert plain == load_traces(tmp_path / "t.jsonl.gz")
    assert [(t.id, t.prompt, t.turns) for t in plain] == [("a", "q", (("t", "o"),))] * 2


@pytest.mark.parametrize(
    "content",
    [
        PACKED[:40],
        PACKED[:15] + b"\xff" * 10 + PACKED[25:],
        PACKED[:-8] + b"\0" * 8,
        ROW.encode(),
    ],
    ids=["cut", "bits", "checksum", "no-gzip"],
)
def test_damaged_gzip_is_named_and_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    """`zlib.error` is neither an OSError nor an EOFError."""
    file = tmp_path / "t.jsonl.gz"
    file.write_bytes(content)
    with pytest.raises(
        DataError, match="unreadable gzip .*unpack it to see, or fetch it"
    ) as caught:
        load_traces(file)
    assert str(file) in str(caught.value)


def test_every_bad_row_is_listed_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    rows = [ROW.encode(), b'{"prompt": "\xff"}', b"[" * 100_000, b'{"prompt": "q", "turns": []}']
    file.write_bytes(b"\n".join(rows))
    with pytest.raises(DataError) as caught:
        load_traces(file)
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()[1:]] == [
        f"  {file}:{number}" for number in (2, 3, 4)
    ]


def test_half_of_a_surrogate_pair_is_refused_before_a_tokenizer_meets_it(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    broken = r'{"prompt": "q", "turns": [{"text": "\ud83d"}]}'
    file.write_text(f"{ROW}\n{broken}\n")
    with pytest.raises(DataError, match=r"t\.jsonl:2: 'turn 0: text' holds half of a surrogate"):
        load_traces(file)


def test_a_json_list_of_traces_is_read_with_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(f"[\n{ROW},\n{ROW}]")
    assert [trace.turns for trace in load_traces(file)] == [(("t", "o"),)] * 2
    file.write_text(f"[\n{ROW},\n7]")
    with pytest.raises(DataError, match=r"t\.json:3: expected an object such as"):
        load_traces(file)
