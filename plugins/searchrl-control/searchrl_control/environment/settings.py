"""The settings of the environment, and the actions by set.

Numbers 0 to 3 are the published actions, in every set. `games` has what an action does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from searchrl import ConfigError, suggest
from searchrl_control.collections.judged import SEED, TRAIN_SHARE


class Action(StrEnum):
    """An action of the agent."""

    SEARCH = "Search"
    """The single pass, by `search`. It is the first action of every episode."""
    NARROW = "Narrow"
    """The reformulator's narrower search; RM3 by default."""
    BROAD = "Broad"
    """The reformulator's broader search; fewer terms with neighbours by default."""
    TERMINATE = "Terminate"
    """The list that is there is the answer."""
    WORDS = "Words"
    """By words."""
    DENSE = "Dense"
    """By vectors."""
    FUSE = "Fuse"
    """By words and vectors."""
    FOLLOW = "Follow"
    """Half of the points for what the first three passages leave open, and links."""
    HOP = "Hop"
    """As Follow, from the passages that were kept."""


PUBLISHED, HEADS = "published", "heads"

_FIRST = (Action.SEARCH, Action.NARROW, Action.BROAD, Action.TERMINATE)
_MORE = (Action.WORDS, Action.DENSE, Action.FUSE, Action.FOLLOW, Action.HOP)

SETS: Mapping[str, tuple[Action, ...]] = {PUBLISHED: _FIRST, HEADS: (*_FIRST, *_MORE)}
"""The sets. In `published` an action changes the list that is there. In `heads` it searches in its
way, and its best new passage is kept as the next of the final list."""

Level = Literal["any", "easy", "medium", "hard", "mostly_hard"]


class EnvSettings(BaseModel):
    """Settings of `retrieval-control`."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    collection: str = "demo"
    """A folder, the name of a folder in `data`, a name of BEIR, or `demo`."""
    data: str | None = None
    """The folder of collections by name."""
    hub: bool = False
    """True: one of BEIR may be downloaded from the Hugging Face hub."""
    actions: Literal["published", "heads"] = "published"
    """The set of actions."""
    search: Literal["bm25s", "dense", "hybrid"] = "bm25s"
    """The single pass (Search): by words, by vectors, or both (as Words, Dense, Fuse)."""
    split_seed: int = SEED
    train_share: Annotated[float, Field(gt=0, lt=1)] = TRAIN_SHARE
    """Both are for the draw, where a collection has no two splits."""
    encoder: Literal["static", "dense"] = "static"
    """`dense` is a sentence-transformers model."""
    model: str | None = None
    """The encoder's: a folder, or an installed package that holds a model."""
    policy: str | None = None
    """The weights that narrow and broaden: a run, the folder of a model, or `tiny`; None: RM3 and
    neighbours, which need no model."""
    url: str | None = None
    endpoint_model: str | None = None
    """In place of `policy`: an endpoint, such as `http://localhost:8000/v1`, and its model."""
    cache: str | None = None
    """The folder of vectors, reformulations and downloads; None: the user's own."""

    max_steps: Annotated[int, Field(ge=1)] = 5
    """Actions of an episode, the first Search among them."""
    step_cost: Annotated[float, Field(ge=0)] = 0.001
    """The cost of every action but Terminate: a tenth of what one more step is worth at best; a
    larger cost would forbid them all."""
    reward: Literal["ndcg", "gain"] = "ndcg"
    """nDCG at the end, or its gain in every step (the same sum)."""
    difficulty: Level = "any"
    """The level of training tasks, by the single pass; `mostly_hard` has .7 hard ones."""


OF_EPISODES = frozenset({"max_steps", "step_cost", "reward", "difficulty"})
"""Settings that change no list: environments that differ in them alone share their memory."""

M = TypeVar("M", bound=BaseModel)


def ensure_settings(kind: type[M], settings: Mapping[str, Any], whose: str) -> M:
    """The settings as a model; raises `ConfigError` that lists all that is wrong."""
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        faults = []
        for one in error.errors():
            key = ".".join(map(str, one["loc"]))
            near = suggest(key, kind.model_fields) if one["type"] == "extra_forbidden" else ""
            faults.append(f"  {key} = {one['input']!r}: {one['msg']}.{near}")
        raise ConfigError("\n".join([f"{whose}: these settings are wrong:", *faults])) from error
