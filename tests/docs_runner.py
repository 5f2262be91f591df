"""Runs the documentation: code blocks of a Markdown file in order, in one namespace and folder.

Owns what a block is and how each language is run. A block is python (executed; with a first line
`# name.py` also saved under that name), bash (its `searchrl` commands run in this process), yaml
(must be a configuration), toml, json and jsonl (must parse), or text. `<!-- file: NAME -->` above a
block saves it; `<!-- not run: REASON -->` above it leaves it out. Used by test_docs.py;
test_docs_text.py reads the same pages.
"""

import json
import re
import shlex
import tomllib
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from searchrl.cli import main
from searchrl.config import build_config
from searchrl.config.study import Study

REPO = Path(__file__).resolve().parent.parent
DOCS = REPO / "docs"
PAGES = [REPO / "README.md", *sorted(DOCS.rglob("*.md"))]
LANGUAGES = ("python", "bash", "yaml", "toml", "json", "jsonl", "markdown", "text")
INSTALLS = ("pip install ", "python -m venv ")

_FENCE = re.compile(r"^```(\S*)\s*$")
_COMMENT = re.compile(r"^<!-- (file|not run): (.*?) -->$")
_SAVED_AS = re.compile(r"^# (\w+\.py)\n")
_PIPED = re.compile(r"^printf '([^']*)' \| (searchrl .*)$")


def name_of(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `line` is that of its first line of content."""

    path: Path
    line: int
    language: str
    text: str
    saved_as: str = ""
    not_run: str = ""

    @property
    def commands(self) -> list[str]:
        """The command lines of a bash block, comments and installs left out."""
        lines = self.text.replace("\\\n", " ").splitlines()
        found = [line.partition("  #")[0].strip() for line in lines]
        return [c for c in found if c and not c.startswith(("#", *INSTALLS))]


def read_blocks(path: Path) -> list[Block]:
    """All fenced blocks of a Markdown file."""
    found: list[Block] = []
    lines = path.read_text("utf-8").splitlines()
    language: str | None = None
    start, marks = 0, {"file": "", "not run": ""}
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if language is None and fence:
            language, start = fence[1], number
        elif language is not None and line == "```":
            text = "\n".join(lines[start : number - 1]) + "\n"
            saved = _SAVED_AS.match(text) if language == "python" else None
            name = marks["file"] or (saved[1] if saved else "")
            found.append(Block(path, start + 1, language, text, name, marks["not run"]))
            language, marks = None, {"file": "", "not run": ""}
        elif language is None and (comment := _COMMENT.match(line)):
            marks[comment[1]] = comment[2]
    return found


class BlockFailed(Exception):
    """A block did not do what the page says; the text says where and why."""


def run_blocks(blocks: list[Block], folder: Path) -> int:
    """Run blocks in order; the current directory must be `folder`. Returns how many were run.

    Raises:
        BlockFailed: at the first block that fails.
    """
    namespace: dict[str, Any] = {"__name__": "docs"}
    num_run = 0
    for block in blocks:
        if block.saved_as:
            (folder / block.saved_as).write_text(block.text, "utf-8")
        if block.not_run:
            continue
        try:
            _run(block, namespace)
        except BlockFailed:
            raise
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            raise BlockFailed(f"{block.path.name}:{block.line}: {text}") from error
        num_run += 1
    return num_run


def _run(block: Block, namespace: dict[str, Any]) -> None:
    match block.language:
        case "python":
            # Blank lines above, so that a traceback shows the line of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(block.path), "exec")
            exec(code, namespace)
        case "bash":
            for command in block.commands:
                _run_command(command, block)
        case "yaml":
            values = yaml.safe_load(block.text)
            Study.model_validate(values) if "arms" in values else build_config(values)
        case "toml":
            tomllib.loads(block.text)
        case "json":
            json.loads(block.text)
        case "jsonl":
            for line in block.text.splitlines():
                json.loads(line)


def _run_command(command: str, block: Block) -> None:
    piped = _PIPED.match(command)
    typed = piped[1].encode().decode("unicode_escape") if piped else None
    program, *arguments = shlex.split(piped[2] if piped else command)
    where = f"{block.path.name}:{block.line}: {command}"
    if program != "searchrl":
        raise BlockFailed(f"{where}: only searchrl commands and installs can stand in the docs")
    result = CliRunner().invoke(main, arguments, input=typed)
    if result.exit_code:
        trace = "".join(traceback.format_exception(result.exception)) if result.exception else ""
        raise BlockFailed(f"{where}: exit status {result.exit_code}\n{result.output}\n{trace}")
