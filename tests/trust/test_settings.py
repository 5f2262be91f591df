"""Settings of strangers: files without end, prompts, words in a model card."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from reseal import reseal

from searchrl.data import Problems
from searchrl.data.rows import read_rows
from searchrl.envs.foreign import GymAdapter
from searchrl.errors import ConfigError
from searchrl.plugins import load_plugins
from searchrl.protocols.act import ThinkAct
from searchrl.protocols.inline import load_instruction
from searchrl.runs.card import Exported, make_card
from searchrl.runs.source import Source


def test_files_without_an_end_are_not_read() -> None:
    """This device has an end, so that the test comes to one in any case."""
    problems = Problems()
    assert list(read_rows(Path("/dev/null"), problems)) == []
    assert "is a pipe or a device" in str(problems.found)
    with pytest.raises(ConfigError, match="/dev/null"):
        load_instruction("@/dev/null", "act")


@pytest.mark.parametrize(
    "place", ["{goal:>999999999}", "{goal!r}", "{goal.__class__}", "{goal[0]}"]
)
def test_prompt_takes_plain_placeholders(place: str) -> None:
    with pytest.raises(ConfigError, match="prompt"):
        GymAdapter(protocol=ThinkAct(), name="FrozenLake-v1", prompt=f"x {place}")


def test_card_shows_what_a_run_says_as_text(micro_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(micro_run, tmp_path / "run"))
    config: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    instruction = "Search.\n````\n# A heading of a stranger\n\x1b]52;c;eA==\x07"
    config["tasks"][0]["protocol"] = {"name": "think-search-answer", "instruction": instruction}
    config["tasks"][0]["wrapper"] = {"name": "altered", "change": "`; x"}
    config["model"]["instructions"] = True
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    provenance = json.loads((run / "provenance.json").read_text())
    provenance["machine"] = {"cpu": "<script>alert(1)</script> | [x](http://evil) `"}
    provenance["program"] = "train`; rm -rf ~ #"
    (run / "provenance.json").write_text(json.dumps(provenance))
    reseal(run)
    card = make_card(Source.open(run), Exported(Path("n <b> *x*"), "whole", None), load_plugins())
    assert "<script" not in card and "\\[x\\](http://evil) \\`" in card
    assert "# n &lt;b> \\*x\\*" in card and "(`searchrl train'; rm -rf ~ #`)" in card
    (set_,) = re.findall("--set (.*)`[.]$", card, re.MULTILINE)
    assert shlex.split(set_) == ["""wrapper={"name": "altered", "change": "'; x"}"""]
    assert "\x1b" not in card and "\n`````text\n" in card
