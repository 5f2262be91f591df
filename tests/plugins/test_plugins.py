"""Plugins: isolation, conflicts, did-you-mean, provenance, lazy resolution.

A broken plugin (`plugin_files.BROKEN`) must be named with the line at fault, leave nothing behind
and harm no other plugin.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from plugin_files import BROKEN, FIXTURES, fault_line, install, reward_plugin, write_broken

import searchrl
from searchrl.config import build_config
from searchrl.errors import ConfigError, PluginError, UnknownNameError
from searchrl.hookspecs import HOOKS, PLUGIN_API
from searchrl.plugins import Origin, Registry, load_plugins
from searchrl.plugins.provenance import read_records


def fixture(name: str) -> str:
    return str(FIXTURES / f"{name}.py")


def load(*names: str, **options: Any) -> Registry:
    return load_plugins([fixture(name) for name in names], entry_points=False, **options)


def load_text(path: Path, text: str) -> Registry:
    """Load a plugin that is written to a file now."""
    path.write_text(text)
    return load_plugins([str(path)], entry_points=False)


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that can be imported."""
    monkeypatch.delenv("SEARCHRL_NO_INSTALLED_PLUGINS")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


# --- broken plugins ------------------------------------------------------------------------
@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugin_is_isolated_named_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    path = write_broken(name, tmp_path)
    files = [fixture("good"), str(path), fixture("rival_em")]
    registry = load_plugins(files, entry_points=False)
    (failure,) = registry.failures
    assert failure.plugin == name and BROKEN[name].message in str(failure)
    if line := fault_line(path):
        assert f"plugin {name} ({path}:{line}) " in str(failure)
    foreign = [e.owner.name for e in registry.entries() if e.owner.origin is not Origin.BUILTIN]
    assert set(foreign) == {"good", "rival_em"}
    assert name not in {owner.name for owner in registry.owners}
    if "at import" in failure.message:
        assert not [m for m in sys.modules if m.startswith(f"searchrl_plugin_{name}_")]
    with pytest.raises(PluginError) as fatal:
        load_plugins([str(path)], entry_points=False, strict=True)
    assert BROKEN[name].message in str(fatal.value)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("PLUGIN_API = 99", f"PLUGIN_API = 99; .* 1 to {PLUGIN_API} .*pip install --upgrade"),
        ("PLUGIN_API: int = 0", "PLUGIN_API = 0; "),
        ("PLUGIN_API = '1'", "PLUGIN_API = '1'; "),
        ("PLUGIN_API = True", "PLUGIN_API = True; "),
    ],
)
def test_other_plugin_api_is_refused_with_what_to_do(tmp_path: Path, line: str, text: str) -> None:
    (failure,) = load_text(tmp_path / "mine.py", f"{line}\n{reward_plugin('calm')}").failures
    assert re.search(text, failure.message) and failure.file == str(tmp_path / "mine.py")


# --- names ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", HOOKS)
def test_did_you_mean_or_list_for_every_kind(kind: str) -> None:
    registry = load()
    with pytest.raises(UnknownNameError, match=f"^unknown {kind} 'zzzzzzz'\\. (Known|None)"):
        registry.get(kind, "zzzzzzz")
    # Group rewards are named among rewards; none is built in.
    first = registry.names(kind)[0]
    with pytest.raises(UnknownNameError, match=f"Did you mean (.* or )?'{first}'"):
        registry.get(kind, f"{first}x")


def test_conflict_names_both_owners_and_neither_wins() -> None:
    registry = load("rival_em")
    with pytest.raises(PluginError) as caught:
        registry.get("reward", "em")
    text = str(caught.value)
    assert "plugin searchrl 0.1.0" in text and "plugin rival_em 1.0" in text
    assert f"{fixture('rival_em')}:10" in text and "use 'searchrl:em' or 'rival_em:em'" in text
    assert registry.conflicts == (text,)
    assert registry.get("reward", "rival_em:em").owner.name == "rival_em"
    assert registry.get("reward", "searchrl:em").owner.name == "searchrl"
    assert registry.get("reward", "em_zh").owner.name == "rival_em"
    assert "em" not in registry.names("reward")
    assert {"searchrl:em", "rival_em:em", "em_zh", "f1"} <= set(registry.names("reward"))
    assert {"em", "rival_em:em", "rival_em:em_zh"} <= set(registry.spellings("reward"))


def test_scheme_passes_the_rest_of_the_name() -> None:
    registry = load("good")
    made = registry.get("env", "world:Frozen-v1").make(protocol=None, retriever=None)
    assert made == "world Frozen-v1"
    qualified = registry.get("env", "good:world:a:b")
    assert qualified.make(protocol=None, retriever=None) == "world a:b"
    assert qualified.protocol == "act" and qualified.title == "world:a:b"
    with pytest.raises(ConfigError, match="needs a name after the colon"):
        registry.get("env", "world:")


# --- sources -------------------------------------------------------------------------------
def test_missing_file_and_folder_raise_at_once(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="there is no file"):
        load_plugins([str(tmp_path / "nowhere.py")])
    with pytest.raises(PluginError, match="is a folder"):
        load_plugins([f"{tmp_path}/"])


def test_missing_module_raises_and_suggests_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_env.py").write_text(reward_plugin("a"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".")])
    with pytest.raises(PluginError, match=r"no module 'my_env'.*Did you mean '--plugin my_env.py'"):
        load_plugins(["my_env"], entry_points=False)


def test_nothing_in_the_working_directory_is_imported_unless_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("raise SystemExit('imported')")
    (tmp_path / "searchrl_plugin.py").write_text("raise SystemExit('imported')")
    # As the console script does: the folder of the package on the path, not the working directory.
    code = (
        f"import sys; sys.path[0] = {str(Path(searchrl.__file__).parents[1])!r};"
        "from searchrl.plugins import load_plugins; print(len(load_plugins().failures));"
        "assert not {'conftest', 'searchrl_plugin'} & set(sys.modules)"
    )
    result = run_python(code, tmp_path)
    assert (result.stdout.strip(), result.stderr) == ("0", "")


def test_edited_file_is_executed_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text("class Mine: ...\n" + reward_plugin("a").replace("dict", "Mine"))
    first = load_plugins([str(path)]).get("reward", "a").factory
    assert load_plugins([str(path)]).get("reward", "a").factory is first
    path.write_text(path.read_text() + "# edited\n")
    assert load_plugins([str(path)]).get("reward", "a").factory is not first


def test_importable_module_as_plugin(site: Path) -> None:
    (site / "srl_mod_a.py").write_text(reward_plugin("a"))
    registry = load_plugins(["srl_mod_a"], entry_points=False)
    owner = registry.get("reward", "srl_mod_a:a").owner
    assert (owner.origin, owner.source) == (Origin.MODULE, "srl_mod_a")
    (site / "srl_mod_b.py").write_text("import searchrl_no_such_module")
    (failure,) = load_plugins(["srl_mod_b"], entry_points=False).failures
    assert f"({site / 'srl_mod_b.py'}:1) raised at import" in str(failure)


# --- installed distributions ---------------------------------------------------------------
def test_entry_point_plugin_is_owned_by_its_distribution(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "Srl-Alpha", "1.2", {"srl_alpha": reward_plugin("a")}, "x = srl_alpha")
    registry = load_plugins()
    owner = registry.get("reward", "srl_alpha:a").owner
    assert str(owner) == "plugin Srl-Alpha 1.2"
    (record,) = [r for r in registry.provenance() if r["plugin"] == "Srl-Alpha"]
    assert record["sha256"] == hashlib.sha256((site / "srl_alpha.py").read_bytes()).hexdigest()
    assert record["names"] == {"reward": ["a"]}
    assert "a" not in load_plugins(entry_points=False).names("reward")
    monkeypatch.setenv("SEARCHRL_NO_INSTALLED_PLUGINS", "1")
    assert "a" not in load_plugins().names("reward")


def test_broken_distribution_is_isolated_with_its_line(site: Path) -> None:
    install(site, "srl-eps", "3.1", {"srl_eps": "\n1 / 0\n"}, "x = srl_eps")
    install(site, "srl-gone", "1", {}, "x = srl_gone_module")
    texts = {failure.plugin: str(failure) for failure in load_plugins().failures}
    place = f"plugin srl-eps 3.1 ({site / 'srl_eps.py'}:2) raised at import: ZeroDivisionError"
    assert texts["srl-eps"].startswith(place)
    assert "No module named 'srl_gone_module'" in texts["srl-gone"]


def test_file_of_an_installed_plugin_is_the_same_plugin(site: Path) -> None:
    install(site, "srl-zeta", "1", {"srl_zeta": reward_plugin("a")}, "x = srl_zeta")
    for source in (str(site / "srl_zeta.py"), "srl_zeta"):
        registry = load_plugins([source])
        assert not registry.failures and not registry.conflicts


# --- use -----------------------------------------------------------------------------------
def test_lazy_target_that_is_missing_names_plugin_and_line() -> None:
    registry = load("missing_target")
    line = fault_line(FIXTURES / "missing_target.py")
    place = f"plugin missing_target ({fixture('missing_target')}:{line})"
    with pytest.raises(PluginError) as caught:
        registry.get("tracker", "absent_module").load()
    assert str(caught.value).startswith(f"{place} tracker 'absent_module' cannot load")
    with pytest.raises(PluginError, match="cannot load 'json:Tracker': AttributeError"):
        registry.get("tracker", "absent_name").load()
    with pytest.raises(PluginError, match="'json:__name__' is str, not a callable"):
        registry.get("tracker", "no_factory").load()


def test_factory_that_raises_is_attributed_and_unknown_settings_are_refused() -> None:
    entry = load("raises_when_made").get("tracker", "socket")
    with pytest.raises(PluginError) as caught:
        entry.make(Path("."))
    line = fault_line(FIXTURES / "raises_when_made.py")
    assert f"raises_when_made.py:{line}) tracker 'socket' could not be made: OSError" in str(
        caught.value
    )
    with pytest.raises(ConfigError, match="no setting 'color'. Did you mean 'colour'"):
        entry.make(Path("."), color="red")
    with pytest.raises(ConfigError, match="'em' has no setting 'xyz'. It takes no settings"):
        load().get("reward", "em").make(xyz=1)


def test_scripts_and_expert_resolve_by_name() -> None:
    entry = load("good").get("env", "capitals")
    assert entry.script_names == ("expert", "lazy")
    made: Any = entry.load_script()(None, None, None)  # type: ignore[arg-type]
    assert made == "expert" and entry.load_script("lazy") is json.dumps
    with pytest.raises(UnknownNameError, match="no scripted policy 'lasy'. Did you mean 'lazy'"):
        entry.load_script("lasy")
    assert load("good").get("env", "world:x").script_names == ()
    with pytest.raises(UnknownNameError, match=r"give register_envs an `expert=`"):
        load("good").get("env", "world:x").load_script()


def test_builtin_env_is_a_gymnasium_id_and_takes_names_settings_or_objects() -> None:
    assert {"searchrl/Regulations-v0", "searchrl/Corpus-v0"} <= gymnasium.registry.keys()
    by_name = gymnasium.make("searchrl/Regulations-v0", retriever={"name": "empty"})
    _, _, _, _, info = _search(by_name)
    assert info["passages"] == ()
    protocol = load().get("protocol", "think-search-answer").make()
    by_object = gymnasium.make("searchrl/Regulations-v0", protocol=protocol)
    _, _, _, _, info = _search(by_object)
    assert info["action"].kind == "search"
    with pytest.raises(UnknownNameError, match="unknown retriever 'bm52'. Did you mean 'bm25'"):
        searchrl.make_env("regulations", retriever="bm52")


def _search(env: gymnasium.Env[Any, Any]) -> Any:
    env.reset(seed=0)
    return env.step("<think>look</think><search>late pupils report</search>")


# --- provenance --------------------------------------------------------
def test_provenance_is_json_and_hashes_the_file_that_ran() -> None:
    registry = load("good")
    ours, theirs = json.loads(json.dumps(registry.provenance()))
    assert (ours["plugin"], ours["version"], ours["api"]) == ("searchrl", "0.1.0", PLUGIN_API)
    assert len(ours["sha256"]) == 64 and "regulations" in ours["names"]["env"]
    assert theirs == {
        "plugin": "good",
        "origin": "file",
        "distribution": "",
        "version": "0.2",
        "file": fixture("good"),
        "source": fixture("good"),
        "api": PLUGIN_API,
        "sha256": hashlib.sha256(Path(fixture("good")).read_bytes()).hexdigest(),
        "names": {"env": ["capitals", "world:"], "reward": ["brevity"]},
    }


def test_a_run_needs_the_recorded_plugins_of_its_parts_and_rewards(tmp_path: Path) -> None:
    offered = {"a": ("wrapper", "slow"), "b": ("reward", "calm"), "c": ("env", "other")}
    rows = [{"plugin": name, "names": {kind: [one]}} for name, (kind, one) in offered.items()]
    (tmp_path / "provenance.json").write_text(json.dumps({"plugins": rows}))
    config = build_config({"wrapper": "slow", "reward": {0: "em", 3: "em+0.1*calm"}})
    assert [one.owner.name for one in read_records(tmp_path, config)] == ["a", "b"]
