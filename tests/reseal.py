"""For tests that edit a run: checksums anew, as if it was written that way, and its end undone."""

import json
from contextlib import suppress
from pathlib import Path

from searchrl.run_folder.manifest import Manifest, make_entry


def reseal(run: Path) -> None:
    """Write all checksums of a run folder again; files that are not there are left out."""
    if (run / "policy").is_dir():
        Manifest.of(run / "policy", {}).write(run / "policy" / "checksums.json")
    for checkpoint in run.glob("checkpoints/step_*"):
        state = checkpoint / "state.json"
        Manifest.of(checkpoint, _facts(state) if state.is_file() else {}).write(state)
    provenance = run / "provenance.json"
    if provenance.is_file():
        names = ("*.yaml", "*.jsonl", "summary.json", "rollouts/*")
        files = {
            path.relative_to(run).as_posix(): make_entry(path)
            for name in names
            for path in run.glob(name)
            if path.is_file()
        }
        Manifest(_facts(provenance), files).write(provenance)


def unfinish(run: Path) -> None:
    """Make of a finished run one that a kill has stopped before its summary was written."""
    (run / "summary.json").unlink()
    provenance = run / "provenance.json"
    with suppress(OSError, ValueError):  # a damaged one stays as it is
        record = json.loads(provenance.read_text("utf-8"))
        files = {name: entry for name, entry in record["files"].items() if name != "summary.json"}
        Manifest(_facts(provenance), files).write(provenance)


def _facts(path: Path) -> dict[str, object]:
    value = json.loads(path.read_text("utf-8"))
    return {key: one for key, one in value.items() if key not in ("files", "sha256")}
