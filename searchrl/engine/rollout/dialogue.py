"""An episode in flight: what was asked for, what has been played, what is under way.

Owns the state that the rollout driver moves from poll to poll, and the episode it ends as.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry.trace import StatusCode, set_span_in_context

from searchrl.contracts import Expert
from searchrl.contracts.playing import ExpertFactory
from searchrl.core.episode import (
    COMPACT,
    Episode,
    EpisodeTurn,
    Failure,
    FailureKind,
    StopReason,
    Task,
)
from searchrl.core.trajectory import Origin, Trajectory
from searchrl.engine.model.rendering import TextCodec
from searchrl.engine.rollout.boundary import Stepped, anonymous_task, classify
from searchrl.engine.rollout.world import Env, TaskWorld
from searchrl.engine.sampling.generator import FinishedTurn
from searchrl.envs.splits import TRAIN, VALIDATION
from searchrl.errors import ProtocolFailure
from searchrl.tool_calls import Call, Pinned
from searchrl.tracing import TRACER


@dataclass(frozen=True, slots=True)
class Limits:
    """Token and time limits of one episode."""

    max_turn_tokens: int
    max_observation_tokens: int
    max_total_tokens: int
    env_timeout_s: float | None = None
    thinking: bool = True
    step_timeout_s: float | None = None
    """Episodes that take longer are dropped."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The beginning of a rollout that another one continues: its first turns, and all tokens."""

    parent: str
    turns: tuple[EpisodeTurn, ...]
    ids: tuple[int, ...]
    num_tokens: int
    """Tokens that the model wrote in these turns."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Ask for episodes of one prompt instance: one for each key that has not been played.

    `split` and `index` are those of the world (`TaskWorld.num_tasks`). `options` are passed to the
    env's reset besides them. `forced` names an action kind to which the first turn is committed by
    its opening tag. `script` is the scripted policy for a scripted generator. `has_logps` is off
    where the generator samples, but cannot say how probable its tokens were. `difficulty` is the
    key of the level that plays it (`TaskWorld.levels`), None for the last one. With `branches`, the
    last keys are theirs, and the others were played before.
    """

    group_id: str
    world: TaskWorld
    split: str
    index: int | None
    rng_keys: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    forced: str | None = None
    script: ExpertFactory | None = None
    step: int = 0
    has_logps: bool = True
    difficulty: Any = None
    branches: tuple[Branch, ...] = ()

    @property
    def samples(self) -> range:
        """The numbers of the episodes in the group."""
        num_played = len(self.rng_keys) - len(self.branches) if self.branches else 0
        return range(num_played, len(self.rng_keys))

    @property
    def origin(self) -> Origin:
        """Without log-probs, a turn is a demonstration, whoever wrote it."""
        is_sampled = self.script is None and self.has_logps
        return Origin.SAMPLED if is_sampled else Origin.DEMONSTRATION

    @property
    def home(self) -> TaskWorld:
        """The world whose environment plays it."""
        return self.world.levels.get(self.difficulty, self.world)

    @property
    def reset_options(self) -> dict[str, Any]:
        """Options for the env's reset, besides the seed."""
        if self.index is None:
            return {"split": self.split, **self.options}
        split, index = self.home.locate(self.split, self.index)
        return {"split": split, **self.options, "index": index}

    @property
    def env_seed(self) -> int:
        """Seed for the env's reset: one for the whole group, from 0 to 2**31.

        No seed is in two splits: an env that draws its tasks from it alone can be validated, too.
        """
        splits = (TRAIN, VALIDATION)
        place = splits.index(self.split) if self.split in splits else len(splits)
        return (place << 29) + self.rng_keys[0] % (1 << 29)


class Dialogue:
    """One episode in flight."""

    def __init__(self, request: RolloutRequest, sample: int) -> None:
        self.request = request
        self.sample = sample
        self.env: Pinned[Env] | None = None
        self.task: Task | None = None
        self.prompt: Any = ""
        """Text, or what a wrapper made that serves the policy (`Rendered`)."""
        self.prefix = ""
        self.expert: Expert | None = None
        self.stops: Sequence[str] = ()
        self.max_tokens: int | None = None
        """Limit of a turn; None: that of the run."""
        self.answer: str | None = None
        """The answer as the environment read it."""
        self.turns: list[EpisodeTurn] = []
        self.signals: dict[str, float] = {}
        self.env_return = self.cut_reward = 0.0
        self.stop: StopReason | None = None
        self.over: Future[None] = Future()
        """Done when nobody plays it any more."""
        self.failure: Failure | None = None
        self.trajectory = Trajectory(
            rollout_id=f"{request.group_id}/{sample}",
            group_id=request.group_id,
            env=request.world.name,
            origin=request.origin,
        )
        self.branch: Branch | None = None
        if request.branches:
            self.branch = branch = request.branches[sample - request.samples.start]
            self.turns = [*branch.turns]
            self.trajectory.parent, self.trajectory.num_kept = branch.parent, len(branch.turns)
            self.trajectory.num_kept_tokens = branch.num_tokens
        forced = "_forced" if request.forced else ""
        self.row = f"{forced}.{request.step}/{self.trajectory.rollout_id}"
        """The name of its row, without the phase."""
        facts: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": request.world.name,
            "gen_ai.conversation.id": self.row,
        }
        name = f"invoke_agent {request.world.name}"
        self.span = self.turn_span = TRACER.start_span(name, attributes=facts)
        self.trace = set_span_in_context(self.span)

    def end_spans(self) -> None:
        """End those of a turn under way and of the episode, if they are not over."""
        for span in (one for one in (self.turn_span, self.span) if one.is_recording()):
            if self.failure is not None:
                span.set_attribute("error.type", self.failure.kind)
                span.set_status(StatusCode.ERROR, self.failure.message)
            span.end()

    def fail(self, error: BaseException) -> None:
        """End it because something in it failed; its environment is not used again."""
        world = self.request.world
        player = f"script of {world.who['env']}"
        player = player if self.request.script else "generator"
        self.failure = classify(error, world, player)
        self.stop = StopReason.FAILED
        self.env = None

    def freeze(self, codec: TextCodec) -> Episode:
        """The episode as rewards will see it."""
        if self.stop is None:
            error = "RuntimeError: the generator lost this dialogue"
            self.failure = Failure(FailureKind.GENERATION, "generator", error)
            self.stop = StopReason.FAILED
        request, trajectory = self.request, self.trajectory
        trajectory.generated_text = codec.decode(trajectory.ids[trajectory.num_prompt_tokens :])
        texts = [turn.text for turn in self.turns if turn.action.kind != COMPACT]
        final_answer, format_score = self.answer, 0.0
        if not request.world.is_served:
            try:
                final_answer = request.world.protocol.final_answer(texts)
                format_score = request.world.protocol.format_score(texts)
            except ProtocolFailure as error:
                final_answer = None
                if self.failure is None:  # the first failure is the one that is told
                    self.fail(error)
        assert self.stop is not None
        return Episode(
            task=self.task or anonymous_task(request.world.name, request.reset_options, ""),
            turns=tuple(self.turns),
            final_answer=final_answer,
            format_score=format_score,
            signals=dict(self.signals),
            env_return=self.env_return,
            num_model_tokens=trajectory.num_model_tokens,
            stop_reason=self.stop,
            failure=self.failure,
            step=request.step,
        )


class ExpertAtHome(NamedTuple):
    """A scripted policy that is asked in the thread of its environment, which it may look at."""

    expert: Expert
    env: Pinned[Env]

    def act(self, observation: str) -> str:
        """See `Expert.act`."""
        return self.env.ask(lambda _: self.expert.act(observation))


class Stepping(NamedTuple):
    """A turn whose environment is stepping: its dialogue, the turn, its text and the call."""

    dialogue: Dialogue
    turn: FinishedTurn
    text: str
    call: Call[Stepped]


def release(dialogues: Sequence[Dialogue]) -> None:
    """End them, and give back the environments that did not fail; their world closes them."""
    for dialogue in dialogues:
        dialogue.over.set_result(None)
        dialogue.end_spans()
        if dialogue.env is not None:
            dialogue.request.home.release(dialogue.env)
