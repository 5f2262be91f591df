"""Push: the dry run needs no network and shows everything; what the Hub refuses is said plainly."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import succeed
from huggingface_hub import HfApi
from huggingface_hub.errors import LocalTokenNotFoundError

from searchrl.errors import ConfigError
from searchrl.plugins import load_plugins
from searchrl.runs.push import push_policy
from searchrl.runs.source import Source


class Hub:
    """Takes note of what it is asked, in the place of the client of the Hub."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.made: list[tuple[str, bool]] = []
        self.files: list[str] = []

    def whoami(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def create_repo(self, repo: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.made.append((repo, private))

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> Any:
        self.files = sorted(path.name for path in folder_path.iterdir())
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")


def push(run: Path, hub: Any, **more: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("searchrl.runs.push.HfApi", lambda: hub)
        return push_policy(Source.open(run), "me/agent", load_plugins(), **more)


def test_dry_run_shows_files_and_card_and_uploads_nothing(
    micro_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(*args: Any, **more: Any) -> None:
        raise AssertionError("a dry run asks nobody")

    monkeypatch.setattr(HfApi, "create_repo", used)
    monkeypatch.setattr(HfApi, "upload_folder", used)
    text = succeed("push", micro_run, "me/agent", "--dry-run").stdout
    assert text.startswith("me/agent: whole weights\n") and "model.safetensors" in text
    assert "# agent" in text and text.rstrip().endswith("dry run: nothing was uploaded")
    found = json.loads(succeed("push", micro_run, "me/agent", "--dry-run", "--json").stdout)
    assert found["url"] is None and found["card"].startswith("---\nlibrary_name: transformers\n")
    assert {"README.md", "config.json", "model.safetensors"} <= found["files"].keys()


def test_what_is_uploaded_is_the_export(micro_run: Path) -> None:
    hub = Hub()
    exported, card, url = push(micro_run, hub, is_private=True)
    assert hub.made == [("me/agent", True)]
    assert url == "https://hub/me/agent/commit/1"
    assert hub.files == sorted(exported["files"])
    assert 'AutoTokenizer.from_pretrained("me/agent")' in card
    assert "# agent\n" in card and "folder" not in card.partition("## Use")[2]


def test_missing_login_is_found_before_anything_is_written(
    micro_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("searchrl.runs.push.export_policy", lambda *a, **k: pytest.fail("written"))
    with pytest.raises(ConfigError, match="hf auth login"):
        push(micro_run, Hub(LocalTokenNotFoundError("no token")))


def test_hub_that_cannot_be_reached_is_no_traceback(
    micro_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="--dry-run"):
        push(micro_run, Hub(ConnectionError("refused")))
