"""Deprecations of the plugin API: at the author's line, shown by default, listed.

Nothing is deprecated today, so the hookspecs here are those of a later searchrl.
"""

from __future__ import annotations

import json
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from searchrl import hookspecs
from searchrl.cli import main
from searchrl.plugins import load_plugins
from searchrl.plugins.deprecation import SearchRLDeprecationWarning

PLUGIN = """
import searchrl

@searchrl.hookimpl
def register_rewards(register):
    register("calm", dict)
"""

LINE = 4
"""Of the decorated function."""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plugin with a hook that is on its way out."""
    later = types.ModuleType("later_hookspecs")
    vars(later).update({name: value for name, value in vars(hookspecs).items() if name[0] != "_"})

    @hookspecs.hookspec(
        warn_on_impl=SearchRLDeprecationWarning("register_rewards becomes register_scores in API 2")
    )
    def register_rewards(register: object) -> None:
        """Offer reward components."""

    vars(later)["register_rewards"] = register_rewards
    monkeypatch.setattr("searchrl.plugins.hookspecs", later)
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    return str(path)


def ours(caught: list[warnings.WarningMessage], plugin: str) -> list[tuple[str, int]]:
    found = [w for w in caught if w.category is SearchRLDeprecationWarning and w.filename == plugin]
    return [(str(w.message), w.lineno) for w in found]


def test_deprecated_hook_warns_at_the_line_of_the_plugin(plugin: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        registry = load_plugins([plugin], entry_points=False)
    assert ours(caught, plugin) == [("register_rewards becomes register_scores in API 2", LINE)]
    assert registry.get("reward", "calm").owner.name == "mine"
    (one,) = [d for d in registry.deprecations if d.plugin == "mine"]
    assert str(one) == (
        f"plugin mine ({plugin}:{LINE}) register_rewards becomes register_scores in API 2"
    )


def test_it_is_listed_even_where_warnings_are_silenced_and_can_be_made_an_error(
    plugin: str,
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        registry = load_plugins([plugin], entry_points=False)
    assert not caught and "mine" in {d.plugin for d in registry.deprecations}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=SearchRLDeprecationWarning, module=".*mine")
        (failure,) = load_plugins([plugin], entry_points=False).failures
    assert failure.plugin == "mine" and "SearchRLDeprecationWarning" in failure.message


def test_other_warnings_of_a_plugin_are_shown_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(f"import warnings\nwarnings.warn('mind the gap', stacklevel=1)\n{PLUGIN}")
    with pytest.warns(UserWarning, match="mind the gap") as caught:
        registry = load_plugins([str(path)], entry_points=False)
    assert [w.lineno for w in caught if w.filename == str(path)] == [2]
    assert registry.deprecations == ()


def test_searchrl_plugins_lists_them(plugin: str) -> None:
    result = CliRunner().invoke(main, ["plugins", "--plugin", plugin])
    assert f"deprecated: plugin mine ({plugin}:{LINE}) register_rewards becomes" in result.stdout
    rows = json.loads(CliRunner().invoke(main, ["plugins", "--json", "--plugin", plugin]).stdout)
    assert [(d["file"], d["line"]) for d in rows["deprecations"] if d["plugin"] == "mine"] == [
        (plugin, LINE)
    ]


def test_python_shows_the_warning_by_default() -> None:
    code = (
        "import warnings; from searchrl.plugins.deprecation import SearchRLDeprecationWarning as W\n"
        "warnings.warn_explicit(W('gone soon'), W, 'mine.py', 7)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "mine.py:7: SearchRLDeprecationWarning: gone soon" in done.stderr


def test_what_is_built_in_uses_nothing_deprecated() -> None:
    assert load_plugins(entry_points=False).deprecations == ()
