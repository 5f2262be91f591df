"""`--json` is alone on standard output, whatever a plugin prints."""

import json
from pathlib import Path

import pytest
from command_line import succeed

LOUD = """
print("loud: imported")
from searchrl import hookimpl
from searchrl.envs.corpus import CorpusEnv
from searchrl.envs.scripts import make_expert
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.rewards import FunctionReward

class Loud(CorpusEnv):
    def reset(self, **more):
        print("loud: reset")
        return super().reset(**more)

class Finder(BM25Retriever):
    def search(self, queries, k):
        print("loud: search")
        return super().search(queries, k)

def score(episode):
    print("loud: scored")
    return 1.0

@hookimpl
def register_envs(register):
    print("loud: hook")
    register("loud", Loud, expert=make_expert, reward="loudly", retriever="finder")

@hookimpl
def register_rewards(register):
    register("loudly", lambda: FunctionReward("loudly", score, (0.0, 1.0)))

@hookimpl
def register_retrievers(register):
    register("finder", Finder)
"""


@pytest.fixture
def loud(own_folder: Path) -> str:
    (own_folder / "loud.py").write_text(LOUD, "utf-8")
    return "loud.py"


def test_what_a_plugin_prints_goes_to_the_other_stream(loud: str) -> None:
    flags = ("--plugin", loud, "--env", "loud", "--json")
    evaluated = succeed("eval", *flags, "--policy", "scripted", "--num-tasks", "2")
    figures = json.loads(evaluated.stdout)
    assert figures["reward"]["value"] == 1.0
    assert figures["loudly"]["n"] == 2, "what a plugin scores is a figure like those built in"
    for part in ("imported", "hook", "reset", "search", "scored"):
        assert f"loud: {part}" in evaluated.stderr
    played = succeed("play", *flags, "--index", "0", typed="a 1\n")
    assert json.loads(played.stdout)["reward"] == 1.0
    planned = succeed("train", *flags, "--model", "tiny", "--dry-run")
    assert json.loads(planned.stdout)["config"]["tasks"][0]["reward"] == "loudly"
    listed = succeed("--plugin", loud, "plugins", "--json")
    assert "loud" in json.loads(listed.stdout)["kinds"]["env"]
