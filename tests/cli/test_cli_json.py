"""`--json` is alone on standard output, whatever a plugin prints."""

import json
from pathlib import Path

from command_line import succeed

MINE = Path(__file__).parents[1] / "fixtures" / "mine.py"


def test_what_a_plugin_prints_goes_to_the_other_stream() -> None:
    flags = ("--plugin", MINE, "--env", "mine", "--set", "env.colour=blue", "--json")
    evaluated = succeed("eval", *flags, "--policy", "scripted", "--num-tasks", "2")
    figures = json.loads(evaluated.stdout)
    assert figures["lively"]["n"] == 2, "what a plugin scores is a figure like those built in"
    for part in ("imported", "hook", "reset", "search", "scored"):
        assert f"mine: {part}" in evaluated.stderr
    played = succeed("play", *flags, "--index", "0", typed="a 1\n")
    assert "lively" in json.loads(played.stdout)["scores"]
    planned = succeed("train", *flags, "--model", "tiny", "--dry-run")
    assert json.loads(planned.stdout)["config"]["tasks"][0]["reward"] == "lively+0.1*em"
    listed = succeed("--plugin", MINE, "plugins", "--json")
    assert "mine" in json.loads(listed.stdout)["kinds"]["env"]
