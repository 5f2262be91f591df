"""The group: plugin commands, broken plugins, unknown commands, exit codes."""

import functools
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import call, complaint, succeed

BROKEN = Path(__file__).parents[1] / "fixtures" / "plugins" / "bad_syntax.py"

COMMANDS = '''
import click, searchrl

@click.command()
@click.option("--times", default=1)
def hello(times):
    """Greet the world."""
    click.echo("hello " * times)

@click.command()
def stop():
    """Press Ctrl-C."""
    raise KeyboardInterrupt

@click.command()
def bug():
    """Have a bug."""
    raise ZeroDivisionError("a bug of ours")

def not_a_command():
    pass

@searchrl.hookimpl
def register_commands(register):
    register("hello", hello)
    register("stop", stop)
    register("bug", bug)
    register("plain", not_a_command)
    register("lost", "no_such_module_here:command")
'''


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "my_commands.py"
    path.write_text(COMMANDS)
    return str(path)


def test_plugin_command_appears_and_runs(plugin: str) -> None:
    shown = succeed("--plugin", plugin, "--help").output
    assert "hello" in shown and "Greet the world." in shown
    assert succeed("--plugin", plugin, "hello", "--times", 2).output == "hello hello \n"


def test_broken_plugin_never_breaks_the_help() -> None:
    shown = succeed("--plugin", BROKEN, "--help").output
    assert "train" in shown and "plugin bad_syntax" in shown and "SyntaxError" in shown


def test_broken_plugin_command_harms_only_itself(plugin: str) -> None:
    assert "(cannot be loaded: " in succeed("--plugin", plugin, "--help").output
    text = complaint("--plugin", plugin, "lost")
    assert "no_such_module_here" in text and "plugin my_commands" in text
    text = complaint("--plugin", plugin, "plain")
    assert "my_commands.py" in text and "expected a click.Command, got function" in text


def test_plugin_cannot_take_over_a_builtin_command(tmp_path: Path) -> None:
    path = tmp_path / "rival.py"
    path.write_text(COMMANDS.replace('register("hello", hello)', 'register("play", hello)'))
    text = complaint("--plugin", path, "play")
    assert "command 'play' is registered by" in text and "'rival:play'" in text
    assert "hello" in succeed("--plugin", path, "rival:play").output


def test_ctrl_c_exits_130(plugin: str) -> None:
    assert call("--plugin", plugin, "stop").exit_code == 130


def test_a_signal_ends_a_command_as_ctrl_c_does(tmp_path: Path) -> None:
    """SIGTERM too: it ends training in `programs/test_train_held.py`."""
    plugin = tmp_path / "signalled.py"
    plugin.write_text(
        """
import os, signal, time
import click
from searchrl import hookimpl

@click.command()
def wait():
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(20)
    finally:
        click.echo("closed")

@hookimpl
def register_commands(register):
    register("wait", wait)
"""
    )
    words = [sys.executable, "-m", "searchrl", "--plugin", str(plugin), "wait"]
    # As from a terminal: under nohup, SIGHUP is ignored, and a program keeps it so.
    heard = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
    result = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=heard)
    assert (result.returncode, result.stdout) == (129, "closed\n")
    assert result.stderr == "\nInterrupted.\n"


def test_a_bug_keeps_its_traceback(plugin: str) -> None:
    assert isinstance(call("--plugin", plugin, "bug").exception, ZeroDivisionError)
