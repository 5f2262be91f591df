"""Breaks the rule of histories on purpose, line by line, and says which test notices.

    python plugins/searchrl-agents/benchmarks/mutants.py

Exit status 1 if a mutant survives, 2 if a line of it is no longer in `history.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PLUGIN = Path(__file__).resolve().parents[1]
TESTS = "tests/test_history.py"

MUTANTS: dict[str, tuple[str, str]] = {
    "ignores tools": ("if segment.tools != tools:", "if False:"),
    "ignores thinking": ("[request.thinking, *request.tools]", "[*request.tools]"),
    "replies: ignores the role": ('message.role == "assistant"', "True"),
    "replies: ignores the words": ("and _words(message.content) == _words(reply.content)", ""),
    "replies: ignores the calls": ("and _calls(message.calls) == _calls(reply.calls)", ""),
    "replies: spaces count": ('" ".join(unicodedata.normalize("NFC", text).split())', "text"),
    "calls: spelling counts": (
        'json.dumps(json.loads(unicodedata.normalize("NFC", text) or "{}"), sort_keys=True)',
        "text",
    ),
    "calls: composed letters count": (
        'json.loads(unicodedata.normalize("NFC", text) or',
        "json.loads(text or",
    ),
    "others: compares nothing": (
        "if tuple(map(_plain, messages[at : at + size])) != tuple(map(_plain, said.before)):",
        "if False:",
    ),
    "others: ignores the reasoning": ("message.reasoning, tuple(_c", "tuple(_c"),
    "others: ignores the calls": (", tuple(_calls(message.calls))", ""),
    "as_sent as append": ('if self._mode == "as_sent" and reply.reasoning:', "if False:"),
    "append as as_sent": ('if self._mode == "as_sent" and reply.reasoning:', "if reply.reasoning:"),
    "drops the first new id": ("new[1:] if tuple(new[:1]) == closing else new", "new[1:]"),
    "closes a reply twice": ("new[1:] if tuple(new[:1]) == closing else new", "new"),
    "takes the whole dialogue minus the segment": (
        "self._codec.encode_shown(render_after(self._codec, request, rest))",
        "self._codec.encode_shown(render(self._codec, request))[len(segment.ids) :]",
    ),
    "goes on with the shortest match": ("max(found, key", "min(found, key"),
    "goes on with the oldest match": ("key=lambda one: one[:3]", "key=lambda one: one[:2]"),
    "branches: share one token too few": ("[: last.stop]", "[: last.stop - 1]"),
    "branches: forget their replies": ("[*shared, *new], list(said))", "[*shared, *new], [])"),
    "branches: begin from nothing": ("if count and messages[at:]:", "if False:"),
    "repeats: share the reply": ("segment.ids[: again.start]", "segment.ids[: again.stop]"),
    "no room is checked": ("if num_tokens >= self._max_tokens:", "if False:"),
    "no room is kept for a reply": ("if num_tokens >= self", "if num_tokens > self"),
    "texts become control tokens": ("(said, False)]", "(said, True)]"),
    "takes what is shown twice": ("if len(found) != 1:", "if not found:"),
}  # fmt: skip
"""Name -> what stands there, and what takes its place."""


def noticed(text: str) -> str:
    """The first test that fails with `text` as history.py; empty: none does."""
    with tempfile.TemporaryDirectory() as found:
        # With its tests, as pytest puts the folder of a conftest in front of the path.
        copy = Path(found) / "plugins" / PLUGIN.name
        shutil.copytree(
            PLUGIN, copy, ignore=shutil.ignore_patterns("pyproject.toml", "__pycache__")
        )
        (copy / "searchrl_agents" / "history.py").write_text(text, "utf-8")
        (copy / "pytest.ini").write_text("[pytest]\nmarkers = slow: minutes\n")
        path = os.pathsep.join(
            [str(copy), str(PLUGIN.parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", TESTS]
        env = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(words, cwd=copy, env=env, capture_output=True, text=True)
    if not done.returncode:
        return ""
    failed = re.search(r"^FAILED tests/(\S+)", done.stdout, re.MULTILINE)
    assert failed, done.stdout + done.stderr  # an error of ours, not of a test
    return failed[1]


def main() -> int:
    """Print the table of mutants; returns the exit status."""
    text = (PLUGIN / "searchrl_agents" / "history.py").read_text("utf-8")
    gone = [name for name, (old, _) in MUTANTS.items() if text.count(old) != 1]
    if gone:
        print(f"not once in history.py, adapt MUTANTS: {', '.join(gone)}", file=sys.stderr)
        return 2
    assert not noticed(text), "a test fails without a mutant"
    survivors = 0
    for name, change in MUTANTS.items():
        test = noticed(text.replace(*change))
        survivors += not test
        print(f"{name:<46} {test or 'SURVIVES'}", flush=True)
    print(f"{len(MUTANTS)} mutants, {survivors} survive")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
