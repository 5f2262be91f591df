"""docs/rewards.md against the code: every component has its heading, every block runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from searchrl.plugins import load_plugins
from searchrl.rewards.answers import normalize
from searchrl.rewards.components import BUILTIN_REWARDS
from searchrl.rewards.expression import RewardSchedule
from searchrl.rewards.scorer import Scorer

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "rewards.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_every_builtin_reward_has_its_heading_and_no_other_does() -> None:
    registered = [
        entry.name for entry in load_plugins(entry_points=False).entries() if entry.kind == "reward"
    ]
    assert re.findall(r"^### `(\w+)`$", TEXT, re.MULTILINE) == registered


def test_the_table_of_values_is_what_the_components_declare() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", TEXT, re.MULTILINE))
    for name in BUILTIN_REWARDS:
        component = BUILTIN_REWARDS[name]()
        if not component.is_range:
            assert rows[name] == ", ".join(f"{value:g}" for value in component.values)


def test_the_normalisation_table_is_what_the_code_does() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (`[^`]+`|\(nothing\)) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 8
    for text, cell in rows:
        assert normalize(text) == ("" if cell == "(nothing)" else cell.strip("`"))


def test_every_python_block_runs_and_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]):
    namespace: dict[str, Any] = {"__name__": "rewards_md"}
    for number, block in enumerate(blocks("python"), start=1):
        exec(compile(block, f"rewards.md block {number}", "exec"), namespace)
    assert capsys.readouterr().out in blocks("text")
    # The Search-R1 component through the scorer: every value it returns is declared.
    scorer = Scorer({"search_r1": namespace["make_search_r1"]()}, RewardSchedule.parse("search_r1"))
    assert scorer.score(namespace["episode"]).reward == 1.0


def test_the_plugin_file_of_the_page_loads_as_it_stands(tmp_path: Path) -> None:
    (source,) = (block for block in blocks("python") if block.startswith("# search_r1.py"))
    path = tmp_path / "search_r1.py"
    path.write_text(source, encoding="utf-8")
    registry = load_plugins([str(path)], entry_points=False)
    component = registry.get("reward", "search_r1").make()
    assert component.values == (0.0, 0.1, 0.2, 0.8, 1.0)
