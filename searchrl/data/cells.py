"""Cells of a row as values with a type, whatever wrote the row: pandas, Arrow, numpy, a table.

A value is read as what it was, or refused with `BadRow`. Which keys a row has is decided by others.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from searchrl.data.problems import BadRow, ensure_encodable
from searchrl.errors import show_value

_LITERAL = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# numpy writes no commas: ['Ida Veen' 'Veen'] would be one text in Python.
_GAP = re.compile(rf"({_LITERAL}|[\]}})]|[\w.]+)(\s+(?=['\"\[{{(\w]|-\d))?", re.DOTALL)
_EXACT = 2**53
"""Whole numbers from which a float is no longer exact."""


def parse_json(text: str) -> Any:
    """The value of a JSON text; `BadRow` says why there is none."""
    try:
        # pandas and Python write NaN for a value that is missing; JSON has no such number.
        return json.loads(text, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        raise BadRow(f"not JSON: {str(error).replace('line 1 ', '')}") from None
    except (ValueError, RecursionError):
        raise BadRow("not JSON: nested too deeply, or a number of thousands of digits") from None


class _PlainRepr(ast.NodeTransformer):
    """`array([…], dtype=object)`, `np.str_('x')` and `nan` as what they hold."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_numpy = re.match(r"array$|np\.|numpy\.", ast.unparse(node.func))
        return self.visit(node.args[0]) if is_numpy and node.args else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(None) if node.id == "nan" else node


def _parse_repr(text: str) -> Any:
    spaced = _GAP.sub(lambda match: match[1] + ", " * bool(match[2]), text)
    return ast.literal_eval(_PlainRepr().visit(ast.parse(spaced, mode="eval")))


def unpack(value: Any) -> Any:
    """The list or object that a text holds as JSON, or as Python or numpy show it; else `value`.

    Raises `BadRow` for what Python shows of other things: sets, bytes, a list that numpy cut.
    """
    if not isinstance(value, str) or not re.match(r"[\[{(]|b['\"]", text := value.strip()):
        return value
    for read in (parse_json, _parse_repr):
        try:
            holder = read(text)
        except (BadRow, ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(holder, list | dict):
            return holder
        if isinstance(holder, tuple) and not is_numbers(holder):  # (1, 2) may be an answer
            return list(holder)
    if re.fullmatch(r"""[\[{]\s*['"].*['"]\s*[\]}]|b(['"]).*\1""", text, re.DOTALL):
        raise BadRow(f"{show_value(text)} is no value that can be read; write text, or JSON")
    return value


def is_numbers(value: Any) -> bool:
    """True for a list of several numbers, which as a text may be one answer: [0, 1]."""
    is_several = isinstance(value, list | tuple) and len(value) > 1
    return is_several and all(isinstance(one, int | float) for one in value)


def without_nan(value: Any) -> Any:
    """A value of Arrow with None for NaN, which pandas writes for what is missing."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def refuse(key: str, expected: str, value: Any) -> BadRow:
    """The error about a value that is not what was expected."""
    is_plain = isinstance(value, str | int | float | list | dict | None)
    kind = "" if is_plain else f" ({type(value).__name__}); write it as text"
    return BadRow(f"'{key}' must be {expected}, got {show_value(value)}{kind}")


def read_text(key: str, value: Any, expected: str = "text or a number") -> str:
    """A text, or a number as text. A whole number that became a float is one again: 1874.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    is_float = isinstance(value, float) and (not math.isfinite(value) or value.is_integer())
    if is_float or isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise refuse(key, expected, value)
    return ensure_encodable(key, f"{value:f}" if isinstance(value, Decimal) else str(value))


def read_id(row: Mapping[str, Any]) -> str | None:
    """The id of a row, `id` or `_id`; None if it has none. Raises `BadRow` for a wrong one."""
    key = "_id" if row.get("id") is None else "id"
    value = row.get(key)
    if value is None:
        return None
    identity = read_text(key, value, "text or a whole number")
    if not identity.strip():
        raise BadRow(f"'{key}' is empty")
    return identity


def read_texts(row: Mapping[str, Any], key: str, expected: str, mark: str = "") -> tuple[str, ...]:
    """The texts of a key: a list of them, one, or several with `mark` between them; () for none."""
    value = unpack(row.get(key))
    if isinstance(value, str):
        parts = value.split(mark) if mark else [value]
        value = [part.strip() for part in parts if part.strip()]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list | tuple | None):
        raise refuse(key, expected, value)
    texts = [read_text(key, one, expected) for one in value or ()]
    if not all(text.strip() for text in texts):
        raise refuse(key, expected, value)
    return tuple(texts)


def read_object(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object of a key; {} for anything else."""
    value = unpack(row.get(key))
    return value if isinstance(value, Mapping) else {}
