"""From a corpus to its index: opened if there is one, built if there is none.

Owns where indexes are kept that nobody named: in the user's cache folder, by retriever, settings
and corpus. A name given as `index` is opened and never built, so that a slip is no build of hours.
Called by the factories of retrievers, once per corpus and process. Processes that start together
build once: the others wait, then map the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from searchrl import ConfigError
from searchrl.contracts import Passage, Retriever
from searchrl_retrieval.index.build import build_index
from searchrl_retrieval.index.folder import Index, find_index, open_index
from searchrl_retrieval.index.kinds import PLACES, IndexKind
from searchrl_retrieval.index.manifest import CACHE_VARIABLE
from searchrl_retrieval.index.passages import PassageStore, fingerprint_passages


def open_or_build(
    kind: IndexKind,
    passages: Sequence[Passage],
    index: str | Path | None = None,
) -> Retriever:
    """The retriever of a corpus, from its index.

    Args:
        kind: the retriever with its settings.
        passages: the corpus. With `index` there may be none: those of the index are searched.
        index: the folder of an index that was built with `searchrl index build`. Without it, one
            is kept in the cache folder, or in a temporary one if the corpus is small.

    Raises:
        IndexFault: the index cannot be used, or is one of another corpus.
    """
    if index is not None:
        opened = open_index(Path(os.path.expanduser(index)))
        if passages:
            opened.ensure_corpus(fingerprint_passages(passages), len(passages))
        return opened.retriever(kind)
    if len(passages) < kind.keep_from:
        return _build_for_now(kind, passages)
    fingerprint = fingerprint_passages(passages)
    folder = default_folder(kind, fingerprint)
    if not find_index(folder):
        build_index(kind, passages, folder, wait_s=-1, is_kept=True)
    opened = open_index(
        folder, remedy="Delete this folder; the index is built again when it is needed"
    )
    opened.ensure_corpus(fingerprint, len(passages))
    return opened.retriever(kind)


def find_stored(passages: PassageStore, ids: Sequence[str]) -> list[Passage | None]:
    """The passages of ids, None for each that is not there: `StoredRetriever.stored`.

    Raises:
        ConfigError: there are no passages at all, since neither a corpus nor an index was named.
    """
    if not len(passages):
        raise ConfigError(
            "there is nothing to search: name an index with --set retriever.index=DIR, or a corpus "
            "with --set env.corpus=PATH"
        )
    places = [passages.find(name) for name in ids]
    return [None if place is None else passages[place] for place in places]


def default_folder(kind: IndexKind, fingerprint: str) -> Path:
    """Where the index of a corpus is kept if nobody says."""
    built_with = {key: value for key, value in kind.built_with.items() if key not in PLACES}
    settings = json.dumps([kind.version, built_with], sort_keys=True)
    mark = hashlib.sha256(settings.encode()).hexdigest()
    return cache_folder() / f"{kind.name}-{fingerprint[:16]}-{mark[:8]}"


def cache_folder() -> Path:
    """The folder of all indexes that nobody named."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(os.path.expanduser(named))
    import platformdirs

    return platformdirs.user_cache_path("searchrl") / "indexes"


def _build_for_now(kind: IndexKind, passages: Sequence[Passage]) -> Retriever:
    """An index that ends with the retriever."""
    temporary = tempfile.TemporaryDirectory(prefix="searchrl-index-", ignore_cleanup_errors=True)
    try:
        index: Index = build_index(kind, passages, Path(temporary.name) / "index")
        retriever = index.retriever(kind)
    except BaseException:
        temporary.cleanup()
        raise
    # Its files are mapped, so they stay as long as it does.
    weakref.finalize(retriever, temporary.cleanup)
    return retriever
