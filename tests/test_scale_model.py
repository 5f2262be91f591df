"""The model of scale: fitted where it says so, more GPUs give more, and the page shows it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(REPO / "benchmarks")
    return __import__("scale_model")


def test_two_figures_are_met_and_more_gpus_give_more(model: Any) -> None:
    for _, *row, rate in model.TRAINING[:2]:
        assert model.train_rate(*row) == pytest.approx(rate, rel=1e-9)
    for shape in model.MODELS.values():
        rates = []
        for gpus in (8, 64, 512):
            seconds = model.stages(shape, gpus, gpus, gpus, model.MEASURED)
            step_s, longest = model.total(seconds, (*model.SAMPLING, *model.LEARNING))
            assert max(seconds.values()) == seconds[longest] < step_s < sum(seconds.values())
            rates.append((gpus / step_s, gpus / model.overlapped(shape, gpus, model.MEASURED)[0]))
        assert all(a < b for pair in pairwise(rates) for a, b in zip(*pair, strict=True))


def test_the_page_shows_what_the_script_prints(model: Any, capsys: Any) -> None:
    model.show(model.MEASURED)
    page = (REPO / "docs/explanation/scale.md").read_text("utf-8").splitlines()
    shown = {tuple(line.replace("|", " ").split()) for line in page}
    printed = [line for line in capsys.readouterr().out.splitlines() if "|" in line]
    rows = [line.replace("|", " ").split() for line in printed if "--" not in line]
    assert len(rows) > 40 and not [row for row in rows if tuple(row) not in shown]
