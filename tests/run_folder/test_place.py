"""Where a run may be written, one process at a time, and folders that are filled whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from searchrl.config import build_config
from searchrl.errors import RunFolderError, RunInUseError
from searchrl.run_folder import holding, place
from searchrl.run_folder.place import choose_folder, filling, partial_of, save_beside


class Noon(datetime):
    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_a_run_without_a_name_gets_a_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, "datetime", Noon)
    first = choose_folder(build_config({"tasks": [{"env": "corpus"}, {"env": "text"}]}))
    assert str(first) == "runs/corpus-20260102-120000" and not first.exists()
    first.mkdir(parents=True)
    assert str(choose_folder(build_config({"env": "corpus"}))) == f"{first}-{os.getpid()}"


def test_a_place_that_will_not_do_is_found_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build_config({"run_dir": str(tmp_path / "a" / "b")})
    assert choose_folder(config) == tmp_path / "a" / "b"
    taken = tmp_path / "taken" / "README.md"
    taken.parent.mkdir()
    taken.touch()
    (taken.parent / place.LOCK).touch()  # alone it would be what a killed process left
    with pytest.raises(RunFolderError, match="'.*taken' exists already; it is not empty"):
        choose_folder(build_config({"run_dir": str(taken.parent)}))
    monkeypatch.setattr(place.os, "access", lambda path, mode: False)
    with pytest.raises(RunFolderError, match=f"'{tmp_path}' may not be written to; choose another"):
        choose_folder(config)
    (tmp_path / "a").touch()
    with pytest.raises(RunFolderError, match="/a' is no folder"):
        choose_folder(config)


def test_a_folder_is_filled_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    partial_of(folder).mkdir()
    (partial_of(folder) / "stale").touch()  # a kill left it
    with filling(folder) as beside:
        (beside / "inner").mkdir()
        (beside / "inner" / "old").touch()
    assert [path.name for path in folder.rglob("*")] == ["inner", "old"]
    (folder / "mine").touch()
    before = folder.stat().st_ino
    with pytest.raises(KeyError), filling(folder) as beside:
        (beside / "half").touch()
        raise KeyError
    monkeypatch.chdir(folder)  # where a shell stands stays the same folder
    with filling(Path(".")) as beside:
        (beside / "inner").mkdir()
        (beside / "inner" / "new").touch()
    assert sorted(path.name for path in folder.rglob("*")) == ["inner", "mine", "new"]
    assert folder.stat().st_ino == before and list(tmp_path.iterdir()) == [folder]
    (tmp_path / "file").touch()
    said = pytest.raises(RunFolderError, match="Free space, or choose another")
    with said, filling(tmp_path / "file" / "out"):
        pass


def test_what_has_no_run_folder_is_saved_among_the_temporary_files(tmp_path: Path) -> None:
    path = save_beside("traceback", "half \ud800")
    assert (path.read_text("utf-8"), path.suffix) == ("half \ufffd", ".txt")
    path.unlink()


# --- one process at a time -----------------------------------------------------------------
def test_a_second_process_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with holding(tmp_path), pytest.raises(RunInUseError) as caught, holding(tmp_path):
        pass
    text = str(caught.value)
    assert "\n" not in text and f"'{tmp_path}' is in use by another process" in text
    with holding(tmp_path.parent):
        pass  # another folder is no matter


def test_the_lock_of_a_killed_process_does_not_block(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\nfrom searchrl.run_folder import holding\n"
        "with holding(pathlib.Path(sys.argv[1])):\n    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)])
    assert killed.returncode == -signal.SIGKILL
    with holding(tmp_path):
        pass


def test_a_folder_is_let_go_at_once_and_removed_where_it_stays_empty(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    with holding(run):
        begun = time.monotonic()
        with pytest.raises(RunInUseError), holding(run):
            pass
        assert time.monotonic() - begun < 0.9
    assert not run.exists()
    for _ in range(2):
        with holding(run):
            (run / "config.yaml").touch()
        assert (run / "config.yaml").exists()
