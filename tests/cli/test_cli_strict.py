"""`plugins` lists what is loaded; under `--strict` a fault or a name offered twice is an error."""

import json
from pathlib import Path

import pytest
from command_line import call, succeed

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plugins"
BROKEN = str(FIXTURES / "hook_raises.py")
GOOD, BAD_SYNTAX = str(FIXTURES / "good.py"), str(FIXTURES / "bad_syntax.py")
RIVAL = str(FIXTURES / "rival_em.py")

COMMANDS = {
    line.partition(" ")[0]: line.split()
    for line in (
        "train --model tiny --dry-run",
        "sft --model tiny --dry-run",
        "eval --policy scripted --num-tasks 1 --reward f1",
        "ask tiny Where?",
        "play --reward f1",
        "bench --model tiny",
        "plugins",
    )
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("plugin", "text"),
    [(BROKEN, "raised in register_rewards: ValueError"), (RIVAL, "reward 'em' is registered by")],
)
def test_strict_ends_every_command_that_loads_plugins(name: str, plugin: str, text: str) -> None:
    result = call(*COMMANDS[name], "--plugin", plugin, "--strict")
    assert result.exit_code == 2, result.output
    assert f"Error: {'plugin' if plugin is BROKEN else 'reward'}" in result.stderr
    assert text in result.stderr


def test_without_it_a_broken_plugin_ends_only_commands_that_would_use_it() -> None:
    succeed(*COMMANDS["plugins"], "--plugin", BROKEN)
    for name in sorted(COMMANDS.keys() - {"plugins"}):
        result = call(*COMMANDS[name], "--plugin", BROKEN)
        assert result.exit_code == 2, (name, result.output)
        assert "Error: plugin hook_raises" in result.stderr and "was asked for" in result.stderr
    succeed(*COMMANDS["eval"], "--strict")


def test_plugins_lists_kinds_owners_hashes_failures_and_conflicts() -> None:
    flags = [f for path in (GOOD, BAD_SYNTAX, RIVAL) for f in ("--plugin", path)]
    listed = json.loads(succeed("plugins", *flags, "--json").stdout)
    assert "regulations" in listed["kinds"]["env"] and "f1" in listed["kinds"]["reward"]
    owners = {record["plugin"]: record for record in listed["plugins"]}
    assert owners["good"]["file"] == GOOD and len(owners["good"]["sha256"]) == 64
    assert owners["searchrl"]["distribution"] == "searchrl"
    assert "register_envs" in owners["searchrl"]["hooks"]
    (failure,) = listed["failures"]
    assert (failure["plugin"], failure["file"]) == ("bad_syntax", BAD_SYNTAX) and failure["line"]
    shown = succeed("plugins", *flags).output
    assert f"{BAD_SYNTAX}:" in shown and "'searchrl:em' or 'rival_em:em'" in shown
