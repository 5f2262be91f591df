"""The documentation is true: every block runs, and every hook, flag, key and name is in it.

Blocks that train take SEARCHRL_EXAMPLE_STEPS steps (1 by default) on a few tasks; the tier `slow`
runs the front pages as printed.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from docs_runner import DOCS, LANGUAGES, PAGES, REPO, BlockFailed, name_of, read_blocks, run_blocks

import searchrl
from searchrl import testing
from searchrl.cli import main
from searchrl.cli.options import Option
from searchrl.config import RunConfig, build_config
from searchrl.config.keys import config_keys
from searchrl.core.loss import LossStats
from searchrl.engine.metrics.breakdown import GROUPED
from searchrl.hookspecs import HOOKS, Register, RegisterEnv, RegisterReward, RegisterTool
from searchrl.plugins import Entry, load_plugins
from searchrl.plugins.signatures import find_settings
from searchrl.programs.evaluate import evaluate
from searchrl.testing.conformance import CHECKED, criteria_of

NOT_RUN: dict[str, list[str]] = {
    # `tests/runs/test_serving.py` runs the program that asks a server.
    "docs/after-training.md": [
        "needs the weights of Qwen3-4B",
        "needs vLLM and a GPU",
        "needs a server",
        "needs an account",
    ],
    "docs/cli.md": ["starts processes of its own"],
    # `tests/cli/test_cli_eval_endpoint.py` asks a server, the test beside it compares checkpoints.
    "docs/evaluate.md": ["needs a finished run", "needs a server"],
    # `plugins/searchrl-dag/tests/test_interop.py` runs these.
    "docs/plan-then-search.md": ["needs searchrl-dag"] * 5,
    # `plugins/searchrl-control/tests/test_control_page.py` runs these.
    "docs/retrieval-control.md": ["needs searchrl-control"] * 4,
    # `plugins/searchrl-retrieval/tests/test_retrieval_page.py` runs these.
    "docs/retrieval.md": ["needs searchrl-retrieval"] * 2,
    # `test_qwen3_4b` runs these with the tiny model.
    "docs/qwen3_4b.md": ["needs the weights of Qwen3-4B"] * 5,
}
"""Page -> reasons of the blocks that opt out with `<!-- not run: REASON -->`."""

SMALL = {
    "max_steps": int(os.environ.get("SEARCHRL_EXAMPLE_STEPS", "1")),
    "rollout": {"prompts_per_step": 2, "group_size": 2, "max_turn_tokens": 200},
    "eval": {"num_tasks": 1, "num_tasks_during": 1, "forced": False},
}
"""Laid over every run of the default tier: the steps of the page in miniature."""

SMALL_STAGE = {"steps": 1, "batch_size": 2}

registry = load_plugins()


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def section(text: str, heading: str) -> str:
    """The text below a heading up to the next one of its level or above; fails without it."""
    lines = text.splitlines()
    assert heading in lines, f"there is no heading '{heading}'"
    start = lines.index(heading) + 1
    is_code = False
    for number, line in enumerate(lines[start:], start):
        is_code ^= line.startswith("```")
        if not is_code and re.match(rf"#{{1,{heading.index(' ')}}} ", line):
            return "\n".join(lines[start:number])
    return "\n".join(lines[start:])


# --- blocks run ----------------------------------------------------------------------------
@pytest.fixture
def docs_folder(own_folder: Path) -> Path:
    """A current folder as that of a reader: with the examples and the recorded runs in it."""
    for name in ("examples", "docs/recorded_run", "docs/collapsed_run"):
        shutil.copytree(REPO / name, own_folder / name)
    return own_folder


def _build_small(*layers: Any) -> RunConfig:
    stages = build_config(*layers).sft.stages
    small = {"stages": [stage.model_dump() | SMALL_STAGE for stage in stages]}
    return build_config(*layers, SMALL, {"sft": small})


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan of a run gets `SMALL` as its last layer."""
    monkeypatch.setattr("searchrl.programs.setup.planning.build_config", _build_small)
    for name in ("searchrl.programs.train", "searchrl.programs.sft"):
        import_module(name)  # now, or they would keep what is patched below for ever
    # `searchrl eval RUN` plans nothing: it takes the run's own configuration.
    module = import_module("searchrl.programs.evaluate")
    evaluate_both = module.evaluate_both
    monkeypatch.setattr(
        module,
        "evaluate_both",
        lambda worlds, driver, settings, **rest: evaluate_both(
            worlds, driver, settings.model_copy(update=SMALL["eval"]), **rest
        ),
    )


@pytest.mark.usefixtures("small_runs")
@pytest.mark.thorough
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_runs(path: Path, docs_folder: Path) -> None:
    run_blocks(read_blocks(path), docs_folder)
    check_logged_metrics(docs_folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md"])
def test_the_front_pages_run_as_printed(name: str, docs_folder: Path) -> None:
    assert run_blocks(read_blocks(REPO / name), docs_folder) > 0


def test_every_block_says_its_language() -> None:
    unknown = [
        f"{name_of(path)}:{block.line}: {block.language or 'none'}"
        for path in PAGES
        for block in read_blocks(path)
        if block.language not in LANGUAGES
    ]
    assert not unknown, f"languages are {LANGUAGES}"


def test_blocks_that_do_not_run_are_listed_here_with_their_reason() -> None:
    found: dict[str, list[str]] = {}
    for path in PAGES:
        for block in read_blocks(path):
            if block.not_run:
                found.setdefault(name_of(path), []).append(block.not_run)
    assert found == NOT_RUN


def test_a_block_that_fails_is_reported_with_its_page_and_line(docs_folder: Path) -> None:
    path = docs_folder / "broken.md"
    for block, message in (
        ("```python\nx = 1\nassert x == 2\n```\n", r"broken.md:3: (?s:.*)line 4"),
        ("```bash\nsearchrl eval --env nowhere --policy scripted\n```\n", "broken.md:3: .*nowhere"),
        ("```bash\nrm -r runs\n```\n", "only searchrl commands"),
        ("```yaml\nrollout: {groupsize: 3}\n```\n", "group_size"),
        ('```json\n{"a": }\n```\n', "broken.md:3"),
    ):
        path.write_text("# Broken\n" + block, "utf-8")
        with pytest.raises(BlockFailed, match=message):
            run_blocks(read_blocks(path), docs_folder)


# --- the code is in the docs ---------------------------------------------------------------
@pytest.mark.parametrize(("kind", "hook"), HOOKS.items())
def test_every_hook_has_its_heading_its_signature_and_a_snippet(kind: str, hook: str) -> None:
    text = section(page("hooks.md"), f"## `{hook}`")
    assert f"def {hook}(register):" in text
    special = {"env": RegisterEnv, "reward": RegisterReward, "retriever": RegisterTool}
    call = special.get(kind, Register).__call__
    parameters = list(inspect.signature(call).parameters.values())[1:]
    (signature,) = re.findall(r"^register\((.*)\)$", text, re.MULTILINE)
    named = re.sub(r"=[^,]*", "", signature).replace("command,", "factory,").split(", ")
    assert [name for name in named if name != "*"] == [p.name for p in parameters]
    words = re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()
    assert len(words) > 25, "say what it is for"


def test_no_page_documents_a_hook_that_is_not_there() -> None:
    named = set(re.findall(r"`(register_\w+)`", "".join(p.read_text("utf-8") for p in PAGES)))
    assert named <= set(HOOKS.values())


def test_every_criterion_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \| (.+) \| (.+) \|$", page("test-a-plugin.md"), re.MULTILINE)
    held = {(o.number, o.title, o.why) for kind in CHECKED for o in criteria_of(kind)}
    assert sorted(rows) == sorted(held)


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_for_authors_has_a_docstring_and_a_place_in_the_kits_own(name: str) -> None:
    assert f"`{name}" in (testing.__doc__ or "")
    value = getattr(testing, name)
    assert isinstance(value, tuple | list) or (inspect.getdoc(value) or "").strip()


def commands() -> dict[str, click.Command]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def flags_of(text: str) -> set[str]:
    """Flags in the first cells of a section's tables."""
    cells = re.findall(r"^\| (`--[^|]*) \|", text, re.MULTILINE)
    return {flag for cell in cells for flag in re.findall(r"`(--[a-z-]+)`", cell)}


@pytest.mark.parametrize("name", sorted(registry.names("command")))
def test_every_flag_is_documented_and_no_other(name: str) -> None:
    text = page("cli.md")
    shared = flags_of(section(text, "## Flags of all programs"))
    own = section(text, f"## `searchrl {name}`")
    options = [p for p in commands()[name].params if isinstance(p, click.Option)]
    flags = {f for p in options for f in (*p.opts, *p.secondary_opts)} - {"--help", "-h"}
    if not shared <= flags:  # a command that makes no run
        assert all(f"`{flag}`" in own for flag in flags)
        return
    takes_shared = "--env" in flags
    assert flags_of(own) | (shared if takes_shared else set()) == flags


def test_every_flag_names_its_key() -> None:
    text = page("cli.md")
    options = [one for command in commands().values() for one in command.params]
    found = {(one.opts[0], one.key) for one in options if isinstance(one, Option) and one.key}
    for name, key in found:
        rows = re.findall(rf"^\| `{re.escape(name)}`[^|]*\| ([^|]*) \|", text, re.MULTILINE)
        assert rows, name
        assert f"`{key}`" in rows, name


def test_the_options_of_the_group_itself_are_documented() -> None:
    for option in main.params:
        assert f"`searchrl {option.opts[0]}" in page("cli.md")


def test_every_config_key_is_documented_as_the_code_describes_it() -> None:
    """The reason in the table is the docstring below the field; of a section, where it is told."""
    found = set(
        re.findall(r"^\| `[^`]+` \| [^|]+ \| [^|]+ \| [^|]+ \|$", page("configuration.md"), re.M)
    )
    for key in config_keys():
        assert len(key.why) > 3, f"{key.key} does not say why: write a docstring below the field"
        row = f"| `{key.key}` | {key.type} | {key.default} | "
        if key.type == "section":
            (line,) = (line for line in found if line.startswith(row))
            assert "](#" in line
        else:
            line = f"{row}{key.why} |"
            assert line in found, f"docs/configuration.md should have the row\n{line}"
        found.remove(line)
    assert not found, "rows of keys that do not exist"


def registered(kind: str, name: str) -> Entry:
    """The entry of a name; a scheme is looked up with something after its colon."""
    return registry.get(kind, f"{name}any" if name.endswith(":") else name)


@pytest.mark.parametrize(
    "kind",
    ["env", "judge", "protocol", "retriever", "tracker", "alarm", "algorithm", "generator"],
)
def test_every_builtin_is_documented_with_its_settings(kind: str) -> None:
    text = page("builtins.md")
    for name in registry.names(kind):
        own = section(text, f"### `{name}`")
        own += section(text, "## Environments").split("###")[0] if kind == "env" else ""
        parameters = find_settings(registered(kind, name).load())
        passed = {"protocol", "retriever", "passages", "run_dir", "policy", "sampling", "space"}
        settings = set(parameters) - passed
        missing = [setting for setting in settings if f"`{setting}`" not in own]
        assert not missing, f"{kind} {name}: {missing}"


def test_every_builtin_script_is_documented() -> None:
    text = page("builtins.md")
    for name in registry.names("env"):
        scripts = registered("env", name).load_scripts()
        own = section(text, f"### `{name}`")
        assert all(f"`{script}`" in own for script in scripts), name


@pytest.mark.parametrize("name", searchrl.__all__)
def test_every_public_name_has_a_docstring_and_a_place_in_the_docs(name: str) -> None:
    value = getattr(searchrl, name)
    assert isinstance(value, int) or (inspect.getdoc(value) or "").strip()
    everything = "".join(path.read_text("utf-8") for path in PAGES)
    assert re.search(rf"(`|searchrl\.|import [\w, ]*)\b{name}\b", everything)


def documented_metrics() -> set[str]:
    text = page("healthy_run.md") + section(page("builtins.md"), "### What these algorithms log")
    rows = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def _of_a_kind(name: str) -> str:
    """`em/two_hop`, `f1/hard` and `action/Stop` are documented for all names, `pass@4` as well."""
    name = re.sub(r"^((free_)?action)/.*", r"\1/NAME", name)
    plain = re.sub(r"@\d+$", "@K", re.sub(r"^(em|env|reward)/.*", r"\1/KIND", name))
    figure, slash, _ = plain.partition("/")
    return "FIGURE/KIND" if slash and figure in GROUPED and plain not in KINDS else plain


KINDS = ("em/KIND", "env/KIND", "reward/KIND")


def ensure_documented(names: set[str]) -> None:
    plain = {_of_a_kind(name) for name in names}
    missing = plain - documented_metrics() - {"env", "brevity", "frugal", "rare", "token_accuracy"}
    assert not missing, f"docs/healthy_run.md does not say what {sorted(missing)} should look like"


def test_every_metric_of_episodes_and_of_the_loss_is_documented() -> None:
    result = evaluate({"policy": "scripted", "eval": {"num_tasks": 20}})
    ensure_documented({*result.metrics, *LossStats().means()})


def check_logged_metrics(folder: Path) -> None:
    """What the runs of a page have logged is documented as well."""
    for path in folder.glob("runs/*/metrics.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            ensure_documented(set(json.loads(line)["metrics"]))


def test_the_row_of_a_rollout_is_documented_key_by_key() -> None:
    from searchrl.engine.rollout.records import rollout_record

    rollout = evaluate({"policy": "scripted", "eval": {"num_tasks": 1}}).rollouts[0]
    text = section(page("data_formats.md"), "### A rollout row")
    named = {
        name
        for cell in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    }
    assert named == set(rollout_record(rollout, "eval", None))


def test_what_a_task_of_regulations_knows_is_documented_key_by_key() -> None:
    text = section(page("data_formats.md"), "## Tasks of `regulations`")
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+)", text, re.MULTILINE)
    named = {
        (name, "hard" in means) for cell, means in rows for name in re.findall(r"`(\w+)`", cell)
    }
    always = {name for name, is_hard in named if not is_hard}
    env = searchrl.make_env("regulations").unwrapped
    assert all(set(env.make_task("test", index).meta) == always for index in range(10))
    hard = searchrl.make_env("regulations", difficulty="hard").unwrapped
    metas = [set(hard.make_task("test", index).meta) for index in range(12)]
    assert all(keys >= always for keys in metas)
    assert set().union(*metas) == {name for name, _ in named}


@pytest.mark.parametrize("name", ["Episode", "Task", "EpisodeTurn", "Action", "Passage", "Failure"])
def test_the_page_on_the_episode_has_every_field(name: str) -> None:
    from searchrl.core import episode

    text = section(page("episode.md"), f"## `{name}`")
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    named = [one for cell in cells for one in re.findall(r"`(\w+)`", cell)]
    kind = getattr(episode, name)
    properties = {key for key, value in vars(kind).items() if isinstance(value, property)}
    assert sorted(named) == sorted({*(f.name for f in dataclasses.fields(kind)), *properties})


def test_the_page_on_the_episode_has_every_outcome_and_result() -> None:
    from searchrl.core.episode import FailureKind, Score, StopReason, Unscored

    reasons = section(page("episode.md"), "## `StopReason`")
    assert re.findall(r"^\| `(\w+)` \|", reasons, re.MULTILINE) == [str(r) for r in StopReason]
    failure = section(page("episode.md"), "## `Failure`")
    assert all(f"`{kind}`" in failure for kind in FailureKind)
    results = section(page("episode.md"), "## What a component returns")
    fields = [*dataclasses.fields(Score), *dataclasses.fields(Unscored)]
    assert all(f"`{field.name}`" in results for field in fields)


def test_the_columns_of_a_loss_are_documented_each() -> None:
    from searchrl.core.columns import LossColumns

    text = section(page("hooks.md"), "## `register_algorithms`")
    named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(LossColumns))
