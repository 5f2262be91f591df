"""Foreign text made harmless on its way to a terminal: what would command it is shown instead.

Models, corpora, run folders and errors can hold escape sequences that move the cursor or fill the
clipboard, and marks that reverse the order of reading. They are printed as Python would write them,
`\\x1b`, and secrets as `[key]`.
"""

from __future__ import annotations

import json
import re

from searchrl.trust.secrets import redact

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
    plain = redact(text).replace("\r\n", "\n")
    return _COMMAND.sub(lambda match: match.group().encode("unicode-escape").decode(), plain)


def clean_json(text: str) -> str:
    """JSON with the same characters written as JSON escapes: it means what it meant."""
    return _COMMAND.sub(lambda match: json.dumps(match.group())[1:-1], text)
