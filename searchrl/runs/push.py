"""Push of an export to the Hugging Face Hub, with its model card."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from searchrl.engine.model.quantization import first_line
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.runs.card import is_hub_id
from searchrl.runs.export import export_policy
from searchrl.runs.source import Source


def push_policy(
    source: Source,
    repo: str,
    registry: Registry,
    *,
    merge: bool = False,
    base: str | None = None,
    is_private: bool = False,
    is_dry: bool = False,
) -> tuple[dict[str, Any], str, str]:
    """Export the policy of a run and upload it to a repository, which is made if it is not there.

    A dry run exports to a temporary folder, uploads nothing and needs no network. For the arguments
    see `export_policy`. Returns the export as JSON, its card, and the address of the upload ("" in
    a dry run). Raises `ConfigError` for a name that is none, a missing login, or whatever the Hub
    refuses, and the errors of `export_policy`.
    """
    if not is_hub_id(repo):
        raise ConfigError(f"'{repo}' is no repository: expected USER/NAME, such as me/agent")
    api = None
    if not is_dry:
        # First: a missing login is found before gigabytes are written.
        with _saying_what_the_hub_refused(repo):
            api = HfApi()
            api.whoami()
    with tempfile.TemporaryDirectory(prefix="searchrl-push-") as folder:
        path = Path(folder) / "export"
        exported = export_policy(source, path, registry, merge=merge, base=base, repo=repo)
        told = exported.to_dict() | {"path": repo}
        card = (path / "README.md").read_text("utf-8")
        if api is None:
            return told, card, ""
        with _saying_what_the_hub_refused(repo):
            api.create_repo(repo, private=is_private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repo, folder_path=path, commit_message="Upload a search agent"
            )
    return told, card, str(commit.commit_url)


@contextmanager
def _saying_what_the_hub_refused(repo: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # its client has errors of its own, another one in each version
        raise ConfigError(
            f"the Hub does not take '{repo}': {first_line(error)}. Log in with `hf auth login` (a "
            "token that may write; or set HF_TOKEN), name a repository of your own, or see what "
            "would be uploaded with --dry-run"
        ) from error
