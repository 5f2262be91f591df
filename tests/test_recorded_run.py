"""The front pages show one recorded run: its files, the pages and the pictures agree.

`python docs/record_run.py RUN` makes a run the recorded one; docs/recorded_run/ holds its files.
"""

import gzip
import re
import sys
from hashlib import sha256
from pathlib import Path

import pytest

import searchrl
from searchrl.engine.rollout.worlds import name_defaults
from searchrl.plugins import load_plugins
from searchrl.programs.setup.planning import plan_run

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "docs"))

import record_run  # noqa: E402
import recorded_pages  # noqa: E402
from recorded import COLLAPSED, RECORD, Recorded  # noqa: E402

RUN = Recorded()
RENDERED = recorded_pages.render(RUN)
MAIN_COMMAND = {"env": "regulations", "reward": "format+em", "model": "tiny"}
AGAIN = "record the run again: see docs/record_run.py"


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.name)
def test_pages_and_pictures_are_those_of_the_recorded_run(path: Path) -> None:
    assert path.read_text("utf-8") == RENDERED[path], "run `python docs/record_run.py`"


def test_every_block_stands_in_a_page() -> None:
    texts = [page.read_text("utf-8") for page in recorded_pages.PAGES]
    found = [name for text in texts for name in re.findall(r"<!-- recorded: (\w+) -->", text)]
    assert set(found) == set(recorded_pages.BLOCKS)
    assert sum(text.count("<!-- end -->") for text in texts) == len(found)
    by_hand = re.sub(r"<!-- recorded: \w+ -->.*?<!-- end -->", "", "".join(texts), flags=re.DOTALL)
    assert not re.findall(r"(?<![\d.])[01]\.\d{3}\b", by_hand)


def test_the_summary_has_the_figures_of_the_evaluations() -> None:
    for label, metrics in (("before", RUN.before), ("after", RUN.after)):
        assert RUN.summary[label].items() <= metrics.items()
    assert RUN.summary["steps"] == len(RUN.of_phase("train")) == RUN.config["max_steps"]
    sizes = {one["metrics"]["em"]["n"] for one in RUN.heuristics.values()}
    assert sizes == {RUN.after["em"]["n"]} and RUN.after["em"]["n"] >= 256


@pytest.mark.parametrize("folder", [RECORD, COLLAPSED], ids=lambda folder: folder.name)
def test_no_recorded_file_names_a_machine(folder: Path) -> None:
    for path in (path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        assert not re.findall(r"(?<![\w.:/])/(?!/)[a-z]+/|file://", _without_tags(text)), path.name


def _without_tags(text: str) -> str:
    return re.sub(r"</?\w+>", "", text)


def test_the_recorded_run_is_that_of_todays_command_and_weights() -> None:
    today = name_defaults(plan_run(MAIN_COMMAND).config, load_plugins()).to_dict()
    apart = record_run.difference(RUN.config | {"seed": today["seed"]}, today)
    assert not apart, f"{AGAIN}; these settings are others now: {apart}"
    digest = sha256(record_run.WEIGHTS.read_bytes()).hexdigest()
    assert RUN.record["weights_sha256"] == digest, f"{AGAIN}; the weights are others now"


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUN.heuristics)
def test_the_scripted_policies_score_what_is_recorded(name: str) -> None:
    result = searchrl.evaluate(RUN.config | {"policy": f"scripted:{name}"})
    assert result.metrics["em"] == RUN.heuristics[name]["metrics"]["em"], AGAIN
