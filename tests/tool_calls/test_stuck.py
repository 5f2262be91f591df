"""Code that never gives the interpreter back: the process ends, and file and line are written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

PLUGIN = Path(__file__).resolve().parent.parent / "fixtures" / "holds_lock.py"
LINE = next(n for n, text in enumerate(PLUGIN.read_text().splitlines(), 1) if "the line" in text)
SEARCHRL = (
    "import searchrl.tool_calls as calls; calls.STUCK_S = 3.0; "
    "from searchrl.cli import main; main()"
)


@pytest.mark.parametrize(
    "arguments",
    [
        "eval --env holding --policy scripted --num-tasks 4",
        # No more threads than faulthandler writes: the newest hundred.
        "train --env regulations --retriever holding --model tiny --set eval.num_tasks=16",
    ],
    ids=["environment", "retriever"],
)
def test_a_command_ends_and_the_line_is_written(tmp_path: Path, arguments: str) -> None:
    program, *more = arguments.split()
    limits = ["--set", "rollout.env_timeout_s=2", "--set", "rollout.reward_timeout_s=2"]
    done = subprocess.run(
        [sys.executable, "-c", SEARCHRL, program, "--plugin", str(PLUGIN), *more, *limits],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f'File "{PLUGIN}", line {LINE} in hold' in done.stderr
