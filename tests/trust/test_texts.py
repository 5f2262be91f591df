"""Foreign text on a terminal: it is shown, and commands nothing."""

from __future__ import annotations

import io
import json
import sys
import warnings

import pytest
from fixtures.hostile_runs import CLIPBOARD, WORDS
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from searchrl.screen.lines import clean_streams, say, style
from searchrl.screen.terminal import make_console
from searchrl.trust.texts import clean, clean_json

COMMANDING = [
    "\x1b", "\x07", "\x9b", "\x9d", "\x7f", "\b", "\r", "\u061c", "\u200b", "\u200e", "\u2028",
    "\u202e", "\u2066", "\ufeff", "\ud800", "\U000e0041",
]  # fmt: skip


@given(st.text())
def test_nothing_that_commands_survives_and_json_means_what_it_meant(text: str) -> None:
    for sign in COMMANDING:
        assert clean(f"a{sign}b") == f"a{ascii(sign)[1:-1]}b"
    kept = [one for one in clean(text) if not one.isprintable() and one not in "\n\t"]
    assert all(one in " \u00a0\u00ad" or ord(one) > 0xFF for one in kept)
    data = clean_json(json.dumps({"text": text}, ensure_ascii=False))
    assert not any(sign in clean(text) + data for sign in COMMANDING)
    assert json.loads(data) == {"text": text}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_clean_and_keep_our_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    say(style(f"name {WORDS}", fg="red"), WORDS)
    printed = terminal.getvalue()
    assert printed.startswith("\x1b[31mname \\x1b]52;c;")
    assert printed.count("\x1b") == 2 and "\u202e" not in printed and "\x07" not in printed


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_console_shows_markup_and_commands_as_text(stream: io.StringIO) -> None:
    table = Table(WORDS, title=WORDS)
    table.add_row(WORDS)
    make_console(stream).print(WORDS, table, style="dim")
    printed = stream.getvalue()
    assert not any(word in printed for word in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\x07"))
    assert "[bold red]x[/bold red]" in printed and "\\x1b]52" in printed


def test_libraries_warnings_and_tracebacks_are_clean_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    clean_streams()
    clean_streams()
    print(CLIPBOARD, "\x1b[31mred\x1b[0m", "50 %\r60 %")
    print(warnings.formatwarning(CLIPBOARD, UserWarning, "x.py", 1), file=sys.stderr)
    sys.excepthook(ValueError, ValueError(WORDS), None)
    printed = terminal.getvalue()
    assert "\x1b]" not in printed and "\x07" not in printed and "\u202e" not in printed
    assert "\x1b[31mred\x1b[0m" in printed and "50 %\r60 %" in printed
