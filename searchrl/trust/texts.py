"""Foreign text on its way to a terminal: what would command the terminal is shown instead.

Owns the one list of characters that are not just shown. Models, corpora, configs, run folders, file
names and errors can hold escape sequences that move the cursor, hide text, or fill the clipboard
(OSC 52), and marks that reverse the order of reading. They are printed as Python would write them,
`\\x1b`. Callers: `cli/lines` and `cli/terminal`, through which all commands print.
"""

from __future__ import annotations

import re

_COMMANDS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, without tab and line feed; C1 is an ESC in one byte
    "\u061c\u180e\u200b\u200e\u200f"  # invisible ones, and marks of direction
    "\u2028-\u202e\u2060-\u206f"  # line separators, and the order of reading
    "\ufeff\ufff9-\ufffb\ud800-\udfff"  # no characters at all: halves of pairs
    "\U000e0000-\U000e007f"  # invisible copies of ASCII
)
_COMMAND = re.compile(f"[{_COMMANDS}]")


def clean(text: str) -> str:
    """The text with everything that commands a terminal made visible; line feeds and tabs stay."""
    return _COMMAND.sub(_show, text.replace("\r\n", "\n"))


def _show(match: re.Match[str]) -> str:
    number = ord(match.group())
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def clean_json(text: str) -> str:
    """JSON with the same characters written as JSON escapes: it means what it meant."""
    return _COMMAND.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
