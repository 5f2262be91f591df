"""Questions and corpora from files: every row shape we read, and every reason we refuse one.

Owns the wire formats of question rows and corpus rows (JSON, JSONL, gzip, Parquet). All bad rows
of all files are collected in `Problems` and reported together, with file and line, before
anything starts. Deliberately knows no environment and no split. Folders of text files are
`text_folder`'s; `corpus` calls both.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.core.episode import Passage
from searchrl.errors import ConfigError, DataError

QUESTION_SHAPES = (
    '{"id", "question", "answer"}, {"question", "golden_answers"} or a Search-R1 / verl row '
    '{"prompt", "reward_model": {"ground_truth": {"target"}}}'
)
CORPUS_SHAPES = (
    '{"id", "contents": "\\"Title\\"\\ntext"}, {"_id", "title", "text"} or {"id", "title", "text"}'
)
FILE_KINDS = ".jsonl, .json (each also as .gz) or .parquet"

_GZIP_MAGIC = b"\x1f\x8b"
_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_QUOTED_TITLE = re.compile(r'\s*"(?P<title>[^\n]*)"[ \t]*\r?(?:\n|\Z)')
_ANSWER_KEYS = ("golden_answers", "answers", "answer")


class Problem(NamedTuple):
    """One thing that is wrong: in which file, at which line (0: the file as a whole), and what."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.reason}"


@dataclass(slots=True)
class Problems:
    """Collects what is wrong with the data, so that one error can name all of it."""

    found: list[Problem] = field(default_factory=list)

    def add(self, path: Path, line: int, reason: str) -> None:
        """Note one problem; reading goes on."""
        self.found.append(Problem(str(path), line, reason))

    def ensure_none(self) -> None:
        """Raise one `DataError` that lists every problem, if there is any."""
        if not self.found:
            return
        count = f"{len(self.found)} problem{'s' if len(self.found) > 1 else ''}"
        lines = "\n".join(f"  {problem}" for problem in self.found)
        raise DataError(f"The data cannot be used: {count}. Nothing was started.\n{lines}")


class Row(NamedTuple):
    """One row of a data file and the line (Parquet: the row number) where it begins."""

    line: int
    value: Any


@dataclass(frozen=True, slots=True)
class Question:
    """One question row, whatever shape it had. `path` and `line` say where it came from."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...] = ()
    kind: str = "question"
    path: str = ""
    line: int = 0


class _BadRow(Exception):
    """Why one row cannot be used; becomes a `Problem`."""


def read_questions(paths: Sequence[Path], problems: Problems) -> list[Question]:
    """Read the questions of all files, in order; ids must be unique over all of them.

    A row without an id is named after its file and line.
    """
    questions: list[Question] = []
    places: dict[str, str] = {}
    stems = Counter(_stem(path) for path in paths)
    for path in paths:
        is_empty = True
        name = _stem(path)
        if stems[name] > 1:
            name = f"{path.resolve().parent.name}/{name}"
        for row in read_rows(path, problems):
            is_empty = False
            try:
                question = _parse_question(row, path, name)
                _ensure_new(question.id, places, path, row.line)
            except _BadRow as reason:
                problems.add(path, row.line, str(reason))
            else:
                questions.append(question)
        if is_empty and not any(found.path == str(path) for found in problems.found):
            problems.add(path, 0, f"holds no question; expected rows {QUESTION_SHAPES}")
    return questions


def read_corpus_rows(path: Path, problems: Problems) -> list[Passage]:
    """Read the passages of one corpus file; ids must be present and unique."""
    passages: list[Passage] = []
    places: dict[str, str] = {}
    num_before = len(problems.found)
    for row in read_rows(path, problems):
        try:
            passage = _parse_passage(row.value)
            _ensure_new(passage.id, places, path, row.line)
        except _BadRow as reason:
            problems.add(path, row.line, str(reason))
        else:
            passages.append(passage)
    if not passages and len(problems.found) == num_before:
        problems.add(path, 0, f"holds no passage; expected rows {CORPUS_SHAPES}")
    return passages


def read_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """Yield the rows of a JSON, JSONL or Parquet file that can be parsed; note the others.

    gzip is recognised by its content as well as its name. Lines count from 1.

    Raises:
        ConfigError: a Parquet file, and pyarrow is not installed.
    """
    if path.suffix == ".parquet":
        yield from _read_parquet(path, problems)
        return
    data = read_bytes(path, problems)
    if data is None:
        return
    if data.lstrip()[:1] == b"[":
        yield from _read_array(path, data, problems)
        return
    if (single := _read_single_object(data)) is not None:
        yield single
        return
    for line, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            yield Row(line, json.loads(raw.decode("utf-8")))
        except UnicodeDecodeError as error:
            problems.add(path, line, f"not UTF-8 text (byte {error.start + 1} of the line)")
        except JSONDecodeError as error:
            problems.add(path, line, f"not JSON: {error.msg} at column {error.colno}")
        except RecursionError:
            problems.add(path, line, "not usable JSON: nested too deeply")


def read_bytes(path: Path, problems: Problems) -> bytes | None:
    """The content of a file, unpacked if it is gzip, without a byte order mark; None if bad."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz" or data[:2] == _GZIP_MAGIC:
            data = gzip.decompress(data)
    except FileNotFoundError:
        problems.add(path, 0, f"no such file; expected a file of rows ({FILE_KINDS})")
    except IsADirectoryError:
        problems.add(path, 0, f"is a folder; expected a file of rows ({FILE_KINDS})")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        problems.add(path, 0, f"unreadable gzip ({error}); unpack it to see, or fetch it again")
    except OSError as error:
        problems.add(path, 0, f"cannot be read: {error.strerror or error}")
    else:
        return data.removeprefix(b"\xef\xbb\xbf")
    return None


def _read_single_object(data: bytes) -> Row | None:
    """A file that is one object over several lines: one row, not a fault on each line."""
    first, _, rest = data.strip().partition(b"\n")
    if not rest or first.rstrip().endswith(b"}"):
        return None
    try:
        return Row(data[: data.index(first)].count(b"\n") + 1, json.loads(data))
    except (ValueError, RecursionError):
        return None


def _read_array(path: Path, data: bytes, problems: Problems) -> Iterator[Row]:
    """The elements of a JSON array, each with the line where it begins."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add(path, line, "not UTF-8 text")
        return
    decoder = json.JSONDecoder()
    line, counted_to = 1, 0
    at = _skip_space(text, text.index("[") + 1)
    try:
        while text[at : at + 1] != "]":
            line, counted_to = line + text.count("\n", counted_to, at), at
            value, at = decoder.raw_decode(text, at)
            yield Row(line, value)
            at = _skip_space(text, at)
            if text[at : at + 1] == ",":
                at = _skip_space(text, at + 1)
            elif text[at : at + 1] != "]":
                raise JSONDecodeError("expected ',' or ']'", text, at)
        if text[at + 1 :].strip():
            raise JSONDecodeError("text after the closing ']'", text, at + 1)
    except JSONDecodeError as error:
        # Past a fault in an array there is no telling where the next row begins.
        reason = f"not JSON: {error.msg} at column {error.colno}; the rest was not read"
        problems.add(path, error.lineno, reason)
    except RecursionError:
        problems.add(path, line, "not usable JSON: nested too deeply; the rest was not read")


def _skip_space(text: str, at: int) -> int:
    match = _JSON_SPACE.match(text, at)
    return match.end() if match else at


def _read_parquet(path: Path, problems: Problems) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ConfigError(
            f"{path}: reading Parquet needs pyarrow, which is not installed. "
            "Run: pip install pyarrow"
        ) from None
    if not path.is_file():
        problems.add(path, 0, f"no such file; expected a file of rows ({FILE_KINDS})")
        return
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, ArrowException) as error:
        problems.add(path, 0, f"unreadable Parquet: {error}")
        return
    for number, value in enumerate(rows, 1):
        yield Row(number, value)


def _ensure_new(identity: str, places: dict[str, str], path: Path, line: int) -> None:
    if identity in places:
        raise _BadRow(f"duplicate id {identity!r}, first used at {places[identity]}")
    places[identity] = f"{path}:{line}"


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def _parse_question(row: Row, path: Path, file_name: str) -> Question:
    value = _ensure_object(row.value, QUESTION_SHAPES)
    identity = _read_id(value)
    return Question(
        id=identity if identity is not None else f"{file_name}-{row.line}",
        question=_read_question_text(value),
        answers=_read_answers(value),
        gold_ids=_read_gold_ids(value.get("supporting_ids")),
        kind=str(value.get("type") or "question"),
        path=str(path),
        line=row.line,
    )


def _ensure_object(value: Any, shapes: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise _BadRow(f"expected an object such as {shapes}, got {_show(value)}")


def _read_id(value: Mapping[str, Any]) -> str | None:
    for key in ("id", "_id"):
        identity = value.get(key)
        if identity is None:
            continue
        if isinstance(identity, bool) or not isinstance(identity, str | int):
            raise _BadRow(f"'{key}' must be text or a whole number, got {_show(identity)}")
        if not str(identity).strip():
            raise _BadRow(f"'{key}' is empty")
        return _ensure_encodable(key, str(identity))
    return None


def _read_question_text(value: Mapping[str, Any]) -> str:
    extra = value.get("extra_info")
    for key, holder in (("question", value), ("extra_info.question", extra), ("prompt", value)):
        name = key.rpartition(".")[2]
        if not isinstance(holder, Mapping) or holder.get(name) is None:
            continue
        text = _last_user_message(holder[name]) if key == "prompt" else holder[name]
        if not isinstance(text, str):
            raise _BadRow(f"'{key}' must be text, got {_show(text)}")
        if not text.strip():
            raise _BadRow(f"'{key}' is empty")
        return _ensure_encodable(key, text.strip())
    raise _BadRow(f"has no 'question'; expected {QUESTION_SHAPES}")


def _last_user_message(prompt: Any) -> Any:
    """The question inside a chat prompt: of Search-R1's, what follows its last `Question:`."""
    if isinstance(prompt, list):
        contents = [
            message.get("content")
            for message in prompt
            if isinstance(message, Mapping) and message.get("role", "user") == "user"
        ]
        if not contents:
            raise _BadRow(f"'prompt' holds no user message: {_show(prompt)}")
        prompt = contents[-1]
    return prompt.rpartition("Question:")[2] if isinstance(prompt, str) else prompt


def _read_answers(value: Mapping[str, Any]) -> tuple[str, ...]:
    for key in _ANSWER_KEYS:
        if value.get(key) is not None:
            return _flatten_answers(key, value[key])
    reward_model = value.get("reward_model")
    if isinstance(reward_model, Mapping) and reward_model.get("ground_truth") is not None:
        return _flatten_answers("reward_model.ground_truth", reward_model["ground_truth"])
    keys = ", ".join(f"'{key}'" for key in (*_ANSWER_KEYS, "reward_model.ground_truth"))
    raise _BadRow(f"has no answer; expected one of {keys}")


def _flatten_answers(key: str, answers: Any) -> tuple[str, ...]:
    """Accepted: text, a number, a list of these, or `{"target": …}` around any of them."""
    if isinstance(answers, Mapping):
        if "target" not in answers:
            raise _BadRow(f"'{key}' is an object without 'target': {_show(answers)}")
        key, answers = f"{key}.target", answers["target"]
    items = answers if isinstance(answers, list | tuple) else [answers]
    if not items:
        raise _BadRow(f"'{key}' is an empty list; a question needs at least one answer")
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise _BadRow(f"'{key}' must be text or a list of texts, got {_show(item)}")
        if not str(item).strip():
            raise _BadRow(f"'{key}' holds an empty answer")
    return tuple(dict.fromkeys(_ensure_encodable(key, str(item).strip()) for item in items))


def _read_gold_ids(ids: Any) -> tuple[str, ...]:
    if ids is None:
        return ()
    is_list = isinstance(ids, list | tuple)
    if not is_list or any(isinstance(i, bool) or not isinstance(i, str | int) for i in ids):
        raise _BadRow(f"'supporting_ids' must be a list of passage ids, got {_show(ids)}")
    return tuple(dict.fromkeys(str(i) for i in ids))


def _parse_passage(row: Any) -> Passage:
    value = _ensure_object(row, CORPUS_SHAPES)
    identity = _read_id(value)
    if identity is None:
        raise _BadRow(f"has no 'id'; expected {CORPUS_SHAPES}")
    if value.get("text") is None and value.get("contents") is not None:
        title, text = _split_contents(_ensure_text(value, "contents"))
    else:
        title, text = _ensure_text(value, "title"), _ensure_text(value, "text")
        if value.get("text") is None and not title:
            raise _BadRow(f"has neither 'text' nor 'contents'; expected {CORPUS_SHAPES}")
    if not text and not title:
        raise _BadRow("the passage is empty: no title and no text")
    return Passage(id=identity, text=text, title=title)


def _ensure_text(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _BadRow(f"'{key}' must be text, got {_show(text)}")
    return _ensure_encodable(key, text.strip())


def _ensure_encodable(key: str, text: str) -> str:
    """JSON can escape half of a surrogate pair, which no file or tokenizer can take later on."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise _BadRow(f"'{key}' holds half of a surrogate pair, {half}: no Unicode text") from None
    return text


def _split_contents(contents: str) -> tuple[str, str]:
    """`"Title"\\ntext` apart; a first line without the literal quotes is no title."""
    match = _QUOTED_TITLE.match(contents)
    if match is None:
        return "", contents.strip()
    return match["title"].strip(), contents[match.end() :].strip()


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
