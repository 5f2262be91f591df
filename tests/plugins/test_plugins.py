"""Plugins: isolation, conflicts, did-you-mean, provenance, lazy resolution, other processes.

Each file in `fixtures/plugins` marks the line that is at fault with `# fault`; a broken plugin
must be named with exactly that line, leave nothing behind and harm no other plugin.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import searchrl
from searchrl.errors import ConfigError, PluginError, UnknownNameError, suggest
from searchrl.hookspecs import HOOKS
from searchrl.plugins import Entry, Origin, Registry, load_plugins, reload_plugins

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plugins"

BROKEN = {
    "raises_at_import": "raised at import: ModuleNotFoundError: No module named",
    "bad_syntax": "raised at import: SyntaxError",
    "exits_at_import": "raised at import: SystemExit: no licence found",
    "wrong_api": "was written for plugin API 99; searchrl 0.1.0 has plugin API 2",
    "api_as_text": "declares PLUGIN_API = '1'; expected a whole number, as in 'PLUGIN_API = 2'",
    "misspelt_hook": "unknown hook 'register_reward'. Did you mean 'register_rewards'",
    "early_hook": "unknown hook 'register_judges'",
    "bad_argument": "defines register_rewards(registry); expected register_rewards(register)",
    "default_argument": "defines register_rewards(register=None); expected",
    "async_hook": "register_rewards as a coroutine",
    "unmarked_hook": "does not mark register_rewards with @hookimpl",
    "no_hooks": "has no hooks",
    "hook_raises": "raised in register_rewards: ValueError: the table of capitals is empty",
    "hook_exits": "raised in register_rewards: SystemExit: 3",
    "not_callable": "registers tracker 'junk': int is neither a callable nor a string",
    "bad_lazy_string": "'my_package.module.Tracker' is not of the form 'package.module:attribute'",
    "bad_name": "registers tracker 'my tracker!': a name is made of",
    "name_not_text": "registers tracker <class 'dict'>: a name is made of",
    "reward_name": "must be an identifier; use 'exact_match'",
    "reward_instance": "has signature (episode): missing a required argument: 'episode'",
    "env_signature": "got an unexpected keyword argument 'protocol'",
    "tracker_signature": "registers tracker 'nowhere': the factory has signature ()",
    "bad_expert": "registers the expert of env 'capitals': bool is neither a callable",
    "unknown_option": "raised in register_envs: TypeError",
    "twice": "registers tracker 'log' twice",
    "scheme_reward": "registers tracker 'wandb:': only an env's name may be a scheme",
    "swallows": "registers tracker 'bad': int is neither a callable",
    "late": "registers env 'late' after its hook returned",
}


def fixture(name: str) -> str:
    return str(FIXTURES / f"{name}.py")


def load(*names: str, **options: Any) -> Registry:
    return load_plugins([fixture(name) for name in names], entry_points=False, **options)


def fault_line(name: str) -> int:
    lines = (FIXTURES / f"{name}.py").read_text().splitlines()
    return next((i for i, line in enumerate(lines, 1) if "# fault" in line), 0)


def foreign(registry: Registry) -> list[Entry]:
    return [entry for entry in registry.entries() if entry.owner.origin is not Origin.BUILTIN]


def install(folder: Path, name: str, version: str, modules: dict[str, str], eps: str) -> None:
    """Lay out an installed distribution as pip leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    record = []
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
        record.append(f"{module}.py,sha256={hashlib.sha256(text.encode()).hexdigest()},")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("\n".join(record))
    (info / "entry_points.txt").write_text(f"[searchrl]\n{eps}\n")


def reward_plugin(*names: str) -> str:
    calls = "\n".join(f"    register({name!r}, dict)" for name in names)
    return f"from searchrl import hookimpl\n\n@hookimpl\ndef register_rewards(register):\n{calls}\n"


# --- broken plugins ------------------------------------------------------------------------


def test_every_broken_fixture_is_expected() -> None:
    working = {"good", "rival_em", "missing_target", "raises_when_made"}
    assert {path.stem for path in FIXTURES.glob("*.py")} == BROKEN.keys() | working


@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugin_is_isolated_named_and_leaves_nothing(name: str) -> None:
    registry = load("good", name, "rival_em")
    (failure,) = registry.failures
    assert failure.plugin == name
    assert BROKEN[name] in str(failure)
    if line := fault_line(name):
        assert f"plugin {name} ({fixture(name)}:{line}) " in str(failure)
    assert {entry.owner.name for entry in foreign(registry)} == {"good", "rival_em"}
    assert name not in {owner.name for owner in registry.owners}
    if "at import" in failure.message:
        assert not [m for m in sys.modules if m.startswith(f"searchrl_plugin_{name}_")]


@pytest.mark.parametrize("name", BROKEN)
def test_strict_makes_a_broken_plugin_fatal(name: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(name, strict=True)
    assert BROKEN[name] in str(caught.value)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("PLUGIN_API = 3", "plugin API 3; .* has plugin API 2. Upgrade searchrl"),
        ("PLUGIN_API: int = 0", "PLUGIN_API = 0, which never was one: the numbers are 1 to 2"),
        ("PLUGIN_API = True", "PLUGIN_API = True; expected a whole number"),
        ("PLUGIN_API = 1.0", "PLUGIN_API = 1.0; expected a whole number"),
        ("PLUGIN_API = None", "PLUGIN_API = None; expected a whole number"),
    ],
)
def test_other_plugin_api_is_refused_with_what_to_do(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{line}\n{reward_plugin('calm')}")
    (failure,) = load_plugins([str(path)], entry_points=False).failures
    assert re.search(text, failure.message)
    assert failure.line == 1


def test_a_plugin_of_an_older_api_loads(tmp_path: Path) -> None:
    """Only losses changed since API 1, and `Algorithm` itself refuses an old one."""
    path = tmp_path / "mine.py"
    path.write_text(f"PLUGIN_API = 1\n{reward_plugin('calm')}")
    assert load_plugins([str(path)], entry_points=False).get("reward", "calm").owner.api == 1


def test_plugin_api_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(reward_plugin("calm"))
    assert load_plugins([str(path)], entry_points=False).get("reward", "calm").owner.api is None


def test_all_broken_plugins_together_leave_the_tool_usable() -> None:
    registry = load(*BROKEN, "good")
    assert len(registry.failures) == len(BROKEN)
    assert registry.get("reward", "brevity").owner.name == "good"
    assert registry.get("env", "regulations").owner.origin is Origin.BUILTIN


def test_hook_failure_keeps_the_traceback_and_the_version() -> None:
    (failure,) = load("hook_raises").failures
    assert failure.hook == "register_rewards"
    assert "make_it()" in failure.detail


def test_unknown_name_mentions_the_plugin_that_did_not_load() -> None:
    with pytest.raises(UnknownNameError, match="Not loaded: plugin hook_raises .* raised in"):
        load("hook_raises").get("reward", "whole")


# --- names ---------------------------------------------------------------------------------


def test_unknown_name_did_you_mean() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load().get("env", "regulation")
    assert str(caught.value) == "unknown env 'regulation'. Did you mean 'regulations'?"


@pytest.mark.parametrize("kind", HOOKS)
def test_did_you_mean_or_list_for_every_kind(kind: str) -> None:
    with pytest.raises(UnknownNameError, match=f"^unknown {kind} 'zzzzzzz'\\. (Known|None)"):
        load().get(kind, "zzzzzzz")


def test_conflict_names_both_owners_and_neither_wins() -> None:
    registry = load("rival_em")
    with pytest.raises(PluginError) as caught:
        registry.get("reward", "em")
    text = str(caught.value)
    assert "plugin searchrl 0.1.0" in text and "plugin rival_em 1.0" in text
    assert f"{fixture('rival_em')}:10" in text
    assert "use 'searchrl:em' or 'rival_em:em'" in text
    assert registry.conflicts == (text,)
    assert registry.get("reward", "rival_em:em").owner.name == "rival_em"
    assert registry.get("reward", "searchrl:em").owner.name == "searchrl"
    assert registry.get("reward", "em_zh").owner.name == "rival_em"
    assert "em" not in registry.names("reward")
    assert {"searchrl:em", "rival_em:em", "em_zh", "f1"} <= set(registry.names("reward"))
    assert {"em", "rival_em:em", "rival_em:em_zh"} <= set(registry.spellings("reward"))


def test_conflict_is_fatal_when_strict() -> None:
    with pytest.raises(PluginError, match="Neither wins"):
        load("rival_em", strict=True)


def test_qualified_name_with_unknown_rest_suggests_that_plugins_names() -> None:
    with pytest.raises(UnknownNameError, match="plugin 'good' has no reward 'brevit'.*brevity"):
        load("good").get("reward", "good:brevit")


@pytest.mark.parametrize(
    ("kind", "name", "args", "hint"),
    [
        ("reward", "em", (), "It takes no settings."),
        ("retriever", "empty", ((),), "It takes no settings."),
        ("retriever", "bm25", ((),), "Known: b, epsilon, k1, title_weight."),
    ],
)
def test_unknown_setting_is_answered_with_the_settings_there_are(
    kind: str, name: str, args: tuple[Any, ...], hint: str
) -> None:
    """Not with "None is registered", and not with what SearchRL itself passes."""
    with pytest.raises(ConfigError, match=f"{kind} '{name}' has no setting 'xyz'. {hint}$"):
        load().get(kind, name).make(*args, xyz=1)


def test_what_searchrl_passes_is_no_setting() -> None:
    with pytest.raises(ConfigError, match="retriever 'bm25' has no setting 'passages'"):
        load().get("retriever", "bm25").make((), passages=())


def test_lookup_among_nothing_says_what_there_is_none_of() -> None:
    registry = load("good")
    with pytest.raises(UnknownNameError, match="plugin 'good' has no tracker 'x'. It registers no"):
        registry.get("tracker", "good:x")
    with pytest.raises(UnknownNameError, match="unknown env 'x'. None is registered."):
        Registry([], []).get("env", "x")
    assert suggest("x", []) == " There are none."


def test_scheme_passes_the_rest_of_the_name() -> None:
    registry = load("good")
    made = registry.get("env", "world:Frozen-v1").make(protocol=None, retriever=None)
    assert made == "world Frozen-v1"
    qualified = registry.get("env", "good:world:a:b")
    assert qualified.make(protocol=None, retriever=None) == "world a:b"
    assert qualified.protocol == "act" and qualified.title == "world:a:b"
    with pytest.raises(ConfigError, match="needs a name after the colon"):
        registry.get("env", "world:")


def test_unknown_kind_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="no plugin kind 'judge'"):
        load().get("judge", "x")


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
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.stdout.strip(), result.stderr) == ("0", "")


def test_named_twice_loads_once_and_same_stem_gets_its_own_name(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "mine.py" for folder in ("a", "b")]
    for path, name in zip(paths, ("one", "two"), strict=True):
        path.parent.mkdir()
        path.write_text(reward_plugin(name))
    registry = load_plugins([str(p) for p in (*paths, paths[0])], entry_points=False)
    assert not registry.failures
    assert registry.get("reward", "mine:one").owner.file == str(paths[0])
    assert registry.get("reward", "mine-2:two").owner.file == str(paths[1])
    assert registry.sources == tuple(map(str, paths))


def test_plugin_does_not_inherit_our_future_imports(tmp_path: Path) -> None:
    path = tmp_path / "annotations.py"
    path.write_text(
        "def f(x: int): ...\nassert f.__annotations__['x'] is int\n" + reward_plugin("a")
    )
    assert not load_plugins([str(path)], entry_points=False).failures


def test_edited_file_is_executed_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text("class Mine: ...\n" + reward_plugin("a").replace("dict", "Mine"))
    first = load_plugins([str(path)]).get("reward", "a").factory
    assert load_plugins([str(path)]).get("reward", "a").factory is first
    path.write_text(path.read_text() + "# edited\n")
    assert load_plugins([str(path)]).get("reward", "a").factory is not first


def test_importable_module_as_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srl_mod_a.py").write_text(reward_plugin("a"))
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_plugins(["srl_mod_a"], entry_points=False)
    owner = registry.get("reward", "srl_mod_a:a").owner
    assert (owner.origin, owner.source) == (Origin.MODULE, "srl_mod_a")
    (tmp_path / "srl_mod_b.py").write_text("import searchrl_no_such_module")
    (failure,) = load_plugins(["srl_mod_b"], entry_points=False).failures
    assert f"({tmp_path / 'srl_mod_b.py'}:1) raised at import" in str(failure)


# --- installed distributions ---------------------------------------------------------------


def test_entry_point_plugin_is_owned_by_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "Srl-Alpha", "1.2", {"srl_alpha": reward_plugin("a")}, "x = srl_alpha")
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_plugins()
    owner = registry.get("reward", "srl_alpha:a").owner
    assert str(owner) == "plugin Srl-Alpha 1.2"
    (record,) = [r for r in registry.provenance() if r["plugin"] == "Srl-Alpha"]
    own_files = (tmp_path / "Srl_Alpha-1.2.dist-info" / "RECORD").read_bytes()
    assert record["hash_of"] == "RECORD"
    assert record["sha256"] == hashlib.sha256(own_files).hexdigest()
    assert record["names"] == {"reward": ["a"]}
    assert registry.sources == ()
    assert "a" not in load_plugins(entry_points=False).names("reward")


def test_editable_install_is_hashed_by_its_code_not_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "srl-edit", "1", {"srl_edit": reward_plugin("a")}, "x = srl_edit")
    info = tmp_path / "srl_edit-1.dist-info"
    (info / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    monkeypatch.syspath_prepend(tmp_path)

    def record() -> dict[str, Any]:
        return next(r for r in load_plugins().provenance() if r["plugin"] == "srl-edit")

    before = record()
    (tmp_path / "srl_edit.py").write_text(reward_plugin("a") + "# edited\n")
    assert before["hash_of"] == "file"
    assert record()["sha256"] != before["sha256"]


def test_same_entry_point_name_in_two_distributions_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("beta", "gamma"):
        module = f"srl_{name}"
        install(tmp_path, f"srl-{name}", "1", {module: reward_plugin(name)}, f"same = {module}")
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_plugins()
    assert {"beta", "gamma"} <= set(registry.names("reward"))
    assert not registry.failures


def test_repeated_entry_point_and_shared_module_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eps = "one = srl_delta\none = srl_delta\ntwo = srl_delta"
    install(tmp_path, "srl-delta", "1", {"srl_delta": reward_plugin("a")}, eps)
    monkeypatch.syspath_prepend(tmp_path)
    texts = [str(failure) for failure in load_plugins().failures]
    assert any("declares the entry point 'one' twice" in text for text in texts)
    assert any("is the same module as plugin srl-delta.one 1" in text for text in texts)


def test_broken_distribution_is_isolated_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "srl-eps", "3.1", {"srl_eps": "\n1 / 0\n"}, "x = srl_eps")
    install(tmp_path, "srl-gone", "1", {}, "x = srl_gone_module")
    monkeypatch.syspath_prepend(tmp_path)
    texts = {failure.plugin: str(failure) for failure in load_plugins().failures}
    place = f"plugin srl-eps 3.1 ({tmp_path / 'srl_eps.py'}:2) raised at import: ZeroDivisionError"
    assert texts["srl-eps"].startswith(place)
    assert "No module named 'srl_gone_module'" in texts["srl-gone"]


def test_file_of_an_installed_plugin_is_the_same_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "srl-zeta", "1", {"srl_zeta": reward_plugin("a")}, "x = srl_zeta")
    monkeypatch.syspath_prepend(tmp_path)
    for source in (str(tmp_path / "srl_zeta.py"), "srl_zeta"):
        registry = load_plugins([source])
        assert not registry.failures and not registry.conflicts


# --- use -----------------------------------------------------------------------------------


def test_lazy_target_that_is_missing_names_plugin_and_line() -> None:
    registry = load("missing_target")
    place = f"plugin missing_target ({fixture('missing_target')}:{fault_line('missing_target')})"
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
    line = fault_line("raises_when_made")
    assert f"raises_when_made.py:{line}) tracker 'socket' could not be made: OSError" in str(
        caught.value
    )
    with pytest.raises(ConfigError, match="no setting 'color'. Did you mean 'colour'"):
        entry.make(Path("."), color="red")


def test_scripts_and_expert_resolve_by_name() -> None:
    entry = load("good").get("env", "capitals")
    assert entry.script_names == ("expert", "lazy")
    made: Any = entry.load_script()(None, None, None)  # type: ignore[arg-type]
    assert made == "expert"
    assert entry.load_script("lazy") is json.dumps
    with pytest.raises(UnknownNameError, match="no scripted policy 'lasy'. Did you mean 'lazy'"):
        entry.load_script("lasy")
    assert load("good").get("env", "world:x").load_scripts() == {}
    with pytest.raises(ConfigError, match=r"registers it without expert="):
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


def test_plugin_env_is_a_gymnasium_id() -> None:
    load("good")
    made = gymnasium.make(
        "searchrl/Capitals-v0", protocol=object(), retriever=list, disable_env_checker=True
    )
    assert made.unwrapped.made_with[1:] == (list, "any")  # type: ignore[attr-defined]
    direct = searchrl.make_env(
        "capitals", plugins=[fixture("good")], protocol=object(), retriever=list, continent="Asia"
    )
    assert direct.unwrapped.made_with[2] == "Asia"  # type: ignore[attr-defined]


# --- provenance and other processes --------------------------------------------------------


def test_provenance_is_json_and_hashes_the_file_that_ran() -> None:
    registry = load("good")
    ours, theirs = json.loads(json.dumps(registry.provenance()))
    assert (ours["plugin"], ours["version"], ours["api"]) == ("searchrl", "0.1.0", 2)
    assert len(ours["sha256"]) == 64 and "regulations" in ours["names"]["env"]
    assert theirs == {
        "plugin": "good",
        "origin": "file",
        "distribution": "",
        "version": "0.2",
        "file": fixture("good"),
        "source": fixture("good"),
        "api": 2,
        "installed_from": "",
        "sha256": hashlib.sha256(Path(fixture("good")).read_bytes()).hexdigest(),
        "hash_of": "file",
        "names": {"env": ["capitals", "world:"], "reward": ["brevity"]},
    }


def test_registry_filled_in_the_driver_is_the_same_in_a_worker(tmp_path: Path) -> None:
    spec = load("good", "hook_raises").spec()
    (tmp_path / "spec").write_bytes(pickle.dumps(spec))
    code = (
        "import pathlib, pickle; from searchrl.plugins import reload_plugins;"
        f"r = reload_plugins(pickle.loads(pathlib.Path({str(tmp_path / 'spec')!r}).read_bytes()));"
        "print(r.get('reward', 'brevity').owner, len(r.failures))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(searchrl.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.strip() == "plugin good 0.2 1", result.stderr


def test_worker_refuses_a_plugin_that_was_edited_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    path.write_text(reward_plugin("a"))
    spec = load_plugins([str(path)], entry_points=False).spec()
    reload_plugins(spec)
    path.write_text(reward_plugin("a") + "# edited\n")
    with pytest.raises(PluginError, match="edited, upgraded or removed"):
        reload_plugins(spec)


def test_registry_itself_does_not_cross_processes() -> None:
    with pytest.raises(TypeError, match=r"registry\.spec\(\)"):
        pickle.dumps(load())


# --- the package ---------------------------------------------------------------------------


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = searchrl.trian  # type: ignore[attr-defined]


def test_every_public_name_resolves() -> None:
    for name in searchrl.__all__:
        assert getattr(searchrl, name) is not None


@pytest.mark.parametrize("entry", load().entries(), ids=lambda e: f"{e.kind}-{e.name}")
def test_every_builtin_resolves(entry: Entry) -> None:
    assert callable(entry.load())
    assert all(callable(script) for script in entry.load_scripts().values())
