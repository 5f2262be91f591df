"""For tests that edit a run: checksums anew, as if it was written that way, and its end undone."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from searchrl.run_folder.reader import ALARMS, CONFIG, FINISHED, METRICS, WRITTEN
from searchrl.run_folder.sealing import SEAL, encode_sealed, write_checksums


def reseal(run: Path) -> None:
    """Write all checksums of a run folder again; files that are not there are left out."""
    for folder in (run / "policy", *run.glob("checkpoints/step_*")):
        if folder.is_dir():
            write_checksums(folder)
    for path in (run / "summary.json", *run.glob("checkpoints/step_*/state.json")):
        _reseal_file(path)
    provenance = run / "provenance.json"
    if provenance.is_file():
        record = json.loads(provenance.read_text("utf-8"))
        for name in (CONFIG, METRICS, ALARMS):
            data = (run / name).read_bytes() if (run / name).is_file() else b""
            facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            record.setdefault(WRITTEN, {})[name] = facts
        provenance.write_text(json.dumps(record), "utf-8")
        _reseal_file(provenance)


def unfinish(run: Path) -> None:
    """Make of a finished run one that a kill has stopped before its summary was written."""
    (run / "summary.json").unlink()
    provenance = run / "provenance.json"
    with suppress(OSError, ValueError):  # a damaged one stays as it is
        record = json.loads(provenance.read_text("utf-8"))
        del record[FINISHED]
        provenance.write_text(json.dumps(record), "utf-8")
        _reseal_file(provenance)


def _reseal_file(path: Path) -> None:
    if path.is_file():
        value = json.loads(path.read_text("utf-8"))
        value.pop(SEAL, None)
        path.write_bytes(encode_sealed(value))
