"""Texts before queries and passages, as models want them; without them, recall drops silently.

A setting decides, then the prompts in the model's own folder, then the family.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from searchrl import ConfigError


class Prefixes(NamedTuple):
    """The texts that are put before every query and before every passage; "" for none."""

    query: str = ""
    passage: str = ""


_SEARCH = "Represent this sentence for searching relevant passages: "
_TASK = "Given a web search query, retrieve relevant passages that answer the query"

FAMILIES: tuple[tuple[str, Prefixes], ...] = (
    (r"e5-mistral|e5-.*-instruct", Prefixes(f"Instruct: {_TASK}\nQuery: ")),
    (r"(^|[^a-z0-9])e5([^a-z0-9]|$)", Prefixes("query: ", "passage: ")),
    (r"bge-m3", Prefixes()),
    (r"bge-.*-zh", Prefixes("为这个句子生成表示以用于检索相关文章：")),
    (r"bge-.*-en", Prefixes(_SEARCH)),
    (r"mxbai-embed|snowflake-arctic-embed-(xs|s|m|l)$", Prefixes(_SEARCH)),
    (r"snowflake-arctic-embed-.*v2", Prefixes("query: ")),
    (r"nomic-embed", Prefixes("search_query: ", "search_document: ")),
    (r"ruri-", Prefixes("クエリ: ", "文章: ")),
    (r"qwen3-embedding", Prefixes(f"Instruct: {_TASK}\nQuery:")),
)
"""Families of models by the name of their folder, or of what they were made from, in lower case.
The first that matches decides. From the cards of the models."""

_QUERY, _PASSAGE = ("query", "s2p_query", "queries"), ("passage", "document", "corpus")
"""The names under which a sentence-transformers folder keeps its prompts."""


def find_prefixes(folder: Path, query: str | None, passage: str | None) -> Prefixes:
    """The prefixes of the model in a folder.

    `query` and `passage` are what the user wants; None: what the model wants. "" is no prefix.
    """
    known = _read(folder / "config_sentence_transformers.json").get("prompts") or {}
    origin = str(_read(folder / "config.json").get("_name_or_path", ""))
    # Its own name, the folders above it (as a model hub's cache has them) and its origin.
    names = [name.lower() for name in (*reversed(folder.parts[-4:]), origin)]
    of_family = next(
        (prefixes for name in names for pattern, prefixes in FAMILIES if re.search(pattern, name)),
        Prefixes(),
    )
    prompts = [next((known[n] for n in keys if known.get(n)), None) for keys in (_QUERY, _PASSAGE)]
    decided = zip((query, passage), prompts, of_family, strict=True)
    return Prefixes(*(next(text for text in texts if text is not None) for texts in decided))


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes()) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"'{path}' is damaged: {error}. Copy the model's folder again") from error
    return value if isinstance(value, dict) else {}
