"""The built-in plugin: what SearchRL itself offers, through the same hooks as everyone else.

Every factory is registered as a lazy string, so listing names imports neither torch nor numpy.
What needs no more than a name, a factory and a description is in `assets/builtins.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from searchrl.config.packaged import EMBEDDED
from searchrl.hookspecs import Register, RegisterEnv, RegisterTool, hookimpl

PLUGIN_API = 2

_TABLE = Path(__file__).resolve().parents[1] / "assets" / "builtins.toml"


def _register_all(kind: str, register: Register) -> None:
    for name, (target, description) in tomllib.loads(_TABLE.read_text("utf-8"))[kind].items():
        register(name, f"searchrl.{target}", description=description)


@hookimpl
def register_envs(register: RegisterEnv) -> None:
    """The search environments, and a scheme for Gymnasium's own."""
    register(
        "regulations",
        "searchrl.envs.regulations:RegulationsEnv",
        expert="searchrl.envs.regulations:make_expert",
        scripts={
            "passive": "searchrl.envs.regulations:make_passive",
            "clumsy": "searchrl.envs.regulations:make_clumsy",
            "question_as_query": "searchrl.envs.regulations:make_question_as_query",
            "one_search": "searchrl.envs.regulations:make_one_search",
            "two_search_regex": "searchrl.envs.regulations:make_two_search_regex",
        },
        policies={"think-search-answer": EMBEDDED},
        description="questions on generated school handbooks; every school is new",
    )
    register(
        "corpus",
        "searchrl.envs.corpus:CorpusEnv",
        expert="searchrl.envs.scripts:make_expert",
        description="your own questions over your own texts",
    )
    register(
        "multihop",
        "searchrl.envs.corpus:MultihopEnv",
        scripts={
            "no_search": "searchrl.envs.scripts:make_no_search",
            "one_search": "searchrl.envs.scripts:make_one_search",
            "two_search": "searchrl.envs.scripts:make_two_search",
            "oracle_hop": "searchrl.envs.scripts:make_oracle_hop",
        },
        description="questions of several hops: HotpotQA, 2WikiMultihopQA, MuSiQue",
    )
    register(
        "gym:",
        "searchrl.envs.foreign:make_gym_env",
        protocol="act",
        reward="env",
        scripts={"random": "searchrl.envs.foreign:make_random"},
        is_safe="searchrl.envs.gym_ids:is_of_gymnasium",
        description="any Gymnasium environment of text or discrete spaces: gym:FrozenLake-v1",
    )


@hookimpl
def register_retrievers(register: RegisterTool) -> None:
    """BM25, and two ablations that show whether an agent reads what it finds."""
    register(
        "bm25",
        "searchrl.retrieval.bm25:BM25Retriever",
        concurrent=False,  # it computes: many at once would only all be late
        description="rank-bm25 over Unicode words and CJK bigrams",
    )
    _register_all("retriever", register)


@hookimpl
def register_protocols(register: Register) -> None:
    """The tags for searching, for acting in other environments, and for calling tools."""
    _register_all("protocol", register)


@hookimpl
def register_rewards(register: Register) -> None:
    """The reward components."""
    _register_all("reward", register)


@hookimpl
def register_judges(register: Register) -> None:
    """A judge that asks nobody."""
    _register_all("judge", register)


@hookimpl
def register_trackers(register: Register) -> None:
    """Where metrics go."""
    _register_all("tracker", register)


@hookimpl
def register_alarms(register: Register) -> None:
    """What watches a run."""
    _register_all("alarm", register)


@hookimpl
def register_algorithms(register: Register) -> None:
    """Group-relative policy gradients."""
    _register_all("algorithm", register)


@hookimpl
def register_generators(register: Register) -> None:
    """What samples tokens."""
    _register_all("generator", register)


@hookimpl
def register_commands(register: Register) -> None:
    """The subcommands of `searchrl`."""
    _register_all("command", register)
