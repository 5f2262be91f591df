"""Text on its way into a file: the one place where it becomes bytes.

UTF-8 has no bytes for halves of surrogate pairs. They come from data sets (`"\\ud800"` is legal
JSON), environments, models, and names of files (`os.fsdecode`). A file that cannot be written loses
a step for good, so they become U+FFFD, which every reader takes; many refuse the half.
"""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")


def make_encodable(text: str) -> str:
    """The text with U+FFFD for every half of a surrogate pair; any other text as it is."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def encode_text(text: str) -> bytes:
    """UTF-8 of any text. Never raises."""
    return make_encodable(text).encode()
