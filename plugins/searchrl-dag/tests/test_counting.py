"""The counted table of `benchmarks/counting.py`: what a reward says of sources."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from searchrl_dag.multisource.world import SOURCES

from searchrl.contracts import Passage
from searchrl.envs import Shown

FACTS = {"general": "rye", "news": "oats"}


@pytest.mark.parametrize(("is_right", "best"), [(True, "general"), (False, "news")])
def test_a_wrong_answer_speaks_for_the_source_that_told_another_one(
    is_right: bool, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for other kinds of entity, as long as nothing is known of them."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    from counting import Counts

    text, name = "In fact the crop of {} is {}.", "Great Dalham Farm"
    shown = Shown()
    shown.add(Passage(f"{one}/fact", text.format(name, crop)) for one, crop in FACTS.items())
    counts = Counts(Random(0), depth=2)
    asked = [[*SOURCES]]
    counts.learn(f"Find the usual crop of {name}.", asked, shown, "rye", is_right)
    assert counts.rank([("crop", "East Welby Club")])[0][0] == best
