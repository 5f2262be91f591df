"""Text that UTF-8 has no bytes for: every writer can write it, and every reader can read it."""

import gzip
import json
from pathlib import Path

import searchrl
from searchrl.config import build_config
from searchrl.core.encoding import encode_text, make_encodable
from searchrl.run_folder import RunWriter
from searchrl.trackers.rows import read_rows

HALF = "a\ud800b\udcff"
SEEN = "a\ufffdb\ufffd"
NAME = "a\udcff"
"""As Python reads the name of a file whose bytes are no UTF-8."""


def test_halves_of_pairs_are_replaced_and_all_else_stays() -> None:
    assert encode_text(HALF).decode() == SEEN
    for text in ("", "ß 中文 🙂 \u2028", "back\\ud800slash"):
        assert make_encodable(text) is text or make_encodable(text) == text
        assert encode_text(text).decode() == text


def test_run_with_such_texts_is_recorded(tmp_path: Path) -> None:
    """A step whose record fails is lost; a data set with `"type": "\\ud800"` lost every one."""
    config = build_config({"tasks": [{"env": {"name": "corpus", "questions": f"{NAME}.jsonl"}}]})
    writer = RunWriter.create(config, tmp_path / "run")
    unwritable = ""
    try:
        writer.write_provenance([{"plugin": "own", "file": HALF}], program="train")
        writer.write_rollouts("step_000001", [{"question": HALF}], compress=True)
        writer.write_rollouts("step_000002", [{"question": HALF}], compress=False)
        writer.log(1, {f"em/{HALF}": {"value": 1.0, "n": 1}}, "train")
        writer.write_failure("step_000001", f"KeyError: {HALF}")
        writer.write_summary({"env": [HALF]})
    except UnicodeError as error:
        unwritable = str(error)
    assert unwritable == ""
    run = searchrl.Run.open(tmp_path / "run")
    assert run.config == config
    step = run.path / "rollouts" / "step_000001"
    packed, plain = step.with_suffix(".jsonl.gz"), step.with_name("step_000002.jsonl")
    for data in (gzip.decompress(packed.read_bytes()), plain.read_bytes()):
        assert json.loads(data) == {"question": SEEN}
    assert run.metrics == [{"step": 1, "phase": "train", f"em/{SEEN}": 1.0}]
    assert run.provenance["plugins"][0]["file"] == run.summary["env"][0] == SEEN
    assert (run.path / "failures" / "step_000001.txt").read_text("utf-8").endswith(SEEN)
    assert list(read_rows(run.path / "metrics.jsonl"))
