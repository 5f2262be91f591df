"""Fuzzed files of a user: questions, corpora, plugins."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from fuzz_judge import Case
from fuzz_settings import PLAY
from fuzz_values import WORDS, damage_bytes, damage_text, draw_text, draw_value, nest

_QUESTIONS: tuple[dict[str, Any], ...] = (
    {
        "id": "q1",
        "question": "Who keeps the lighthouse?",
        "answer": "Ida",
        "supporting_ids": ["p1"],
    },
    {"id": "q2", "question": "When was it built?", "golden_answers": ["1874"], "slices": ["old"]},
    {"question": "Which ferry?", "answers": ["the Petrel"], "type": "travel"},
    {
        "prompt": [{"role": "user", "content": "Question: Who paints?"}],
        "reward_model": {"ground_truth": {"target": ["Joost"]}},
    },
)
_PASSAGES: tuple[dict[str, Any], ...] = (
    {"id": "p1", "title": "Lighthouse", "text": "It is kept by Ida."},
    {"_id": "p2", "title": "Harbour", "text": "It was built in 1874."},
    {"id": "p3", "contents": '"Ferries"\nThe Petrel goes there.'},
)
_LINES = (
    "", "{", "}", "[", "]", "[]", "{}", "null", "1", '"text"', "NaN", "{'a': 1}", '{"id": NaN}',
    '{"id": "q1", "id": "q2"}', '{"question": "a", "answer": Infinity}', "[" * 3000, '{"a":' * 3000,
    '{"id": ' + "9" * 5000 + "}", '{"question": "\\ud800", "answer": "\\udfff"}', "\ufeff{}",
    '{"question": "a", "answer": "b"} {"question": "c", "answer": "d"}', "// comment",
    "id,question",
    "id\tquestion\tanswer", "x" * 100_000, '{"id": "' + "n" * 100_000 + '"}', "\x00", "\x85",
    "\u2028",
)  # fmt: skip
_PLUGIN = '''"""A plugin."""
from searchrl import hookimpl
from searchrl.envs.text import TextEnv
from searchrl.rewards import FunctionReward


class Mine(TextEnv):
    name = "mine"


def own(episode):
    return 1.0


@hookimpl
def register_envs(register):
    register("mine", Mine, description="mine")


@hookimpl
def register_rewards(register):
    register("own", lambda: FunctionReward("own", own, values=(0.0, 1.0)))


@hookimpl
def register_retrievers(register):
    register("near", "searchrl.retrieval.bm25:BM25", concurrent=True)
'''
_CODE = (
    "1/0", "raise SystemExit", "raise SystemExit('bye')", "import nothing_here", "None", "object()",
    "[]", "lambda: 1", "lambda x, y: 1", "'a:b'", "'searchrl.nothing:x'", "'a b'", "1", "b'x'",
    "''",
    "'x' * 5000", "'\\ud800'", "'own'", "'em'", "'a\\nb'", "float('nan')", "register", "Mine",
    "hookimpl", "def", "class", "@hookimpl", "async ", "yield", "return", "PLUGIN_API = 99\n",
    "PLUGIN_API = 'x' * 9999\n", "raise ValueError('x' * 100000)\n",
    "raise ValueError('a\\n' * 99)\n",
    "raise KeyError\n", "raise RecursionError\n", "def f(): f()\nf()\n",
    "raise KeyboardInterrupt2\n",
    "\x00", "\ud800", "\t", "(" * 300, "# coding: utf-7\n", "if True:\n", "print('x' * 100)\n",
    "import sys; sys.exit(3)\n", "class Odd(Exception):\n    def __str__(self): raise ValueError\n"
    "raise Odd\n",
)  # fmt: skip


def rows(random: Random) -> Iterator[Case]:
    """Questions and a corpus in any format, one of them damaged."""
    while True:
        questions, corpus = [dict(q) for q in _QUESTIONS], [dict(p) for p in _PASSAGES]
        is_corpus = random.random() < 0.4
        chosen, good = (corpus, questions) if is_corpus else (questions, corpus)
        name, data = _write_rows(random, chosen)
        other, rest = _jsonl(good), "other.jsonl"
        names = (name, "corpus") if is_corpus else (name, "questions", "test_frac")
        mine, theirs = (rest, name) if is_corpus else (name, rest)
        words = ["--env", "corpus", f"--set=env.questions={mine}", f"--set=env.corpus={theirs}"]
        words += ["--set", f"env.test_frac={random.choice((0, 0.5, 1))}"]
        yield Case("rows", (*PLAY, *words), {name: data, rest: other.encode()}, names=names)


def plugins(random: Random) -> Iterator[Case]:
    """A plugin file with damage, asked for on the command line or in a config."""
    while True:
        lines = _PLUGIN.splitlines(keepends=True)
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(len(lines))
            kind = random.randrange(5)
            if kind == 0:
                lines[at] = damage_text(random, lines[at], _CODE)
            elif kind == 1:
                lines.insert(at, random.choice(_CODE) + "\n")
            elif kind == 2:
                del lines[at]
            elif kind == 3:
                indent = "    " if lines[at].startswith(" ") else ""
                name, factory = (random.choice(_CODE[5:25]) for _ in range(2))
                lines[at] = f"{indent}register({name}, {factory})\n"
            else:
                lines[at] = lines[at].replace("register", random.choice(("regster", "register_x")))
        data = "".join(lines).encode("utf-8", "surrogatepass")
        if random.random() < 0.1:
            data = damage_bytes(random, data)
        command = random.choice((PLAY, PLAY, ("plugins",)))
        yield Case("plugin", (*command, "--plugin", "mine.py"), {"mine.py": data})


def _jsonl(values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def _write_rows(random: Random, values: list[dict[str, Any]]) -> tuple[str, bytes]:
    """Rows with damage as a file of some format: its name and content."""
    for _ in range(random.randrange(3)):
        _damage_row(random, random.choice(values))
    kind = random.randrange(7)
    if kind == 0:
        name, data = "rows.json", json.dumps(values, indent=random.choice((None, 1))).encode()
    elif kind == 1:
        name, data = random.choice((("rows.csv", ","), ("rows.tsv", "\t"), ("rows.txt", "\t")))
        data = _table(values, data).encode("utf-8", "surrogatepass")
    else:
        lines = _jsonl(values).splitlines()
        for _ in range(random.randrange(2)):
            lines.insert(random.randrange(len(lines) + 1), random.choice(_LINES))
        name, data = "rows.jsonl", "\n".join(lines).encode("utf-8", "surrogatepass")
    if random.random() < 0.3:
        data = _edit(random, data.decode("utf-8", "replace"))
    if random.random() < 0.2:
        data = gzip.compress(data)
        data = damage_bytes(random, data) if random.random() < 0.5 else data
        name += random.choice((".gz", ""))
    if random.random() < 0.05:
        name = random.choice(("rows.parquet", "rows.xlsx", "rows", "ROWS.JSON", "rows.jsonl.gz.gz"))
    return name, data


def _table(values: list[dict[str, Any]], delimiter: str) -> str:
    stream = io.StringIO()
    keys = list(dict.fromkeys(key for value in values for key in value))
    writer = csv.DictWriter(stream, keys, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(values)
    return stream.getvalue()


def _damage_row(random: Random, row: dict[str, Any]) -> None:
    key = random.choice(list(row) or ["id"])
    kind = random.randrange(6)
    if kind == 0:
        row.pop(key, None)
    elif kind == 1:
        row[key] = [row.get(key)] * random.choice((1, 2))
    elif kind == 2:
        row[key] = nest(random)
    elif kind == 3:
        row[draw_text(random)] = row.pop(key, None)
    else:
        row[key] = draw_value(random)


def _edit(random: Random, text: str) -> bytes:
    if random.random() < 0.5:
        return damage_bytes(random, text.encode("utf-8", "surrogatepass"))
    return damage_text(random, text, WORDS).encode("utf-8", "surrogatepass")
