"""Indexes shared by all that search the same corpus: one is built per distinct corpus."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from searchrl.contracts import Retriever, RetrieverFactory
from searchrl.core.episode import Passage
from searchrl.errors import RetrieverFailure, SearchRLError


class IndexCache:
    """A retriever factory that builds one index per distinct corpus and keeps the latest ones.

    `factory` builds an index; `capacity` indexes are kept, those that a step searches. `naming`
    makes a context in which the retriever is named if something does not return, `make_lock` the
    lock of those who wait for an index. Pass one as `retriever` to several environments and they
    share its indexes. Safe to use from threads: if several ask for a corpus at the same moment, one
    builds the index and the others wait for it.
    """

    def __init__(
        self,
        factory: RetrieverFactory,
        capacity: int = 64,
        naming: Callable[[], AbstractContextManager[None]] = nullcontext,
        make_lock: Callable[[], AbstractContextManager[Any]] = threading.Lock,
    ) -> None:
        self.capacity = capacity
        self._factory = factory
        self._naming = naming
        self._make_lock = make_lock
        self._built: OrderedDict[Hashable, tuple[Sequence[Passage], Retriever]] = OrderedDict()
        self._building: dict[Hashable, AbstractContextManager[Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, passages: Sequence[Passage]) -> Retriever:
        """Return the retriever of these passages, building it if it is not held."""
        corpus = tuple(passages)
        return self.get(hash(corpus), corpus)

    def get(self, key: Hashable, passages: Sequence[Passage]) -> Retriever:
        """Return the retriever of a corpus that the caller has a name for.

        The name saves hashing a large corpus at every search. The passages decide: if the name was
        used for other passages, a new index is built and replaces the old one.
        """
        corpus = tuple(passages)  # a list could change after its index was built
        with self._lock:
            turn = self._building.setdefault(key, self._make_lock())
        # Whoever waits for an index that is not ready in time waits for the retriever.
        with self._naming(), turn:
            with self._lock:
                held, retriever = self._built.get(key, ((), None))
            if retriever is None or (held is not corpus and held != corpus):
                # Outside of `_lock`: other corpora are not kept waiting.
                retriever = self._factory(corpus)
            with self._lock:
                self._built[key] = corpus, retriever
                self._built.move_to_end(key)
                self._building.pop(key, None)
                if len(self._built) > self.capacity:
                    self._built.popitem(last=False)
        return retriever

    def build(self, key: Hashable, passages: Sequence[Passage], who: str) -> None:
        """Build the index of a corpus ahead of its first search, as `get` would.

        Raises the retriever's own `SearchRLError`, or `RetrieverFailure` for anything else; it
        names `who` asked, such as `env corpus`.
        """
        try:
            self.get(key, passages)
        except SearchRLError:
            raise
        except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
            raise RetrieverFailure(
                f"{who}: the retriever could not be made of {len(passages):,} passages; it raised "
                f"{type(error).__name__}: {error}"
            ) from error
