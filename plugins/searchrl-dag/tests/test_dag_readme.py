"""The README names what there is: faults, settings, rewards, scripted policies."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from searchrl_dag.multisource.env import MultisourceEnv
from searchrl_dag.plans.protocol import SearchDag
from searchrl_dag.plans.reading import Fault

from searchrl import load_plugins

README = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")
PASSED = {"self", "protocol", "retriever", "render_mode", "matches"}


def first_cells(heading: str) -> set[str]:
    """What the first cells of the tables below a heading name, up to the next one of its level."""
    level = heading.partition(" ")[0]
    part = README.partition(f"\n{heading}\n")[2].partition(f"\n{level} ")[0]
    cells = re.findall(r"^\| (`.+?) \|", part, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_faults_and_settings_of_the_protocol() -> None:
    settings = set(inspect.signature(SearchDag.__init__).parameters) - PASSED
    assert first_cells("## The protocol `dag`") == {*Fault, *settings}


def test_settings_kinds_and_scripts_of_the_environment() -> None:
    settings = set(inspect.signature(MultisourceEnv.__init__).parameters) - PASSED
    named = first_cells("## The environment `multisource`")
    assert settings <= named
    scripts = set(load_plugins(["searchrl_dag"]).get("env", "multisource").script_names)
    told = set(re.findall(r"`(\w+)`", README.partition("### Scripted policies")[2]))
    assert scripts <= told


def test_rewards() -> None:
    registered = load_plugins(["searchrl_dag"]).entries()
    own = {e.name for e in registered if e.kind == "reward" and e.owner.answers_to("searchrl_dag")}
    assert own and own <= first_cells("## Rewards")
