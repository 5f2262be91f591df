"""From a corpus to its index: opened if there is one, built if there is none.

Indexes that nobody named are in the user's cache folder, by retriever, settings and corpus. A name
given as `index` is opened and never built, so that a slip is no build of hours. Processes that
start together build once: the others wait, then map the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

from searchrl import cache_path
from searchrl.contracts import Passage, Retriever
from searchrl_retrieval.index.build import CACHE_VARIABLE, build_index
from searchrl_retrieval.index.folder import PLACES, IndexKind, has_index, open_index
from searchrl_retrieval.index.manifest import FORMAT
from searchrl_retrieval.index.passages import fingerprint_passages


class IndexFactory:
    """The factory of a retriever that is kept in index folders, from its `IndexKind`.

    Its settings are the fields of the kind, and `index`: the folder of an index.
    """

    def __init__(self, kind: Callable[..., IndexKind]) -> None:
        self.kind = kind
        passages = Parameter("passages", Parameter.POSITIONAL_OR_KEYWORD)
        index = Parameter("index", Parameter.KEYWORD_ONLY, default=None, annotation=str | None)
        settings = signature(kind, eval_str=True).parameters.values()
        named = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in settings]
        self.__signature__ = Signature([passages, *named, index])

    def __call__(
        self, passages: Sequence[Passage], *, index: str | None = None, **settings: Any
    ) -> Retriever:
        """The retriever of a corpus, from its index.

        With `index`, the folder of an index that was built with `searchrl index build`, there may
        be no passages: those of the index are searched. Without it, one is kept in the cache
        folder, or in a temporary one if the corpus is small.
        """
        kind = self.kind(**settings)
        if index is not None:
            opened = open_index(Path(os.path.expanduser(index)))
            if passages:
                opened.ensure_corpus(fingerprint_passages(passages), len(passages))
            return opened.retriever(kind)
        if len(passages) < kind.keep_from:
            return _build_for_now(kind, passages)
        fingerprint = fingerprint_passages(passages)
        built_with = {key: value for key, value in kind.built_with.items() if key not in PLACES}
        settings_text = json.dumps([FORMAT, built_with], sort_keys=True)
        mark = hashlib.sha256(settings_text.encode()).hexdigest()
        folder = cache_folder() / f"{kind.name}-{fingerprint[:16]}-{mark[:8]}"
        if not has_index(folder):
            build_index(kind, passages, folder, wait_s=-1, is_kept=True)
        remedy = "Delete this folder; the index is built again when it is needed"
        opened = open_index(folder, remedy=remedy)
        opened.ensure_corpus(fingerprint, len(passages))
        return opened.retriever(kind)


def cache_folder() -> Path:
    """The folder of all indexes that nobody named."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(os.path.expanduser(named)) if named else cache_path("indexes")


def _build_for_now(kind: IndexKind, passages: Sequence[Passage]) -> Retriever:
    """An index that ends with the retriever."""
    temporary = tempfile.TemporaryDirectory(prefix="searchrl-index-", ignore_cleanup_errors=True)
    try:
        retriever = build_index(kind, passages, Path(temporary.name) / "index").retriever(kind)
    except BaseException:
        temporary.cleanup()
        raise
    # Its files are mapped, so they stay as long as it does.
    weakref.finalize(retriever, temporary.cleanup)
    return retriever
