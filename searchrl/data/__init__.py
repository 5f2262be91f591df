"""Data files of other people, as questions and passages; for environments and packages.

What it exports is public. `rows` reads files of rows, `arrow` those that need pyarrow or
`datasets`; `questions` and `passages` say what a row means, `gold` which passages are gold, and
`dataset` puts a whole data set together.
"""

from searchrl.data.dataset import Dataset, load_corpus, read_questions
from searchrl.data.folders import find_corpus, find_judgements, read_judgements
from searchrl.data.gold import Pool, find_gold
from searchrl.data.passages import iter_corpus, parse_passage
from searchrl.data.problems import BadRow, Problems, Row
from searchrl.data.rows import parse_rows, read_text
from searchrl.data.text_folder import split_prose

__all__ = [
    "BadRow",
    "Dataset",
    "Pool",
    "Problems",
    "Row",
    "find_corpus",
    "find_gold",
    "find_judgements",
    "iter_corpus",
    "load_corpus",
    "parse_passage",
    "parse_rows",
    "read_judgements",
    "read_questions",
    "read_text",
    "split_prose",
]
