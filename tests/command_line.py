"""`searchrl` as a user types it, run in this process: one way for all tests of programs."""

from click.testing import CliRunner, Result

from searchrl.cli import main

MICRO_SETTINGS = (
    "model.adapter=full",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "rollout.max_turn_tokens=8",
    "rollout.max_total_tokens=1024",
    "eval.num_tasks=2",
    "eval.num_tasks_during=2",
    "eval.forced=false",
    "num_threads=1",
)
"""Settings with which a training step takes a fraction of a second."""


def call(*words: object, typed: str = "", env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], input=typed, env=env)


def succeed(*words: object, typed: str = "", env: dict[str, str] | None = None) -> Result:
    """Run a command line that must end with status 0."""
    result = call(*words, typed=typed, env=env)
    assert result.exit_code == 0, (words, result.output, result.exception)
    return result


def complaint(*words: object, code: int = 2) -> str:
    """Run a command line that must fail without a traceback; returns the text of its error."""
    result = call(*words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    # A run that failed too often (3) shows the traceback of the plugin at fault.
    assert code != 2 or "Traceback" not in result.output
    _, mark, text = f"\n{result.stderr}".partition("\nError: ")
    assert mark, result.stderr
    return text
