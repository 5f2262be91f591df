"""Code that a run folder names: what runs, and what is refused with one sentence."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import complaint, succeed

import searchrl
from searchrl.config.yaml_text import MAX_DEPTH, read_yaml
from searchrl.errors import PluginError
from searchrl.plugins import load_plugins
from searchrl.programs.agent import load_agent
from searchrl.programs.train import train
from searchrl.trust import store
from searchrl.trust.code import CodeKind, find_code, is_installed
from searchrl.trust.permission import Permission

TINY = Path(searchrl.__file__).parent / "assets" / "tiny"

PLUGIN = """\
import pathlib, searchrl
pathlib.Path({trace!r}).write_text("ran")

@searchrl.hookimpl
def register_retrievers(register):
    register("calm", "nowhere:Calm")
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has trusted nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "searchrl" / "trusted"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The file that the plugin writes when it runs."""
    return tmp_path / "trace"


@pytest.fixture
def plugin(tmp_path: Path, trace: Path) -> Path:
    path = tmp_path / "calm.py"
    path.write_text(PLUGIN.format(trace=str(trace)))
    return path


def write_run(folder: Path, **settings: Any) -> Path:
    """A run folder as a stranger sends it."""
    folder.mkdir(parents=True)
    config = {"env": "regulations", "policy": "scripted", "eval": {"num_tasks": 1}, **settings}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "provenance.json").write_text('{"plugins": []}')
    return folder


@pytest.fixture
def run(tmp_path: Path, plugin: Path) -> Path:
    return write_run(tmp_path / "from stranger", plugins=[str(plugin)])


def test_one_sentence_says_what_it_wants_to_run_and_how_to_allow_it(
    run: Path, plugin: Path, trace: Path
) -> None:
    text = complaint("eval", run)
    assert f"wants to use file {plugin} (plugins)" in text
    assert "once with --trust, or for good with: searchrl trust '" in text
    assert len(text.strip().splitlines()) == 1
    assert not trace.exists()


@pytest.mark.parametrize(
    "words",
    [
        "eval {run}",
        "ask {run} When?",
        "train --resume {run}",
        "train --init-from {run} --dry-run",
        "sft --resume {run}",
        "bench --init-from {run}",
        "play --config {run}/config.yaml",
        "eval --config {run}/config.yaml",
        "train --config {run}/config.yaml --model tiny --dry-run",
        "plugins --config {run}/config.yaml",
    ],
)
def test_every_way_to_a_run_folder_asks(words: str, tmp_path: Path, plugin: Path, trace: Path):
    run = write_run(tmp_path / "run", plugins=[str(plugin)], policy="model")
    shutil.copytree(TINY, run / "policy")
    (run / "checkpoints" / "step_000001").mkdir(parents=True)
    demos = {"demos": 1} if words.startswith("sft") else {}
    (run / "checkpoints" / "step_000001" / "state.json").write_text(json.dumps(demos))
    text = complaint(*words.format(run=run).split())
    assert f"wants to use file {plugin} (plugins)" in text
    assert not trace.exists()


def test_trust_flag_allows_once(run: Path, trace: Path) -> None:
    succeed("eval", run, "--trust")
    assert trace.exists()
    trace.unlink()
    complaint("eval", run)


def test_trust_flag_is_not_remembered_by_the_run_that_it_makes(run: Path, tmp_path: Path) -> None:
    succeed("eval", run, "--trust", "--run-dir", tmp_path / "made")
    complaint("eval", run)


def test_trust_command_allows_for_good_and_runs_nothing(
    run: Path, plugin: Path, trace: Path, own_state: Path
) -> None:
    said = json.loads(succeed("trust", run, "--json").stdout)
    assert [row["code"] for row in said["trusted"]] == [str(plugin)]
    assert not trace.exists()
    assert [path.stem for path in own_state.iterdir()] == [said["trusted"][0]["sha256"]]
    succeed("eval", run)
    plugin.write_text(plugin.read_text() + "# another text\n")
    assert "have not trusted as it is now" in complaint("eval", run)


def test_code_named_on_the_command_line_runs(run: Path, plugin: Path, trace: Path) -> None:
    succeed("eval", run, "--plugin", plugin)
    assert trace.exists()
    trace.unlink()
    other = plugin.with_name("other.py")
    other.write_text(plugin.read_text().replace("trace", "another"))
    succeed("eval", run, "--plugin", other)
    assert (trace.parent / "another").exists() and not trace.exists(), "it stands in its place"


def test_own_run_is_trusted_and_so_are_copies_of_it(
    plugin: Path, tmp_path: Path, micro_flags: list[str], own_state: Path
) -> None:
    own = tmp_path / "own"
    succeed("eval", "--env", "regulations", "--policy", "scripted", "--set", "eval.num_tasks=1",
            "--plugin", plugin, "--run-dir", own)  # fmt: skip
    shutil.copytree(own, tmp_path / "elsewhere" / "copy")
    succeed("eval", tmp_path / "elsewhere" / "copy")
    shutil.rmtree(own_state)
    complaint("eval", own)
    assert not list(own.rglob("trusted*")), "trust is never kept in a run folder"


@pytest.mark.usefixtures("threads_restored")
def test_run_of_train_is_trusted(plugin: Path, tmp_path: Path, micro_flags: list[str]) -> None:
    own = tmp_path / "own"
    succeed("train", *micro_flags, "--max-steps", 0, "--plugin", plugin, "--run-dir", own)
    succeed("train", "--resume", own)


@pytest.mark.parametrize("name", ["config.yaml", "other.yaml", "configs/inner.yaml"])
def test_config_in_a_run_folder_is_a_run_folders(name: str, run: Path, plugin: Path) -> None:
    path = run / name
    path.parent.mkdir(exist_ok=True)
    (run / "config.yaml").rename(path)
    assert f"wants to use file {plugin}" in complaint("eval", "--config", path)


def test_link_to_a_config_of_a_run_folder_is_a_run_folders(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to(run / "config.yaml")
    complaint("eval", "--config", tmp_path / "mine.yaml")
    (run / "provenance.json").unlink()
    (run / "provenance.json").symlink_to("nowhere")
    complaint("eval", "--config", run / "config.yaml")


def test_config_of_the_user_may_name_plugins_and_they_are_listed(
    run: Path, plugin: Path, trace: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    shutil.copy(run / "config.yaml", own)
    said = succeed("eval", "--config", own).stderr
    assert f"note: {own} names plugins, which run: {plugin}" in said
    assert trace.exists()
    assert "names plugins" in succeed("plugins", "--config", own).stderr
    asked = succeed("ask", "tiny", "When?", "--config", own, "--set", "policy=model")
    assert "names plugins" in asked.stderr


def test_python_api_asks_too(run: Path, trace: Path, tmp_path: Path) -> None:
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("scripted", "model"))
    shutil.copytree(TINY, run / "policy")
    with pytest.raises(PluginError, match="wants to use file"):
        load_agent(run)
    with pytest.raises(PluginError, match="wants to use file"):
        train({"init_from": str(run), "run_dir": str(tmp_path / "new"), "max_steps": 0})
    assert not trace.exists()
    load_agent(run, permission=Permission(is_given=True)).close()
    assert trace.exists()


def test_file_that_changes_after_the_look_does_not_run(plugin: Path, trace: Path) -> None:
    (code,) = find_code({"plugins": [str(plugin)]})
    store.trust([(code, code.digest())], "run")
    pinned = Permission().ensure({"plugins": [str(plugin)]}, "run")
    plugin.write_text(plugin.read_text().replace('"ran"', '"evil"'))
    registry = load_plugins([str(plugin)], pinned=pinned)
    assert not trace.exists()
    assert "changed while it was being looked at" in str(registry.failures)


def test_run_that_cannot_be_remembered_begins_all_the_same(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    words = "--env regulations --policy scripted --set eval.num_tasks=1".split()
    said = succeed("eval", *words, "--plugin", plugin, "--run-dir", tmp_path / "own").stderr
    assert "cannot remember" in said and "--trust" in said


@pytest.mark.parametrize(
    ("settings", "kind", "source"),
    [
        ({"env": "gym:srl_loose:X-v0"}, CodeKind.MODULE, "srl_loose"),
        ({"env": {"name": "searchrl:gym:srl_loose.a:X-v0"}}, CodeKind.MODULE, "srl_loose.a"),
        ({"tasks": [{"env": {"name": "gym:srl_loose:X-v0"}}]}, CodeKind.MODULE, "srl_loose"),
        ({"tasks": {"0": {"env": "gym:srl_loose:X-v0"}}}, CodeKind.MODULE, "srl_loose"),
        ({"env": {"name": "e", "make": {"a": ["srl_loose:B"]}}}, CodeKind.MODULE, "srl_loose"),
        ({"env": "gym:antigravity:X-v0"}, CodeKind.MODULE, "antigravity"),
        ({"plugins": "srl_loose"}, CodeKind.MODULE, "srl_loose"),
        ({"protocol": {"instruction": "@/etc/passwd"}}, CodeKind.INSTRUCTION, "/etc/passwd"),
        ({"retriever": {"url": "https://x.y/r"}}, CodeKind.ADDRESS, "https://x.y/r"),
        ({"tasks": [{"retriever": {"parts": [{"url": "HTTP://x.y"}]}}]}, CodeKind.ADDRESS, "HTTP://x.y"),
        ({"judge": {"rubric": "/etc/passwd"}}, CodeKind.INSTRUCTION, "/etc/passwd"),
        ({"judge": {"ranking_rubric": "/etc/passwd"}}, CodeKind.INSTRUCTION, "/etc/passwd"),
        ({"retriever": {"name": "dense", "chroma": "/c"}}, CodeKind.CACHE, "/c"),
    ],
)  # fmt: skip
def test_code_is_found_wherever_settings_name_it(
    settings: dict[str, Any], kind: CodeKind, source: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "srl_loose.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    assert [(code.kind, code.source) for code in find_code(settings)] == [(kind, source)]
    with pytest.raises(PluginError, match=source):
        Permission().ensure(settings, "run")


@pytest.mark.parametrize(
    ("part", "settings", "source"),
    [
        ("retriever", {"url": "https://x.y/r", "key_env": "K"}, "https://x.y/r with the key in K"),
        ("judge", {"cache": "/c.sqlite"}, "/c.sqlite"),
        ("env", {"make": "srl_loose:X-v0"}, "srl_loose"),
    ],
)
def test_code_is_found_as_deep_as_settings_can_be(
    part: str, settings: dict[str, Any], source: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It was looked for to a depth of 20, and YAML may be deeper: keys went to strangers."""
    (tmp_path / "srl_loose.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)

    def write(num_levels: int) -> str:
        inner: dict[str, Any] = settings
        for _ in range(num_levels):
            inner = {"name": "hybrid", "vector": inner}
        return json.dumps({part: inner})

    deepest = read_yaml(write(MAX_DEPTH - 2)).value
    with pytest.raises(PluginError, match=re.escape(source)):
        Permission().ensure(deepest, "run")
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels deep"):
        read_yaml(write(MAX_DEPTH - 1))


def test_installed_modules_run_and_others_of_their_name_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_installed("gymnasium") and is_installed("rank_bm25")
    assert not is_installed("antigravity") and not is_installed("pip.__main__")
    assert not Permission().ensure({"env": "gym:gymnasium.envs:FrozenLake-v1"}, "run")
    (tmp_path / "rank_bm25.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rank_bm25", raising=False)
    assert not is_installed("rank_bm25")
    with pytest.raises(PluginError, match="module rank_bm25"):
        Permission().ensure({"plugins": ["rank_bm25"]}, "run")
