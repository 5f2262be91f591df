"""The text of single tokens, for reading only, from the tokenizer file of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.errors import DamagedError
from searchrl.run_folder import Run, list_checkpoints
from searchrl.run_folder.policies import verify_policy

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FILE = "tokenizer.json"

_WAY_ON = "Restore it from a copy; its tokens are shown with another tokenizer, or by their numbers"

_PARTIAL = "\ufffd"
"""The sign of a tokenizer for bytes that are no whole character."""


def open_texts(run: Run) -> TokenTexts:
    """The token texts of a run: of its policy's tokenizer, a checkpoint's, or its model's."""
    folders = [run.path / "policy"]
    folders += [checkpoint / "policy" for checkpoint in reversed(list_checkpoints(run.path))]
    name = run.config.model.name
    folders.append(find_packaged(EMBEDDED if name == "tiny" else name) or Path(name))
    faults: list[str] = []
    for folder in folders:
        if (folder / _FILE).is_file():
            try:
                verify_policy(folder, _FILE)
                return TokenTexts(folder / _FILE, faults)
            except DamagedError as error:
                faults.append(str(error))
    return TokenTexts(None, faults)


class TokenTexts:
    """Texts of ids, and the table of those that were asked for.

    Without a `path` an id is shown as its number. `faults` says which files were passed over
    because they are damaged. `DamagedError`: the file is no tokenizer.
    """

    def __init__(self, path: Path | None, faults: Sequence[str] = ()) -> None:
        self.path = path
        self.faults = faults
        self.table: dict[int, str] = {}
        self._tokenizer: Tokenizer | None = None
        self._anchor: list[int] = []
        self._anchor_text = ""
        if path is not None:
            from tokenizers import Tokenizer

            try:
                self._tokenizer = Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises no kind of its own
                fault = f"it is no tokenizer ({error})"
                raise DamagedError.of(path, fault, _WAY_ON) from error
            # Some tokenizers drop the space before the first token of a text. Behind an anchor
            # every token is in the middle.
            self._anchor = self._tokenizer.encode("a", add_special_tokens=False).ids
            self._anchor_text = self._decode([])

    def read(self, ids: Sequence[int]) -> dict[int, str]:
        """Add ids to the table. Return the texts, by position, that differ from the table's.

        Those are characters that several tokens make together: the last of them has the character,
        the others have no text.
        """
        for token in ids:
            if token not in self.table:
                self.table[token] = self._decode([token])
        if self._tokenizer is None:
            return {}
        texts: dict[int, str] = {}
        run: list[int] = []
        for place, token in enumerate(ids):
            if _PARTIAL not in self.table[token]:
                run = []
                continue
            run.append(token)
            text = self._decode(run)
            texts[place] = "" if text.endswith(_PARTIAL) and len(run) < 8 else text
            if texts[place]:
                run = []
        return texts

    def _decode(self, ids: Sequence[int]) -> str:
        if self._tokenizer is None:
            return f"<{ids[0]}>"
        text: str = self._tokenizer.decode([*self._anchor, *ids], skip_special_tokens=False)
        return text[len(self._anchor_text) :]
