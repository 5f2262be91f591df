"""Python in a text: found, parsed and described. Nothing is compiled or run."""

from __future__ import annotations

import ast
import re
import warnings
from threading import Lock

MAX_CHARS = 20_000
"""Characters of the longest program that is parsed."""
_FENCE = re.compile(r"```[ \t]*([\w+#-]*)[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_LOCK = Lock()


def find_code(text: str) -> str:
    """The first fenced block that may be Python; a text without fences itself; else nothing."""
    blocks = _FENCE.findall(text) or [("", text)]
    names = ("", "python", "py", "python3")
    return next((code for name, code in blocks if name.lower() in names), "")


def parse_code(code: str) -> ast.Module | None:
    """The syntax tree; None for what is not Python, too long, nested too deeply, or a lone value.

    A word or a number is Python, too, but no program.
    """
    if len(code) > MAX_CHARS:
        return None
    try:
        # A strange escape warns, and where warnings are errors, it would be bad syntax.
        with _LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    does = (not isinstance(one, ast.Expr) or isinstance(one.value, ast.Call) for one in tree.body)
    return tree if any(does) else None


def describe_style(tree: ast.Module) -> tuple[float, float]:
    """The shares of functions with a docstring, and of parameters and results with a type hint.

    Both are 0 without functions.
    """
    functions = [
        one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    hints: list[ast.expr | None] = []
    for one in functions:
        given = one.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        hints += [arg.annotation for arg in named if arg and arg.arg not in ("self", "cls")]
        hints.append(one.returns)
    documented = sum(ast.get_docstring(one) is not None for one in functions)
    hinted = sum(hint is not None for hint in hints)
    return documented / max(1, len(functions)), hinted / max(1, len(hints))
