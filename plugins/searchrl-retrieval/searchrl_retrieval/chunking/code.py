"""Source code as passages: functions, classes, methods, imports, docstrings, and what is left.

The title of a passage has the name and the file, its text the source with its docstring, so that a
retriever embeds all three. tree-sitter reads files with errors in them, too.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from searchrl.contracts import Passage
from searchrl.data import Problems, read_text
from searchrl_retrieval.chunking.languages import (
    CLASSES,
    FUNCTIONS,
    IMPORTS,
    LANGUAGES,
    PYTHON,
    SCOPES,
    WRAPPERS,
    load_grammar,
)

MAX_CHARS = 4000
"""Longest text of a passage of code; a longer function is cut between lines."""

_LEFT_OUT = ("node_modules", "__pycache__")
"""Folders that hold no source of the project; hidden ones are left out, too."""
_DEEPEST = 60
_COMMENT_MARKS = re.compile(r"^\s*(?:/\*+!?|\*/|\*(?!/)|//[/!]?|#+)\s?|\s*\*/\s*$", re.MULTILINE)
_STRING = re.compile(r"""\A[rRuUbB]*("{3}|'{3}|"|')(.*)\1\Z""", re.DOTALL)


class ChunkKind(StrEnum):
    """A kind of chunk."""

    FUNCTION = "function"
    CLASS = "class"
    """With its docstring and attributes; of its methods only the heads."""
    METHOD = "method"
    IMPORT = "import"
    """All imports of a file."""
    DOCSTRING = "docstring"
    """The comment or string of a module, class or function about itself."""
    CODE = "code"
    """The code outside of all definitions."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a source file. `line` counts from 1; `name` is qualified, with dots."""

    kind: ChunkKind
    name: str
    file: str
    line: int
    text: str


def read_code_folder(folder: Path, problems: Problems) -> list[Passage]:
    """The passages of every source file below a folder, or of one file."""
    passages: list[Passage] = []
    num_before = len(problems.found)
    for path in [folder] if folder.is_file() else _find_files(folder):
        name = path.name if path is folder else path.relative_to(folder).as_posix()
        if path.suffix.lower() in LANGUAGES:
            text = read_text(path, problems, "a file of source code")
            passages += [] if text is None else as_passages(chunk_code(text, name))
    if not passages and len(problems.found) == num_before:
        endings = ", ".join(LANGUAGES)
        problems.add(folder, 0, f"holds no source code; expected files that end in {endings}")
    return passages


def _find_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(
            part.startswith(".") or part in _LEFT_OUT for part in path.relative_to(folder).parts
        )
    )


def as_passages(chunks: list[Chunk], max_chars: int = MAX_CHARS) -> list[Passage]:
    """The passages of the chunks of a file: `FILE::NAME` titled `NAME (KIND, FILE)`.

    A docstring is `FILE::NAME:docstring`, imports are `FILE::NAME:import`. What is long is cut
    between lines; pieces and chunks of the same name are numbered, as in `FILE::NAME#2`.
    """
    made = []
    seen: Counter[str] = Counter()
    for chunk in chunks:
        is_definition = chunk.kind in (ChunkKind.FUNCTION, ChunkKind.CLASS, ChunkKind.METHOD)
        name = f"{chunk.file}::{chunk.name}" + ("" if is_definition else f":{chunk.kind}")
        for piece in _split_lines(chunk.text, max_chars):
            seen[name] += 1
            identity = name if seen[name] == 1 else f"{name}#{seen[name]}"
            title = f"{chunk.name} ({chunk.kind}, {chunk.file})"
            made.append(Passage(id=identity, title=title, text=piece))
    return made


def chunk_code(source: str, file: str) -> list[Chunk]:
    """The chunks of a source file, in the order of its lines; `file` is its path with slashes.

    `ConfigError` if the grammar of its language is not installed.
    """
    from tree_sitter import Parser

    language = LANGUAGES[PurePosixPath(file).suffix.lower()]
    data = source.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    root = Parser(load_grammar(language)).parse(data).root_node
    chunks = _Chunker(language, file, data).read(root)
    return sorted(chunks, key=lambda chunk: chunk.line)


def _module_name(language: str, file: str) -> str:
    path = PurePosixPath(file)
    if language != PYTHON:
        return path.stem
    parts = [*path.parts[:-1], path.stem]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts)


class _Chunker:
    """One file on its way to chunks."""

    def __init__(self, language: str, file: str, data: bytes) -> None:
        self._is_python = language == PYTHON
        self._file = file
        self._data = data
        self._module = _module_name(language, file)
        self._found: list[Chunk] = []
        self._imports: list[Any] = []
        self._rest: list[Any] = []

    def read(self, root: Any) -> Iterator[Chunk]:
        self._add_doc(self._module, self._docstring(root), 1)
        self._walk(root, (), is_class=False, depth=0)
        yield from self._found
        for kind, nodes in ((ChunkKind.IMPORT, self._imports), (ChunkKind.CODE, self._rest)):
            text = "\n".join(self._text(node.start_byte, node.end_byte) for node in nodes)
            if re.search(r"\w", text):
                line = nodes[0].start_point[0] + 1
                yield Chunk(kind, self._module, self._file, line, text)

    def _walk(self, node: Any, scope: tuple[str, ...], *, is_class: bool, depth: int) -> None:
        children = node.named_children
        doc = self._docstring_node(node)
        for place, child in enumerate(children):
            inner = self._unwrap(child)
            kind = inner.type
            if kind in IMPORTS:
                self._imports.append(child)
            elif kind in FUNCTIONS and (name := self._name(inner)):
                owner = self._receiver(inner)
                path = (*scope, *owner, name)
                is_method = is_class or owner or "." in name  # of C++: outside of its class
                what = ChunkKind.METHOD if is_method else ChunkKind.FUNCTION
                self._add(what, path, children, place, inner)
            elif kind in CLASSES and (name := self._name(inner)):
                self._add(ChunkKind.CLASS, (*scope, name), children, place, inner)
                body = inner.child_by_field_name("body")
                if body is not None:
                    self._walk(body, (*scope, name), is_class=True, depth=depth + 1)
            elif kind in SCOPES:
                body = inner.child_by_field_name("body")
                if body is not None:
                    name = self._name(inner) or self._type_name(inner)
                    named = (*scope, name) if name else scope
                    is_impl = kind == "impl_item"
                    self._walk(body, named, is_class=is_impl, depth=depth + 1)
            elif depth < _DEEPEST and self._holds_definitions(child):
                self._walk(child, scope, is_class=is_class, depth=depth + 1)
            elif (
                not (is_class or _is_comment(child) or child == doc)
                # Inside `if` and the like, there are conditions as well.
                and (depth == 0 or child.type.endswith(("statement", "declaration")))
            ):
                self._rest.append(child)

    def _add(
        self, kind: ChunkKind, path: tuple[str, ...], children: list[Any], place: int, inner: Any
    ) -> None:
        child = children[place]
        comments = self._comments_before(children, place)
        if comments and self._has_gap(comments[-1], child):
            comments = []
        start = (comments[0] if comments else child).start_byte
        # Of a class, the heads of its methods.
        cuts = sorted(self._bodies(inner)) if kind is ChunkKind.CLASS else None
        text = self._text(start, child.end_byte, cuts)
        name = ".".join((self._module, *path) if self._is_python else path)
        line = child.start_point[0] + 1
        self._found.append(Chunk(kind, name, self._file, line, text))
        if self._is_python:
            self._add_doc(name, self._docstring(inner.child_by_field_name("body")), line)
        else:
            self._add_doc(name, self._comment_text(comments), line)

    def _add_doc(self, name: str, text: str, line: int) -> None:
        if text:
            self._found.append(Chunk(ChunkKind.DOCSTRING, name, self._file, line, text))

    # What nodes are.

    def _unwrap(self, node: Any) -> Any:
        """The definition inside decorators, exports and the like; the node itself if none is."""
        if node.type not in WRAPPERS:
            return node
        for child in node.named_children:
            inner = self._unwrap(child)
            if inner.type in FUNCTIONS | CLASSES and self._name(inner):
                return inner
        return node

    def _holds_definitions(self, node: Any) -> bool:
        """True if a statement that is no definition holds one, or an import."""
        wanted, stack, looked = FUNCTIONS | CLASSES, [node], 0
        while stack and looked < 2000:
            looked += 1
            one = stack.pop()
            if one.type in IMPORTS | SCOPES or (one.type in wanted and self._name(one)):
                return True
            stack += one.named_children
        return False

    def _name(self, node: Any) -> str:
        """The name of a definition; empty if it has none, or is no definition after all."""
        if node.type == "variable_declarator":
            value = node.child_by_field_name("value")
            if value is None or value.type not in ("arrow_function", "function_expression"):
                return ""
        if node.type.endswith("_specifier") and node.child_by_field_name("body") is None:
            return ""  # only a mention of a type
        holder = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        if holder is None and node.parent is not None and node.parent.type == "type_definition":
            holder = node.parent.child_by_field_name("declarator")
        while holder is not None and holder.child_by_field_name("declarator") is not None:
            holder = holder.child_by_field_name("declarator")
        return "" if holder is None else self._source(holder).replace("::", ".")

    def _receiver(self, node: Any) -> tuple[str, ...]:
        """The type that a method of Go belongs to."""
        receiver = node.child_by_field_name("receiver")
        if receiver is None:
            return ()
        name = re.search(r"([\w]+)\s*(?:\[[^\]]*\])?\s*\)?\Z", self._source(receiver))
        return (name[1],) if name else ()

    def _type_name(self, node: Any) -> str:
        """The type that an implementation of Rust is of."""
        name = node.child_by_field_name("type")
        return "" if name is None else re.sub(r"<.*", "", self._source(name), flags=re.DOTALL)

    # Docstrings and comments.

    def _docstring_node(self, body: Any) -> Any:
        """The statement of a module or a body that is its docstring; None if it has none."""
        children = () if body is None or not self._is_python else body.named_children
        first = next((child for child in children if not _is_comment(child)), None)
        if first is None or first.type != "expression_statement":
            return None
        return first if [child.type for child in first.named_children] == ["string"] else None

    def _docstring(self, body: Any) -> str:
        node = self._docstring_node(body)
        match = None if node is None else _STRING.match(self._source(node))
        if match is None:
            return ""
        first, _, rest = match[2].partition("\n")
        return f"{first.strip()}\n{textwrap.dedent(rest)}".strip()

    def _comments_before(self, children: list[Any], place: int) -> list[Any]:
        """The comments that stand directly above a node, without an empty line between them."""
        comments: list[Any] = []
        for at in range(place - 1, -1, -1):
            if not _is_comment(children[at]):
                break
            if comments and self._has_gap(children[at], comments[0]):
                break
            comments.insert(0, children[at])
        return comments

    def _has_gap(self, above: Any, below: Any) -> bool:
        return b"\n" in self._data[above.end_byte : below.start_byte].replace(b"\n", b"", 1) or (
            # A comment to the end of its line may hold the line's end itself.
            self._data[above.end_byte - 1 : above.end_byte] == b"\n"
            and b"\n" in self._data[above.end_byte : below.start_byte]
        )

    def _comment_text(self, comments: list[Any]) -> str:
        text = "\n".join(self._source(comment).rstrip("\n") for comment in comments)
        return textwrap.dedent(_COMMENT_MARKS.sub("", text)).strip()

    # Texts.

    def _source(self, node: Any) -> str:
        return self._data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _text(self, start: int, end: int, cuts: list[tuple[int, int]] | None = None) -> str:
        """The source between two bytes, moved to the left as a whole, with `...` for `cuts`."""
        kept, at = b"", start
        for begin, stop in cuts or ():
            kept += self._data[at:begin] + b"..."
            at = stop
        text = (kept + self._data[at:end]).decode("utf-8", "replace")
        indent = self._data[self._data.rfind(b"\n", 0, start) + 1 : start]
        if not indent.strip():
            text = textwrap.dedent(indent.decode() + text)
        return text.strip() if not cuts else textwrap.dedent(text).strip()

    def _bodies(self, node: Any) -> Iterator[tuple[int, int]]:
        """The begin and the end of the bodies of the definitions in a class."""
        body = node.child_by_field_name("body")
        for child in body.named_children if body is not None else ():
            inner = self._unwrap(child)
            held = inner.child_by_field_name("body")
            if inner.type in FUNCTIONS | CLASSES and held is not None:
                yield held.start_byte, held.end_byte


def _is_comment(node: Any) -> bool:
    return "comment" in node.type


def _split_lines(text: str, max_chars: int) -> Iterator[str]:
    """Pieces of at most `max_chars`, cut between lines; a longer line is cut inside."""
    if len(text) <= max_chars:
        yield text
        return
    piece = ""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), max_chars):
            part = line[start : start + max_chars]
            if piece and len(piece) + len(part) > max_chars:
                yield piece.rstrip()
                piece = ""
            piece += part
    if piece.strip():
        yield piece.rstrip()
