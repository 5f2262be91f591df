"""What must stay light: programs that need no model import neither torch nor transformers."""

import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]

LIGHT = (
    "--help",
    "train --help",
    "plugins",
    "config optim.lr",
    "new env capitals",
    "check tracker:jsonl",
    "play --env regulations --index 3",
    "eval --env regulations --policy scripted --num-tasks 3 --run-dir run",
    "score run --reward f1 --against em",
    "runs run",
    "inspect run --out report",
)
PROGRAM = f"""
import sys
from searchrl.cli import main
for line in {LIGHT}:
    try:
        main(line.split())
    except SystemExit as end:
        assert not end.code, line
    assert not {{"torch", "transformers", "peft"}} & set(sys.modules), line
    assert "searchrl.engine.rollout.rollout" not in sys.modules or not line.startswith("check")
"""


def run(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        input="s library hours\na 16:45\n",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_without_a_model_never_import_torch(tmp_path: Path) -> None:
    run(tmp_path, "-c", PROGRAM)
