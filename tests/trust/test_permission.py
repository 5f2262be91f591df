"""What a run folder names: what is used, and what is refused with one sentence."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import complaint, succeed
from reseal import reseal

import searchrl
from searchrl.config import build_config
from searchrl.contracts import Address, RetrieverFactory
from searchrl.errors import PluginError
from searchrl.plugins import Registry, load_plugins
from searchrl.plugins.registry import Entry
from searchrl.programs.agent import load_agent
from searchrl.programs.train import train
from searchrl.trust.needs import find_needs
from searchrl.trust.permission import Permission
from searchrl.trust.permission import trust as remember

distributions = cache(importlib.metadata.packages_distributions)
"""All of them are asked for a second each time, and none is installed meanwhile."""

BUILT_IN = load_plugins((), entry_points=False)
TINY = Path(searchrl.__file__).parent / "assets" / "tiny"


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has trusted nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("importlib.metadata.packages_distributions", distributions)
    return tmp_path / "state" / "searchrl" / "trusted"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The file that the plugin writes when it runs."""
    return tmp_path / "trace"


@pytest.fixture
def plugin(tmp_path: Path, trace: Path) -> Path:
    path = tmp_path / "calm.py"
    path.write_text(
        f"import pathlib, searchrl\npathlib.Path({str(trace)!r}).write_text('ran')\n"
        "@searchrl.hookimpl\ndef register_retrievers(register):\n"
        "    register('calm', 'nowhere:Calm')\n"
    )
    return path


@pytest.fixture
def run(tmp_path: Path, plugin: Path) -> Path:
    """A run folder as a stranger sends it."""
    folder = tmp_path / "from stranger"
    folder.mkdir()
    config = {"env": "regulations", "policy": "scripted", "eval": {"num_tasks": 1}}
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, "plugins": [str(plugin)]}))
    (folder / "provenance.json").write_text('{"plugins": []}')
    reseal(folder)
    return folder


def test_code_runs_only_if_it_is_allowed_once_or_named(
    run: Path, plugin: Path, trace: Path
) -> None:
    text = complaint("eval", run)
    assert f"the code '{plugin}' (plugins)" in text and "--trust" in text
    assert f"searchrl trust '{run}'" in text and len(text.strip().splitlines()) == 1
    other = plugin.with_name("other.py")
    other.write_text(plugin.read_text().replace("trace", "another"))
    succeed("eval", run, "--plugin", other)
    assert (trace.parent / "another").exists() and not trace.exists(), "it stands in its place"
    succeed("eval", run, "--trust")
    assert trace.exists()
    complaint("eval", run)


def test_trust_command_allows_for_good_and_runs_nothing(
    run: Path, plugin: Path, trace: Path, own_state: Path
) -> None:
    (row,) = json.loads(succeed("trust", run, "--json").stdout)["trusted"]
    assert row["value"] == str(plugin) and not trace.exists()
    assert [path.stem for path in own_state.iterdir()] == [row["hash"]]
    succeed("eval", run)
    plugin.write_text(plugin.read_text() + "# another text\n")
    assert str(plugin) in complaint("eval", run)


def test_own_run_is_trusted_and_so_are_copies_of_it(
    plugin: Path, tmp_path: Path, own_state: Path
) -> None:
    own = tmp_path / "own"
    flags = "--env regulations --policy scripted --set eval.num_tasks=1 --plugin".split()
    succeed("eval", *flags, plugin, "--run-dir", own)
    succeed("eval", shutil.copytree(own, tmp_path / "elsewhere" / "copy"))
    shutil.rmtree(own_state)
    complaint("eval", own)
    assert not list(own.rglob("trusted*")), "trust is never kept in a run folder"


@pytest.mark.parametrize("name", ["config.yaml", "other.yaml", "configs/inner.yaml"])
def test_config_in_a_run_folder_is_a_run_folders(name: str, run: Path, plugin: Path) -> None:
    path = run / name
    path.parent.mkdir(exist_ok=True)
    (run / "config.yaml").rename(path)
    assert f"the code '{plugin}'" in complaint("eval", "--config", path)


def test_config_of_the_user_may_name_plugins_and_they_are_listed(
    run: Path, plugin: Path, trace: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    shutil.copy(run / "config.yaml", own)
    for command in (["eval"], ["plugins"], ["ask", "tiny", "When?", "--set", "policy=model"]):
        said = succeed(*command, "--config", own).stderr
        assert f"{own} names plugins, which run: {plugin}" in said
    assert trace.exists()


def test_python_api_asks_too(run: Path, trace: Path, tmp_path: Path) -> None:
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("scripted", "model"))
    shutil.copytree(TINY, run / "policy")
    reseal(run)
    new = {"init_from": str(run), "run_dir": str(tmp_path / "new"), "max_steps": 0}
    for program in (lambda: load_agent(run), lambda: train(new)):
        with pytest.raises(PluginError, match="the code"):
            program()
    assert not trace.exists()
    load_agent(run, permission=Permission(is_given=True)).close()
    assert trace.exists()


def test_file_that_changes_after_the_look_does_not_run(
    run: Path, plugin: Path, trace: Path
) -> None:
    config = build_config({"plugins": [str(plugin)]})
    remember(find_needs(config, BUILT_IN, run), run)

    def permit(installed: Registry) -> dict[str, str]:
        pinned = Permission().ensure(config, run, installed)
        plugin.write_text(plugin.read_text().replace("'ran'", "'evil'"))
        return pinned

    registry = load_plugins([str(plugin)], permit=permit)
    assert not trace.exists() and "changed while" in str(registry.failures)


DEEP = {"name": "x", "a": [{"b": {"key_env": "AWS_SECRET"}}]}
MANY = "tasks.0.retriever.many"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"env": "gym:srl_loose:X-v0"}, "tasks.0.env.name"),
        ({"env": "searchrl:gym:srl_loose.a:X-v0"}, "tasks.0.env.name"),
        ({"tasks": {"0": {"env": "gym:antigravity:X-v0"}}}, "tasks.0.env.name"),
        ({"env": {"name": "gym:FrozenLake-v1", "make": ["srl_loose:B"]}}, "tasks.0.env.make"),
        ({"plugins": ["srl_loose"]}, "plugins"),
        ({"plugins": ["nowhere.py"]}, "plugins"),
        ({"protocol": {"instruction": "@/etc/passwd"}}, "tasks.0.protocol.instruction"),
        ({"retriever": {"name": "http", "url": "evil.example/x"}}, "tasks.0.retriever.url"),
        ({"retriever": DEEP}, "tasks.0.retriever.a"),
        ({"env": DEEP}, "tasks.0.env.a"),
        ({"env": {"name": "x", "headers": {"Bearer z": 1}}}, "tasks.0.env.headers"),
        ({"wrapper": {"name": "agent", "command": "rm -r ."}}, "tasks.0.wrapper.command"),
        ({"judge": {"name": "lexical", "rubric": "/etc/passwd"}}, "tasks.0.judge.rubric"),
        ({"retriever": {"name": "bm25", "cache": "/not/there/yet"}}, "tasks.0.retriever.cache"),
        ({"env": {"name": "corpus", "questions": "hub/id:x"}}, "tasks.0.env.questions"),
        ({"env": {"name": "regulations", "handbook": "/h.json"}}, "tasks.0.env.handbook"),
        ({"log": {"trackers": ["wandb"]}}, "log.trackers.0.name"),
        ({"alarms": {"watch": {"mine": {"action": "warn", "x": "/p"}}}}, "alarms.watch.mine.x"),
        ({"algorithm": {"settings": {"file": "/p"}}}, "algorithm.settings.file"),
        ({"engine": {"generator": {"name": "slots", "host": "h"}}}, "engine.generator.host"),
        ({"scale": {"backend": {"name": "ray", "address": "h"}}}, "scale.backend.address"),
        ({"model": "stranger/model"}, "model.name"),
        ({"model": "/srv/model"}, "model.name"),
        ({"model": "srl_loose:assets/tiny"}, "model.name"),
        ({"init_from": "/srv/run"}, "init_from"),
        ({"sft": {"traces": "/etc/passwd"}}, "sft.traces"),
        ({"endpoint": {"key_env": "AWS_SECRET"}}, "endpoint.key_env"),
        ({"endpoint": {"cache": "/srv/cache"}}, "endpoint.cache"),
        ({"endpoint": {"extra": {"user": "me"}}}, "endpoint.extra"),
        ({"policy": "endpoint:http://evil.example/v1"}, "policy"),
        ({"retriever": "asking"}, "tasks.0.retriever.name"),
        ({"retriever": {"name": "outer", "inner": "asking"}}, "tasks.0.retriever.inner.name"),
        ({"retriever": {"name": "outer", "many": ["bm25", "asking"]}}, f"{MANY}.1.name"),
        ({"retriever": {"name": "outer", "many": ["bm25", {"x": "/p"}]}}, f"{MANY}.1"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_known_as_harmless_needs_permission(
    settings: dict[str, Any], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "srl_loose.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    config, installed = build_config(settings), with_asking()
    needs = find_needs(config, installed, tmp_path / "run")
    assert {need.key for need in needs} == {key}
    with pytest.raises(PluginError) as caught:
        Permission().ensure(config, "my run", installed)
    for word in (f"({key})", "--trust", "searchrl trust 'my run'"):
        assert word in str(caught.value)
    # What the user names, allows this once or has trusted may be used.
    Permission.of(settings).ensure(config, "run", installed)
    Permission(is_given=True).ensure(config, "run", installed)
    remember(needs, "run")
    Permission().ensure(config, "another run", installed)


def with_asking() -> Registry:
    """The built-in parts, a retriever that asks a server by itself, and one made of another."""

    def make_asking(passages: Any, *, url: Address = "https://a.example", k: int = 1) -> None: ...

    def make_outer(
        passages: Any,
        *,
        inner: RetrieverFactory | None = None,
        many: list[RetrieverFactory] | None = None,
    ) -> None: ...

    def like(name: str, factory: Any) -> Entry:
        return replace(BUILT_IN.get("retriever", "bm25"), name=name, factory=factory)

    own = (like("asking", make_asking), like("outer", make_outer))
    return replace(BUILT_IN, _entries=(*BUILT_IN.entries(), *own))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"env": {"name": "regulations", "difficulty": "hard", "mix": {"lookup": 1}, "noise": 0.1}},
        {"env": "gym:FrozenLake-v1", "reward": {0: "env", 5: "env-0.1*searches"}},
        {"protocol": {"name": "think-search-answer", "think": "reason", "instruction": "Search."}},
        {"retriever": {"name": "bm25", "k1": 1.2}, "model": "searchrl:assets/tiny"},
        {"plugins": ["rank_bm25"], "run_dir": "/elsewhere"},
        {"model": "my run/policy", "protocol": {"instruction": "@my run/prompt.txt"}},
    ],
    ids=str,
)
def test_what_is_harmless_needs_none(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my run/policy").mkdir(parents=True)
    assert find_needs(build_config(settings), BUILT_IN, Path("my run")) == ()


@pytest.mark.parametrize(
    "settings", [{"model": "stranger/model"}, {"endpoint": {"cache": "~/x"}}], ids=str
)
def test_a_hub_and_the_home_are_outside_for_whoever_stands_in_the_folder(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(find_needs(build_config(settings), BUILT_IN, Path("."))) == 1


def test_a_link_in_a_run_folder_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "inner").symlink_to("/etc")
    config = build_config({"protocol": {"instruction": f"@{tmp_path}/inner/passwd"}})
    assert len(find_needs(config, BUILT_IN, tmp_path)) == 1


def test_whoever_named_one_server_has_named_no_other() -> None:
    theirs = {"retriever": {"name": "http", "url": "https://evil.example", "key_env": "MY_KEY"}}
    mine = {"retriever": {"name": "http", "url": "https://mine.example"}}
    with pytest.raises(PluginError, match=r"evil\.example.*MY_KEY"):
        Permission.of(mine).ensure(build_config(theirs), "run", BUILT_IN)
    with pytest.raises(PluginError, match="MY_KEY") as caught:  # half of it is not enough
        Permission.of({"url": "https://evil.example"}).ensure(build_config(theirs), "run", BUILT_IN)
    assert "evil" not in str(caught.value)
    with pytest.raises(PluginError, match="MY_KEY"):  # which is still that of the stranger
        Permission.of(mine).ensure(build_config(theirs, mine), "run", BUILT_IN)
    other = {"retriever": "bm25"}  # it has none of these settings
    Permission.of(other).ensure(build_config(theirs, other), "run", BUILT_IN)
