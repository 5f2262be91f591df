"""Index terms of `bm25s`, for passages and queries: the core's words, without stop words, stemmed.

Scripts without spaces give pairs of characters. Stop words are from bm25s, stemmers from Snowball.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import groupby

from searchrl.retrieval import tokenize

LANGUAGES = tuple(
    "danish dutch english french german italian norwegian portuguese russian spanish swedish "
    "turkish".split()
)
"""Languages with a stemmer and with stop words in `bm25s.stopwords`. Those of English are Lucene's
33, which leave "who", "when" and "after" to be found."""

PLAIN = "none"
"""The language of a corpus whose words are taken as they are."""

LIST = 5
"""Numbers with no word between them that are a list. A date, a version or an address has fewer."""


class Analyzer:
    """Turns text into the terms of a language. Safe to use from several threads.

    Of a list of numbers, those of one digit are left out: they say little and are in many texts. A
    text that has nothing else keeps them, and its stop words, too: "It" is a novel.
    """

    def __init__(self, language: str) -> None:
        self.stops: frozenset[str] = frozenset()
        self._stem: Callable[[list[str]], list[str]] = list
        self._lock = threading.Lock()
        if language != PLAIN:
            import Stemmer
            from bm25s import stopwords

            # Split as texts are: a list may have words with an apostrophe.
            mark = "EN" if language == "english" else language.upper()
            words = getattr(stopwords, f"STOPWORDS_{mark}")
            self.stops = frozenset(term for word in words for term in tokenize(word))
            self._stem = Stemmer.Stemmer(language).stemWords

    def terms(self, text: str) -> list[str]:
        """The terms of a text in order, repeats included."""
        words = tokenize(text)
        kept: list[str] = []
        for is_number, group in groupby(words, str.isdecimal):
            run = list(group)
            shortest = 2 if is_number and len(run) >= LIST else 1
            kept += [one for one in run if len(one) >= shortest and one not in self.stops]
        with self._lock:  # a stemmer serves one thread
            return self._stem(kept or words)
