"""Strict YAML: plain values, no dates, every key once, nothing huge; with the line of each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

MAX_CHARS = 1_000_000
"""Longest text that is read. A configuration of a thousand tasks is shorter."""
MAX_DEPTH = 40
"""Deepest nesting. Settings are a few levels deep; what walks through them is recursive."""


class Parsed(NamedTuple):
    """Value of a text, and the line of each key: `("optim", "lr")` -> 12, from 1."""

    value: Any
    lines: Mapping[tuple[str, ...], int]


class _Loader(yaml.SafeLoader):
    """Plain YAML without dates: no setting is a date, and a folder may have a date as its name."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases, by which a few lines can mean billions of values, and deep nesting."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _fault(event, "aliases (*name) are not read; write the value out")
        if self.depth >= MAX_DEPTH:
            raise _fault(event, f"nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse a key that is there twice: YAML would silently drop the first of two sections."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _fault(key, f"the key '{key.value[:60]}' is there twice; keep one of them")
            seen.add(str(key.value))
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Make a value; whatever PyYAML raises for one becomes a fault with its line."""
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, OverflowError, AttributeError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _fault(node, f"{node.value!s:.60} cannot be read as '{kind}'") from error
        if isinstance(value, str) and "\0" in value:
            raise _fault(node, "the text holds a NUL; leave it out")
        return value

    def construct_undefined(self, node: Any) -> Any:
        """A tag that is of no use here, such as `!!binary` and `!!python/object`."""
        tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
        raise _fault(node, f"the tag '{tag[:60]}' means nothing here; write the plain value")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag in ("tag:yaml.org,2002:binary", None):  # bytes are no setting
    _Loader.add_constructor(_tag, _Loader.construct_undefined)


def read_yaml(text: str) -> Parsed:
    """Parse a YAML text.

    Raises ValueError, with line and column where there is one, for text that cannot be read (also
    for too deep nesting and too many values) and for a key that a mapping has twice.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"it has more than {MAX_CHARS:,} characters; no configuration is so long")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Parsed(None, {})
        return Parsed(loader.construct_document(node), dict(_lines(node, ())))
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"{where}: {error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        shown = f"U+{int(error.character):04X}"
        raise ValueError(f"line {line}: the character {shown} may not stand in YAML") from error


def _lines(node: yaml.Node, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """The line of each key, those of list entries by their number; the first few levels."""
    if isinstance(node, yaml.SequenceNode):
        pairs = [(str(number), item, item) for number, item in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        pairs = [(str(key.value), key, value) for key, value in node.value]
    else:
        return
    for name, key, value in pairs:
        yield (*above, name), key.start_mark.line + 1
        if len(above) < 4:  # `sft.stages.0.mix.expert`; a fault deeper inside has the line of that
            yield from _lines(value, (*above, name))


def _fault(node: Any, text: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)
