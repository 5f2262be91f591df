"""Shapes of the records of a run: checked when they are read.

A checksum is no signature: whoever makes a run folder can seal what no run ever wrote. Only what is
read is described. Behind the readers of this room nobody asks what a row is.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from searchrl.contracts import Metric
from searchrl.contracts.problems import MAX_REWARD, find_action_problem, find_task_problem
from searchrl.core.episode import ANSWER, SEARCH, Action, FailureKind, StopReason, Task
from searchrl.errors import show_value


class Shape(BaseModel):
    """The shape of a JSON object. Nothing is converted: the object itself is used."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class MetricRow(Shape):
    """A line of `metrics.jsonl`."""

    step: NonNegativeInt
    phase: str
    metrics: dict[str, Metric]


class AlarmRow(Shape):
    """A line of `alarms.jsonl`."""

    step: NonNegativeInt


_Number = Annotated[float, Field(ge=-MAX_REWARD, le=MAX_REWARD)]
"""A reward or a score."""
_Id = Annotated[int, Field(ge=0, lt=2**32)]
_Column = list[float | None]


class _Task(Shape):
    id: str
    split: str
    index: int
    kind: str
    slices: list[str]
    difficulty: str = ""
    question: str
    answers: list[str]
    gold_ids: list[str]
    changed_answers: list[str] = []

    @model_validator(mode="after")
    def _is_task(self) -> Self:
        if problem := find_task_problem(Task(**dict(self))):
            raise ValueError(problem)
        return self


class _Turn(Shape):
    text: str
    action: str
    queries: list[str]
    payload: JsonValue
    reason: str
    observation: str
    passages: list[str]
    reward: float
    ranks: list[dict[str, PositiveInt | None]] | None = None
    score: float | None = None

    @model_validator(mode="after")
    def _is_turn(self) -> Self:
        payload = {SEARCH: self.queries, ANSWER: ""}.get(self.action, self.payload)
        if problem := find_action_problem(Action(self.action, payload, self.reason)):
            raise ValueError(problem)
        return self


class _Failure(Shape):
    kind: Annotated[FailureKind, Field(strict=False)]
    owner: str
    message: str


class RolloutRow(Shape):
    """A line of a file of trajectories."""

    rollout_id: str
    group_id: str
    parent: str = ""
    num_kept: NonNegativeInt = 0
    origin: str
    phase: str
    step: NonNegativeInt
    env: str
    task: _Task
    ids: list[_Id]
    authors: Annotated[str, Field(pattern="^[PME]*$")]
    turn: list[int]
    policy_version: int
    sampler_logp: _Column
    ratio: _Column | None = None
    entropy: _Column | None = None
    advantage: float | _Column | None
    weight: float | _Column | None = None
    clipped: list[int] | None = None
    turns: list[_Turn]
    signals: dict[str, float] = {}
    final_answer: str | None
    stop_reason: Annotated[StopReason, Field(strict=False)]
    reward: _Number | None
    scores: dict[str, _Number]
    drawings: JsonValue = []
    unscored: str | None
    failure: _Failure | None

    @model_validator(mode="after")
    def _has_equal_columns(self) -> Self:
        columns = (self.authors, self.turn, self.sampler_logp, self.ratio, self.entropy)
        advantages = [self.advantage] if isinstance(self.advantage, list) else []
        if any(one is not None and len(one) != len(self.ids) for one in (*columns, *advantages)):
            raise ValueError("its columns differ in length")
        return self


class _Plugin(Shape):
    plugin: str
    version: str | None = None
    sha256: str | None = None


class _Process(Shape):
    host: str
    pid: int


class Provenance(Shape):
    """The facts in `provenance.json`."""

    program: str = ""
    process: _Process | None = None
    started: str = ""
    duration_s: float | None = None
    versions: dict[str, str | None] = {}
    machine: dict[str, Any] = {}
    commit: dict[str, Any] | None = None
    plugins: list[_Plugin] = []
    changes: list[Any] = []
    data: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    tasks: dict[str, Any] = {}


class Summary(Shape):
    """`summary.json`."""

    steps: NonNegativeInt | None = None
    before: dict[str, Metric] | None = None
    after: dict[str, Metric] | None = None
    eval: dict[str, Metric] | None = None


class TreeNode(Shape):
    """A node of `candidates.json`, behind its parent; `text` is what it holds."""

    id: str
    parent: str | None
    label: str
    text: str
    figures: dict[str, Metric]


def find_problem(value: object, shape: type[Shape]) -> str:
    """The first place in a value that is not of this shape, in words; "" if there is none."""
    try:
        shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = show_value(".".join(map(str, first["loc"]))) if first["loc"] else "this"
        return f"no run writes {place} like this ({first['msg']})"
    return ""
