"""The package asks for nothing of the core's engine, programs and command line, also while it runs.

`tests/test_first_party.py` reads its files for that; here all of it is imported and used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from judged_toy import write_beir

for _extra in ("fastapi", "ir_measures", "mcp", "uvicorn"):
    pytest.importorskip(_extra)

CODE = """
import builtins, importlib, json, pkgutil, sys

asked, imports, imports_by_name = [], builtins.__import__, importlib.import_module

def note(who, made, name, names=()):
    if who.split(".")[0] == "searchrl_retrieval" and name.split(".")[0] == "searchrl":
        found = [getattr(made, each, None) for each in names or ()]
        # What is taken from a package may be a module of it, or come from anywhere else.
        sources = [getattr(one, "__module__", getattr(one, "__name__", "")) for one in found]
        asked.extend((who, source) for source in {name, *map(str, sources)})

def noted_import(name, globals=None, locals=None, fromlist=(), level=0):
    made = imports(name, globals, locals, fromlist, level)
    if not level:
        note((globals or {}).get("__name__", ""), made, name, fromlist)
    return made

def noted_import_by_name(name, package=None):
    made = imports_by_name(name, package)
    note(sys._getframe(1).f_globals["__name__"], made, name)
    return made

builtins.__import__, importlib.import_module = noted_import, noted_import_by_name

import searchrl_retrieval
path = searchrl_retrieval.__path__
modules = [one.name for one in pkgutil.walk_packages(path, "searchrl_retrieval.")]
for name in modules:
    imports_by_name(name)
exec(compile(sys.argv[1], "<then>", "exec"), {"__name__": sys.argv[2]})
print(json.dumps([len(modules), asked]))
"""

USED = """
from click.testing import CliRunner
from searchrl.cli import main
for words in (
    "index build --corpus {folder}/corpus.jsonl --out {folder}/index",
    "retrieve dams --index {folder}/index",
    "retrieve-eval {folder} --retriever bm25s --retriever bm25 --k 5",
):
    done = CliRunner().invoke(main, ["--plugin", "searchrl_retrieval", *words.split()])
    assert done.exit_code == 0, done.output
"""

CLOSED = ("searchrl.engine", "searchrl.programs", "searchrl.cli")


def asked_for(then: str, name: str) -> tuple[int, list[tuple[str, str]]]:
    """How many modules there are, and who asked for what: one of them, or `then` as `name`."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, then, name],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    num_modules, asked = json.loads(done.stdout.splitlines()[-1])
    return num_modules, [(who, what) for who, what in asked]


def test_it_asks_for_no_engine_program_or_command_line(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "toy")
    num_modules, asked = asked_for(USED.format(folder=folder), "a user")
    assert num_modules > 40
    assert {who for who, _ in asked} >= {
        "searchrl_retrieval.index.build",
        "searchrl_retrieval.commands.retrieve",
    }
    assert ("searchrl_retrieval.evaluation.judging", "searchrl.statistics") in asked
    assert [(who, what) for who, what in asked if what.startswith(CLOSED)] == []


def test_every_way_to_ask_is_seen() -> None:
    then = (
        "import importlib, searchrl.engine.rollout\n"
        "from searchrl import cli, load_agent\n"
        "__import__('searchrl.programs.traces', globals())\n"
        "importlib.import_module('searchrl.engine.metrics')\n"
    )
    _, asked = asked_for(then, "searchrl_retrieval.wrong")
    assert {what for _, what in asked if what.startswith(CLOSED)} == {
        *("searchrl.engine.rollout", "searchrl.cli", "searchrl.programs.agent"),
        *("searchrl.programs.traces", "searchrl.engine.metrics"),
    }
