"""Training on what rewards say: nothing could be scored."""

from __future__ import annotations

from pathlib import Path

import pytest
from train_toy import Crash, settings

from searchrl.engine.learning.checkpoint import list_checkpoints, read_state
from searchrl.errors import FailureLimitError
from searchrl.programs.train import train

pytestmark = [pytest.mark.usefixtures("threads_restored")]


def test_a_step_in_which_nothing_could_be_scored_stops_with_the_reason(
    micro_model: Path, tmp_path: Path
) -> None:
    heard = Crash()
    with pytest.raises(FailureLimitError) as caught:
        train(settings(micro_model, tmp_path / "run", task={"reward": "declines"}), observer=heard)
    text = str(caught.value)
    assert text.startswith("training stopped at step 1: none of its 6 rollouts could be scored")
    assert "  6 × reward 'declines' could not score: the judge is away" in text
    assert "--reward env" in text and "env 'toy'" in text
    assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] == 0
    assert heard.notes[-1].endswith(f"continue with: searchrl train --resume {tmp_path / 'run'}")
