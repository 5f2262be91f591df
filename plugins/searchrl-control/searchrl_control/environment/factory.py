"""The factory of `--env retrieval-control`: the settings that a configuration may write.

Owns their types, which a configuration is checked against, and how a language model gets the
environment: in words. In Python, `RetrievalControlEnv` takes objects as well.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.envs import TextAdapter
from searchrl_control.collections.judged import SEED, TRAIN_SHARE
from searchrl_control.environment.actions import PUBLISHED
from searchrl_control.environment.env import MAX_STEPS, NDCG, STEP_COST, RetrievalControlEnv
from searchrl_control.environment.measures import CUTOFF
from searchrl_control.environment.worlds import CLASSICAL, ENV
from searchrl_control.generation.difficulty import ANY

_OF_THE_RUN = ("protocol", "retriever")


def make_env(
    *,
    protocol: TagProtocol,
    retriever: RetrieverFactory,
    collection: str = "demo",
    data: str | None = None,
    hub: bool = False,
    actions: str = PUBLISHED,
    max_steps: Annotated[int, Field(ge=1)] = MAX_STEPS,
    topk: Annotated[int, Field(ge=1)] = CUTOFF,
    step_cost: Annotated[float, Field(ge=0)] = STEP_COST,
    reward: str = NDCG,
    difficulty: str = ANY,
    split_seed: int = SEED,
    train_share: Annotated[float, Field(gt=0, lt=1)] = TRAIN_SHARE,
    split_file: str | None = None,
    encoder: str = "static",
    model: str | None = None,
    reformulator: str = CLASSICAL,
    url: str | None = None,
    endpoint_model: str | None = None,
    policy: str | None = None,
    cache: str | None = None,
    render_mode: str | None = "ansi",
) -> TextAdapter:
    """The environment in words; see `RetrievalControlEnv` and `Place` for the settings.

    A language model is shown the rendering: titles and texts, and not numbers.
    """
    settings = {name: said for name, said in locals().items() if name not in _OF_THE_RUN}
    env = RetrievalControlEnv(**settings)
    return TextAdapter(
        env,
        protocol=protocol,
        name=ENV,
        action_names=list(env.action_names),
        max_turns=env.max_steps,
    )
