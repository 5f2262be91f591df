"""YAML as it is used in configurations: plain values, no dates, every key once, nothing huge.

Owns the dialect, its limits, the lines of keys and the one kind of error it raises. `tree.py`, the
only caller, knows what the values mean and how layers of them are merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

MAX_CHARS = 1_000_000
"""Longest text that is read. A configuration of a thousand tasks is shorter."""
MAX_DEPTH = 40
"""Deepest nesting. Settings are a few levels deep; what walks through them is recursive."""
MAX_VALUES = 100_000
"""Most values, counted as often as aliases repeat them: a few lines can mean billions."""
_MAX_DIGITS = 400
"""Longest whole number: the largest float has 309 digits."""


_UNUSABLE = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
"""Not those by which Python stands for a file name's bytes that are no UTF-8."""


class Parsed(NamedTuple):
    """What a text holds, and the line of each key: `("optim", "lr")` -> 12, from 1."""

    value: Any
    lines: Mapping[tuple[str, ...], int]


class _Loader(yaml.SafeLoader):
    """Plain YAML without dates: no setting is a date, and a folder may have a date as its name."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse a key that is there twice: YAML would silently drop the first of two sections."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _fault(key, f"the key {_cut(key.value)} is there twice; keep one of them")
                seen.add(key.value)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Make a value; what PyYAML raises for a tag that does not fit becomes a fault."""
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:  # PyYAML raises many kinds
            kind = str(node.tag).rpartition(":")[2]
            raise _fault(node, f"{_cut(node.value)} cannot be read as '{kind}'") from error

    def construct_scalar(self, node: Any) -> Any:
        """A text, unless it holds what no file's name and no prompt can: a NUL, half a pair."""
        value = super().construct_scalar(node)
        if isinstance(value, str) and (found := _UNUSABLE.search(value)):
            what = "a NUL character" if found.group() == "\0" else "half of a surrogate pair"
            raise _fault(node, f"the text {_cut(value)} holds {what}; leave it out")
        return value

    def construct_yaml_int(self, node: Any) -> int:
        """A whole number, unless it has hundreds of digits."""
        if len(node.value) > _MAX_DIGITS:
            raise _fault(node, f"a number of {len(node.value):,} digits; no setting is so large")
        return super().construct_yaml_int(node)

    def construct_undefined(self, node: Any) -> Any:
        """A tag that is of no use here, such as `!!binary` and `!!python/object`."""
        tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
        raise _fault(node, f"the tag {_cut(tag)} means nothing here; write the plain value")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
for _tag in ("tag:yaml.org,2002:binary", None):  # bytes are no setting
    _Loader.add_constructor(_tag, _Loader.construct_undefined)


def read_yaml(text: str) -> Parsed:
    """Parse a YAML text.

    Raises ValueError, with line and column where there is one, for text that cannot be read (also
    for too large numbers, too deep nesting and too many values) and for a key that a mapping has
    twice.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(
            f"it has more than {MAX_CHARS:,} characters; a configuration is far shorter"
        )
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Parsed(None, {})
            _ensure_small(node)
            return Parsed(loader.construct_document(node), dict(_lines(node, ())))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise ValueError(_describe(error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ValueError(
            f"line {line}: the character U+{int(error.character):04X} may not stand in YAML"
        ) from error
    except RecursionError as error:
        raise ValueError(_too_deep()) from error


def _ensure_small(root: yaml.Node) -> None:
    """Refuse what is too deep or, with its aliases written out, too large; aliases may be loops."""
    sizes: dict[int, int] = {}

    def measure(node: yaml.Node, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise _fault(node, _too_deep())
        if (known := sizes.get(id(node))) is not None:
            return known
        size = 1 + sum(measure(child, depth + 1) for child in _children(node))
        if size > MAX_VALUES:
            raise _fault(node, f"its aliases (*name) repeat more than {MAX_VALUES:,} values")
        sizes[id(node)] = size
        return size

    measure(root, 0)


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair


def _lines(node: yaml.Node, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """The line of each key, those of list entries by their number; the first few levels."""
    pairs: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.SequenceNode):
        pairs = [(str(number), item, item) for number, item in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        named = (pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode))
        pairs = [(key.value, key, value) for key, value in named]
    for name, key, value in pairs:
        yield (*above, name), key.start_mark.line + 1
        if len(above) < 4:  # `sft.stages.0.mix.expert`; a fault deeper inside has the line of that
            yield from _lines(value, (*above, name))


def _fault(node: yaml.Node, text: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)


def _too_deep() -> str:
    return f"nested more than {MAX_DEPTH} levels deep"


def _describe(error: yaml.MarkedYAMLError) -> str:
    """`line 3, column 5: what is wrong`, with the line itself and a caret below it."""
    mark = error.problem_mark or error.context_mark
    what = ", ".join(str(part) for part in (error.context, error.problem) if part)
    if mark is None:
        return what
    snippet = mark.get_snippet(indent=2) if mark.buffer is not None else None
    shown = f"\n{snippet}" if snippet else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {what}{shown}"


def _cut(value: object) -> str:
    text = repr(value) if isinstance(value, str) else "a list or mapping"
    return text if len(text) <= 60 else text[:59] + "…"
