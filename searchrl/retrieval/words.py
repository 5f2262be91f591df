"""Index terms: the words of a text that a retriever compares.

Words of any script are lower-cased; scripts written without spaces (and Korean, whose particles
stick to the words) give overlapping pairs of characters. Deliberately no stemming, no stop words,
no folding of accents: the terms are those of plain BM25, and a language is never guessed.
"""

from __future__ import annotations

import re
import unicodedata

# Han with its iteration mark and zero, kana, hangul; Thai, Lao, Myanmar and Khmer.
_UNSPACED = (
    "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"
)
# Vowel signs and accents that NFKC does not join to a letter. `\w` does not match them, but they
# must not split a Hindi or a vocalised Arabic word.
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff"
_DANDAS = "\u0964\u0965"

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_TERM = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}](?:(?![{_DANDAS}])[{_MARKS}])*)+")
_UNSPACED_START = re.compile(rf"[{_UNSPACED}]")


def tokenize(text: str) -> list[str]:
    """Return the index terms of `text`, in order, repeats included. Total on any string.

    Text is normalised (NFKC, so full-width digits equal plain ones) and case-folded. A run of n
    characters of an unspaced script gives its n - 1 pairs; a single one is a term itself.

    >>> tokenize("The U.S. of 1999: 学位法 § 3")
    ['the', 'u', 's', 'of', '1999', '学位', '位法', '3']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    terms: list[str] = []
    for run in _TERM.findall(unicodedata.normalize("NFKC", text).casefold()):
        if len(run) > 1 and _UNSPACED_START.match(run):
            terms.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            terms.append(run)
    return terms
