"""The evidence of a question: the paragraphs it comes with, and which of them are gold.

The layouts are those of HotpotQA and 2WikiMultihopQA and of MuSiQue: as their authors publish them
and as `datasets` and FlashRAG store them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from searchrl.data.cells import read_object, read_texts, unpack
from searchrl.data.problems import BadRow, ensure_encodable
from searchrl.errors import show_value

_TEXTS = ("sentences", "content", "paragraphs", "paragraph_text", "text")
"""Names of the text of a paragraph, in the order in which they are looked for."""


class Paragraph(NamedTuple):
    """A paragraph of a question; `text` is None of a gold one that is known by its title only."""

    title: str
    text: str | None
    is_gold: bool = False


def read_evidence(row: Mapping[str, Any]) -> tuple[Paragraph, ...]:
    """The evidence of a row, or of its `metadata`; `BadRow` if it has none of the layouts."""
    for holder in (row, read_object(row, "metadata")):
        for keys, read in _LAYOUTS.items():
            if any(holder.get(key) is not None for key in keys):
                try:
                    return tuple(read(holder))
                except (TypeError, ValueError, KeyError, IndexError, AttributeError, StopIteration):
                    value = show_value({key: holder.get(key) for key in keys})
                    told = f"{' and '.join(keys)}: no layout that is known: {value}"
                    raise BadRow(told) from None
    return ()


def _read_musique(row: Mapping[str, Any]) -> list[Paragraph]:
    """`paragraphs`: `title`, `paragraph_text` and `is_supporting`, or `question_decomposition`."""
    hops = {
        hop.get("paragraph_support_idx") for hop in unpack(row.get("question_decomposition")) or ()
    }
    paragraphs = []
    for place, one in enumerate(unpack(row["paragraphs"])):
        mark = one.get("is_supporting")
        is_gold = bool(mark) if mark is not None else one.get("idx", place) in hops
        paragraphs.append(Paragraph(_text(one["title"]), _text(_find_text(one)), is_gold))
    return paragraphs


def _read_hotpotqa(row: Mapping[str, Any]) -> list[Paragraph]:
    """`context` and `supporting_facts`, both lists of pairs or of objects, or columns."""
    facts, context = unpack(row.get("supporting_facts")) or (), unpack(row.get("context")) or ()
    if isinstance(facts, Mapping):
        facts = facts["title"]
    gold = {fold(title): title for title in reversed([*map(_title_of, facts)])}
    if isinstance(context, Mapping):
        context = list(zip(context["title"], _find_text(context), strict=True))
    # In other data sets it is one text to read from, or a list of texts without titles.
    if isinstance(context, str) or any(isinstance(one, str) for one in context):
        context = ()
    paragraphs = []
    for one in context:
        text = _find_text(one) if isinstance(one, Mapping) else one[1]
        title = _title_of(one)
        paragraphs.append(Paragraph(title, _text(text), fold(title) in gold))
    there = {fold(paragraph.title) for paragraph in paragraphs}
    lacking = [title for key, title in reversed(gold.items()) if key not in there]
    return paragraphs + [Paragraph(title, None, True) for title in lacking]


_LAYOUTS: dict[tuple[str, ...], Callable[[Mapping[str, Any]], list[Paragraph]]] = {
    ("paragraphs",): _read_musique,
    ("context", "supporting_facts"): _read_hotpotqa,
    ("supporting_titles",): lambda row: [
        Paragraph(title, None, True)
        for title in dict.fromkeys(read_texts(row, "supporting_titles", "a list of titles", ";"))
    ],
}


def fold(text: str) -> str:
    """A title or question without case, spacing and Unicode form, which copies need not share."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _title_of(one: Any) -> str:
    if isinstance(one, Mapping):
        return _text(one["title"])
    return _text(one if isinstance(one, str) else one[0])


def _find_text(one: Mapping[str, Any]) -> Any:
    return next(one[name] for name in _TEXTS if one.get(name) is not None)


def _text(value: Any) -> str:
    """A text, or sentences: HotpotQA's begin with their space, those of 2WikiMultihopQA do not."""
    if isinstance(value, list | tuple):
        value = ("" if any(one[:1].isspace() for one in value[1:]) else " ").join(value)
    return ensure_encodable("the evidence", value.strip())
