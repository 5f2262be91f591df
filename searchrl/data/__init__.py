"""Data files of other people, as questions and passages; for environments and packages.

What it exports is public. `rows` reads files of rows, `arrow` those that need pyarrow or
`datasets`; `questions` and `passages` say what a row means, `gold` which passages are gold, and
`dataset` puts a whole data set together.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchrl.data.dataset import Dataset as Dataset
    from searchrl.data.dataset import load_corpus as load_corpus
    from searchrl.data.dataset import read_questions as read_questions
    from searchrl.data.folders import find_corpus as find_corpus
    from searchrl.data.folders import find_judgements as find_judgements
    from searchrl.data.folders import read_judgements as read_judgements
    from searchrl.data.gold import Pool as Pool
    from searchrl.data.gold import find_gold as find_gold
    from searchrl.data.passages import parse_passage as parse_passage
    from searchrl.data.problems import BadRow as BadRow
    from searchrl.data.problems import Problems as Problems
    from searchrl.data.problems import Row as Row
    from searchrl.data.rows import parse_rows as parse_rows
    from searchrl.data.rows import read_text as read_text
    from searchrl.data.text_folder import split_prose as split_prose

_MODULES = {
    "dataset": ("Dataset", "load_corpus", "read_questions"),
    "folders": ("find_corpus", "find_judgements", "read_judgements"),
    "gold": ("Pool", "find_gold"),
    "passages": ("parse_passage",),
    "problems": ("BadRow", "Problems", "Row"),
    "rows": ("parse_rows", "read_text"),
    "text_folder": ("split_prose",),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'searchrl.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"searchrl.data.{_LAZY[name]}"), name)
