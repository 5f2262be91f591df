"""`searchrl config`: what it prints, and that it stays light."""

from __future__ import annotations

import json
import subprocess
import sys

from click.testing import CliRunner, Result

from searchrl.cli import main
from searchrl.config.keys import config_keys


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments])


def test_one_key_with_all_that_is_known_of_it() -> None:
    lines = call("optim.lr").output.splitlines()
    assert lines[0] == "optim.lr = 2e-5  number ≥ 0, --lr"
    assert lines[1].startswith("    Peak learning rate.")
    assert "  preset tiny: 1e-4" in lines
    assert "  short for it: --lr" in lines
    assert lines[-1] == "  example: --set 'optim.lr=5e-5'"


def test_the_whole_tree_has_every_key_below_its_section() -> None:
    result = call()
    heads = [line.split()[0].rstrip(":") for line in result.output.splitlines() if line[:1] != " "]
    assert [head for head in heads if head != "The"] == [key.key for key in config_keys()]
    assert "](" not in result.output and "`" not in result.output


def test_preset_shows_its_values_beside_the_defaults() -> None:
    assert "rollout.temperature = 0.7 (default 1.0)" in call("rollout", "--preset", "tiny").output
    assert "preset tiny" not in call("optim.lr", "--preset", "tiny").output
    result = call("--preset", "tinny")
    assert result.exit_code == 2
    assert "unknown preset 'tinny'. Did you mean 'tiny'" in result.stderr


def test_unknown_key_ends_with_near_matches() -> None:
    result = call("optim.lrr")
    assert result.exit_code == 2
    assert "unknown config key 'optim.lrr'. Did you mean 'optim.lr'" in result.stderr


def test_json_and_schema_are_machine_readable() -> None:
    (row,) = json.loads(call("env", "--json").stdout)
    assert (row["key"], row["default"], row["flags"]) == ("tasks[].env", "regulations", ["--env"])
    assert row["presets"] == {"tiny_scratch": {"name": "regulations", "shuffle": True}}
    assert len(json.loads(call("--json").stdout)) == len(config_keys())
    assert json.loads(call("--schema").stdout)["title"] == "RunConfig"


def test_it_imports_no_torch() -> None:
    code = (
        "import sys, runpy; sys.argv = ['searchrl', 'config', 'optim.lr']\n"
        "try: runpy.run_module('searchrl', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
