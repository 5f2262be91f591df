"""What the figures of the benchmarks rest on: the generator of corpora, and larger sizes."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from searchrl.contracts import Passage

_FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def load(name: str) -> Any:
    """A script of the benchmarks, which find each other in their folder."""
    spec = importlib.util.spec_from_file_location(f"retrieval_{name}", _FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(_FOLDER))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_FOLDER))
    return module


generated, per_million = load("generated"), load("per_million")

REAL = [Passage(id=f"r{n}", title="River", text="the river and the bank of the town") for n in "12"]


def test_real_passages_come_first_and_a_longer_corpus_begins_with_a_shorter_one() -> None:
    long = list(generated.make_passages(REAL, 40))
    assert long[:2] == REAL and len({passage.id for passage in long}) == 40
    assert list(generated.make_passages(REAL, 12)) == long[:12]
    assert list(generated.make_passages(REAL, 1)) == REAL[:1]
    assert list(generated.make_passages(REAL, 40, seed=1))[2:] != long[2:]


def test_generated_texts_have_the_frequencies_of_zipf() -> None:
    words = generated.make_vocabulary(REAL)
    assert len(words) == len(set(words)) == 200_000 and words[:2] == ["the", "river"]
    passages = list(generated.make_passages(REAL, 2002))[2:]
    assert {len(passage.text.split()) for passage in passages} == {100}
    counts = Counter(word for passage in passages for word in passage.text.split())
    # Of 200,000 words: the first has 1 / 3.7 of the sum of 1 / (r + 2.7), which is 11.2.
    assert 0.022 < counts["the"] / 200_000 < 0.026
    assert len(counts) > 30_000


def test_a_larger_corpus_lies_on_the_line_through_two_sizes() -> None:
    small = {"count": 100, "disk_mib": 30.0, "batch_query_ms": 2.0, "peak_mib": 60.0}
    large = {"count": 200, "disk_mib": 50.0, "batch_query_ms": 3.0, "peak_mib": 70.0}
    found = per_million.scale([large, small], 1000)
    assert found == {"count": 200, "disk_mib": 210, "batch_query_ms": 11, "peak_mib": 150}


def test_one_size_grows_with_its_passages() -> None:
    row = {"count": 100, "build_cpu_s": 5.0, "disk_mib": 10.0, "batch_query_ms": 2.0,
           "peak_mib": 70.0, "peak_before_mib": 60.0}  # fmt: skip
    found = per_million.scale([row], 10_000)
    assert (found["build_cpu_s"], found["disk_mib"], found["batch_query_ms"]) == (500, 1000, 200)
    assert found["peak_mib"] == 60 + 10 * 100
