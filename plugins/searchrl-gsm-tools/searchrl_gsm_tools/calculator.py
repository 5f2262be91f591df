"""The tool: exact arithmetic on short expressions of numbers and signs. Nothing is executed."""

import ast
import operator
import re
from fractions import Fraction

_PARAMETERS = {"expression": {"type": "string", "description": "Such as (12 + 3) * 4."}}
CALCULATOR = {
    "name": "calculator",
    "description": "Evaluate an arithmetic expression with + - * / % and parentheses.",
    "parameters": {"type": "object", "properties": _PARAMETERS, "required": list(_PARAMETERS)},
}
MAX_CHARS = 100
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
SIGNS |= {ast.Div: operator.truediv, ast.Mod: operator.mod, ast.USub: operator.neg}


def calculate(expression: str) -> str:
    """The value of `expression`, a whole number or up to six decimals; else `Error: …`."""
    # Without letters there are no names, no calls and no exponents.
    if len(expression) > MAX_CHARS or not re.fullmatch(r"[0-9.\s()+*/%-]+", expression, re.ASCII):
        return f"Error: write numbers, + - * / % ( ) only, {MAX_CHARS} characters at most."
    try:
        value = _evaluate(ast.parse(expression.strip(), mode="eval").body)
    except ZeroDivisionError:
        return "Error: division by zero."
    except (SyntaxError, ValueError):
        return "Error: this is no arithmetic expression."
    return str(value) if value.denominator == 1 else f"{float(value):.6f}".rstrip("0").rstrip(".")


def _evaluate(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))  # 0.1 is a tenth
        case ast.UnaryOp(op=op, operand=operand) if type(op) in SIGNS:
            return SIGNS[type(op)](_evaluate(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS:
            return Fraction(SIGNS[type(op)](_evaluate(left), _evaluate(right)))
    raise ValueError(type(node).__name__)
