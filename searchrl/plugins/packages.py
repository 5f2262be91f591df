"""Our own packages of plugins: which package offers a name, for those who have not installed it.

Owns the list, which a test compares with the packages, the sentence about it, whom their parts ask
by default, and the settings that name files they write or send.
"""

from __future__ import annotations

from collections.abc import Mapping

PACKAGES: Mapping[tuple[str, str], str] = {
    ("tracker", "wandb"): "searchrl-wandb",
    ("env", "gsm_tools"): "searchrl-gsm-tools",
    ("retriever", "bm25s"): "searchrl-retrieval",
    ("retriever", "http"): "searchrl-retrieval",
    ("retriever", "dense"): "searchrl-retrieval",
    ("retriever", "static"): "searchrl-retrieval",
    ("retriever", "hybrid"): "searchrl-retrieval",
    ("retriever", "rerank"): "searchrl-retrieval",
    ("judge", "endpoint"): "searchrl-judge",
    ("judge", "gemini"): "searchrl-judge",
    ("reward", "judge_rank"): "searchrl-judge",
    ("command", "judge"): "searchrl-judge",
    ("env", "retrieval-control"): "searchrl-control",
    ("algorithm", "control-ppo"): "searchrl-control",
    ("policy", "control-linear"): "searchrl-control",
    ("policy", "control-mlp"): "searchrl-control",
    ("policy", "control-gru"): "searchrl-control",
    ("reward", "list_judge"): "searchrl-control",
    ("command", "control"): "searchrl-control",
    ("protocol", "dag"): "searchrl-dag",
    ("reward", "dag"): "searchrl-dag",
    ("reward", "dag_judge"): "searchrl-dag",
    ("reward", "dag_nodes"): "searchrl-dag",
    ("reward", "dag_levels"): "searchrl-dag",
    ("env", "multisource"): "searchrl-dag",
    ("env", "multisource_questions"): "searchrl-dag",
    ("retriever", "exa"): "searchrl-dag",
    ("command", "index"): "searchrl-retrieval",
    ("command", "retrieve"): "searchrl-retrieval",
    ("command", "retrieve-eval"): "searchrl-retrieval",
    ("command", "serve-retriever"): "searchrl-retrieval",
}
"""What our own packages of plugins offer: (kind, name) -> the package."""


ADDRESSES: Mapping[str, tuple[str, str]] = {
    "endpoint": ("http://localhost:8000/v1", "SEARCHRL_API_KEY"),
    "exa": ("https://api.exa.ai/search", "EXA_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
}
"""Whom a part of ours asks if its settings name nobody, and the variable with the key for it. A run
folder of somebody else needs permission for it, as for an address that it names."""


ASKED_BY = ("name", "reformulator")
"""Settings that may hold one of these names; the `url` beside them is asked in its place."""

CACHE_SETTING = "cache"
"""The setting that names the file or folder in which answers of a server are kept."""
WRITTEN = (CACHE_SETTING, "chroma", "split_file")
"""Settings that name a file or folder that is written."""
READ = ("rubric", "ranking_rubric")
"""Settings that name a text file that is sent to a server."""


def say_package(kind: str, name: str) -> str:
    """How to install the package of ours that offers a name; empty if none does."""
    package = PACKAGES.get((kind, name))
    if package is None:
        return ""
    return (
        f" '{name}' comes with the package {package}, which is not installed: in a checkout of "
        f"SearchRL, `pip install plugins/{package}`"
    )
