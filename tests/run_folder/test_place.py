"""Where a run is written: its name, who holds it, and what takes the place of what."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from searchrl.config import build_config
from searchrl.errors import RunFolderError, RunInUseError
from searchrl.run_folder import choose_folder, holding
from searchrl.run_folder import place as module
from searchrl.run_folder.place import filling


def test_a_run_without_a_name_is_called_after_its_first_task_and_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = build_config({"tasks": [{"env": {"name": name}} for name in ("corpus", "text")]})

    class Clock(module.datetime):
        @classmethod
        def now(cls, zone: object = None) -> Clock:
            return cls(2031, 2, 3, 4, 5, 6)

    monkeypatch.setattr(module, "datetime", Clock)
    first = choose_folder(config)
    assert first == Path("runs/corpus-20310203-040506") and not first.exists()
    first.mkdir(parents=True)
    assert choose_folder(config) == Path(f"{first}-{os.getpid()}")
    named = build_config({"run_dir": "mine/run"})
    assert choose_folder(named) == Path("mine/run")
    with holding(Path("mine/run")):  # what only holds it is no run
        assert choose_folder(named) == Path("mine/run")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(RunFolderError, match=r"\.*' may not be written to"):
        choose_folder(named)


def test_one_process_holds_a_folder_and_leaves_nothing_where_nothing_came(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    with holding(run):
        begun = time.monotonic()
        with pytest.raises(RunInUseError, match="is in use by another process"), holding(run):
            pass
        assert time.monotonic() - begun < 0.9
    assert not run.exists() and run.parent.exists()
    for _ in range(2):  # it is let go each time
        with holding(run):
            (run / "config.yaml").touch()
        assert (run / "config.yaml").exists()


def test_a_folder_is_filled_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    with filling(folder) as beside:
        (beside / "a").write_text("1")
        assert not folder.exists()
    for part in ("a", "c"):
        (folder / part).unlink(missing_ok=True)
        (folder / part).mkdir()
        (folder / part / "old").touch()
    monkeypatch.chdir(folder)
    with filling(Path()) as beside:
        (beside / "a").mkdir()
        (beside / "a" / "new").touch()
        (beside / "b").write_text("2")
    assert [path.name for path in (folder / "a").iterdir()] == ["new"]
    assert sorted(os.listdir()) == ["a", "b", "c"] and os.listdir(tmp_path) == ["out"]
    for error, told in ((OSError(errno.ENOSPC, "full"), RunFolderError), (KeyError(), KeyError)):
        with pytest.raises(told), filling(folder) as beside:
            (beside / "b").write_text("3")
            raise error
        assert os.listdir(tmp_path) == ["out"] and (folder / "b").read_text() == "2"
