"""Audits the tokens of many sessions with an agent that does everything to its history.

    python plugins/searchrl-agents/benchmarks/audit.py --prompts 25

plays prompts × 8 rollouts, trains one step on them and compares the record with what was sampled.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from searchrl_agents.env import AgentEnv

import searchrl
from searchrl import Run


def audit(folder: Path, prompts: int) -> dict[str, Any]:
    """Figures of a step; raises AssertionError where record and sampler differ."""
    sampled: list[tuple[int, ...]] = []
    step = AgentEnv.step

    def listening(self: AgentEnv, action: Any) -> Any:
        sampled.append(action.ids)
        return step(self, action)

    AgentEnv.step = listening  # type: ignore[method-assign]
    try:
        run = searchrl.train(
            {
                "plugins": ["searchrl_agents"],
                "env": "regulations",
                "reward": "f1",
                "model": "tiny",
                "wrapper": {
                    "name": "agent",
                    "command": f"{Path(__file__).with_name('mixed.py')}:act",
                },
                "rollout": {"group_size": 8, "prompts_per_step": prompts, "temperature": 1.0},
                "algorithm": {"beta": 0.01},
                "log": {"max_rollout_files": 9},
                "eval": {"num_tasks": 1, "forced": False},
                "max_steps": 1,
                "run_dir": str(folder),
            }
        )
    finally:
        AgentEnv.step = step  # type: ignore[method-assign]
    record, trained = Run.open(folder), Counter[tuple[int, ...]]()
    rows = [*record.rollouts("train")]
    assert len(rows) == 8 * prompts and set(Counter(r["group_id"] for r in rows).values()) == {8}
    for row in record.rollouts():  # those of the evaluations were sampled, too
        turns: dict[int, list[int]] = {}
        for place, (token, author) in enumerate(zip(row["ids"], row["authors"], strict=True)):
            if author == "M":
                turns.setdefault(row["turn"][place], []).append(token)
            assert not row["ratio"] or (row["ratio"][place] is not None) == (author == "M")
        assert sorted(turns) == [*range(len(row["turns"]))]
        trained.update(map(tuple, turns.values()))
    assert not trained - Counter(sampled), "what is recorded was not sampled"
    # The rest was sampled by the checks before the first step, which keep no record.
    num_unrecorded = len(sampled) - trained.total()
    assert all(row["ratio"] for row in rows), "a rollout was not trained"
    (metrics,) = [r["metrics"] for r in run.metric_rows() if r["phase"] == "train"]
    assert metrics["mismatch_max"]["value"] <= 1e-4  # nats, in float32
    return {
        "sessions": Counter(row["final_answer"] for row in rows),
        "segments": Counter(len(row["segments"]) for row in rows),
        "turns": trained.total(),
        "turns of the checks": num_unrecorded,
        "tokens": sum(map(len, trained.elements())),
        "mismatch_max": metrics["mismatch_max"]["value"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=25)
    print(
        json.dumps(audit(Path(tempfile.mkdtemp()) / "run", parser.parse_args().prompts), indent=1)
    )
