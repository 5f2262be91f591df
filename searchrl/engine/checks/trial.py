"""The trial: a few short episodes through the real generator, environments and rollout driver.

Owns what is recorded beside the ledger: the ids that the generator was given and gave back, what
was rendered and encoded, and the distributions that tokens were drawn from. Checks compare the
ledger with these records. A turn ends after a few tokens and goes to the environment all the same,
so that observations follow. Nothing is scored. What a trial of choices is, is in `choices`, which
uses the requests from here. Callers: `doctor`, `choices`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from searchrl.contracts import TokenBudget
from searchrl.core.episode import Episode, Failure
from searchrl.core.group import Group, TrainItem
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.episodes.dialogue import Dialogue, RolloutRequest
from searchrl.engine.episodes.playing import Rollout
from searchrl.engine.episodes.rollout import RolloutDriver
from searchrl.engine.episodes.world import TaskWorld
from searchrl.engine.model.rendering import RenderedPrompt, TextCodec
from searchrl.engine.sampling.generator import (
    Experts,
    FinishedTurn,
    Generator,
    Handle,
    mix_key,
)
from searchrl.rewards.scorer import ScoredEpisode

_RECORD_BYTES = 1 << 28
"""Most memory of the recorded distributions."""
_KEY_MASK = (1 << 62) - 1
"""Keys of a trial fit a signed integer, as generators hold them."""


class Size(NamedTuple):
    """How much is played."""

    num_prompts: int
    """Of each task world."""
    group_size: int
    num_turns: int
    turn_tokens: int


class DrawRecord:
    """Keeps the distributions that tokens are drawn from, while it is open (`DrawWatch`)."""

    def __init__(self) -> None:
        self.is_open = False
        self.rows: dict[tuple[int, int], Tensor] = {}
        """Log-probs of the whole vocabulary by (key of the dialogue, place of the token)."""

    def see(self, logits_BV: Any, log_sum_B: Any, key_B: Any, position_B: Any) -> None:
        """See `DrawWatch.see`."""
        if not self.is_open:
            return
        logp_BV = (logits_BV - log_sum_B[:, None]).float().cpu()
        room = _RECORD_BYTES // (4 * logp_BV.shape[1])
        places = zip(key_B.tolist(), position_B.tolist(), strict=True)
        for place, logp_V in zip(places, logp_BV, strict=True):
            if len(self.rows) < room:
                self.rows[place] = logp_V

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Begin anew, and stop at the end; the rows stay until the next beginning."""
        self.rows, self.is_open = {}, True
        try:
            yield
        finally:
            self.is_open = False


class RecordingGenerator:
    """Hands everything on to a generator, keeps the ids that pass, and shortens turns.

    A turn that reaches `turn_tokens` counts as ended by a stop string, so that the environment
    gets it; the last turn of a dialogue counts as cut, which ends the episode.
    """

    def __init__(self, inner: Generator, size: Size) -> None:
        self.inner = inner
        self.size = size
        self.streams: dict[int, list[int]] = {}
        """All ids of a dialogue, by its key."""
        self.logps: dict[int, list[float]] = {}
        """The log-probs that the generator reported, turn after turn, by the key."""
        self._keys: dict[Handle, int] = {}
        self._num_turns: dict[Handle, int] = {}

    def open(
        self, prompt_ids: Sequence[int], n: int, rng_keys: Sequence[int], experts: Experts = None
    ) -> list[Handle]:
        """See `Generator.open`."""
        handles = self.inner.open(prompt_ids, n, rng_keys, experts)
        for handle, key in zip(handles, rng_keys, strict=True):
            self._keys[handle], self._num_turns[handle] = key, 0
            self.streams[key], self.logps[key] = list(prompt_ids), []
        return handles

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """See `Generator.submit`."""
        self.streams[self._keys[handle]] += append_ids
        self.inner.submit(handle, append_ids, stops, min(max_tokens, self.size.turn_tokens))

    def poll(self) -> list[FinishedTurn]:
        """See `Generator.poll`."""
        return [self._take(turn) for turn in self.inner.poll()]

    def _take(self, turn: FinishedTurn) -> FinishedTurn:
        key = self._keys[turn.handle]
        self.streams[key] += turn.ids
        self.logps[key] += turn.logps or ()
        self._num_turns[turn.handle] += 1
        if self._num_turns[turn.handle] >= self.size.num_turns:
            return replace(turn, reason=TurnStop.MAX_TOKENS)
        if turn.reason is TurnStop.MAX_TOKENS:
            return replace(turn, reason=TurnStop.STOP_STRING)
        return turn

    def close(self, handle: Handle) -> None:
        """See `Generator.close`."""
        self.inner.close(handle)

    def sync(self, policy: Any) -> int:
        """See `Generator.sync`."""
        return self.inner.sync(policy)


class Rendering(NamedTuple):
    """A prompt that was rendered: from what, and to what."""

    instruction: str
    user_text: str
    made: RenderedPrompt


@dataclass(slots=True)
class RecordingCodec:
    """A text codec that hands everything on and keeps the prompts that were rendered."""

    inner: TextCodec
    renderings: list[Rendering] = field(default_factory=list)

    def render_prompt(
        self, instruction: str, user_text: str, *, thinking: bool = True, forced_opening: str = ""
    ) -> RenderedPrompt:
        """See `TextCodec.render_prompt`."""
        made = self.inner.render_prompt(
            instruction, user_text, thinking=thinking, forced_opening=forced_opening
        )
        self.renderings.append(Rendering(instruction, user_text, made))
        return made

    def encode_plain(self, text: str) -> list[int]:
        """See `TextCodec.encode_plain`."""
        return self.inner.encode_plain(text)

    def encode_model_text(self, text: str) -> list[int]:
        """See `TextCodec.encode_model_text`."""
        return self.inner.encode_model_text(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See `TextCodec.decode`."""
        return self.inner.decode(ids)

    def budget(self, max_tokens: int) -> TokenBudget:
        """See `TextCodec.budget`."""
        return self.inner.budget(max_tokens)


class Unscored:
    """Mixed into a driver, it plays and does not score: a judge may be slow, or cost money."""

    def _score(
        self,
        requests: Sequence[RolloutRequest],
        dialogues: Sequence[Sequence[Dialogue]],
        episodes: Sequence[Sequence[Episode]],
    ) -> list[Group[Rollout]]:
        nothing = ScoredEpisode(None, unscored="a trial")
        return [
            Group(
                request.group_id,
                tuple(
                    Rollout(d.trajectory, episode, nothing, request.world, {})
                    for d, episode in zip(group, played, strict=True)
                ),
            )
            for request, group, played in zip(requests, dialogues, episodes, strict=True)
        ]


class _UnscoredDriver(Unscored, RolloutDriver):
    """A rollout driver that plays and does not score."""


@dataclass(frozen=True, slots=True)
class Played:
    """One episode of the trial: its rollout and what was recorded beside its ledger."""

    rollout: Rollout
    key: int
    stream: list[int]
    logps: list[float]

    @property
    def trajectory(self) -> Trajectory:
        """Its ledger."""
        return self.rollout.trajectory

    @property
    def world(self) -> TaskWorld:
        """Its task world."""
        return self.rollout.world


@dataclass(frozen=True, slots=True)
class Trial:
    """What was played: episodes in which something was sampled; the others' failures."""

    played: tuple[Played, ...]
    failures: tuple[str, ...]

    @property
    def groups(self) -> list[Group[TrainItem]]:
        """The episodes as a learner takes them, with rewards that differ."""
        groups: dict[str, list[TrainItem]] = {}
        for number, one in enumerate(self.played):
            items = groups.setdefault(one.trajectory.group_id, [])
            items.append(TrainItem(one.trajectory, float(number % 2)))
        return [Group(name, tuple(items)) for name, items in groups.items()]


@dataclass(frozen=True, slots=True)
class TextTrial(Trial):
    """What a language model played, and what was recorded of its prompts and draws."""

    renderings: tuple[Rendering, ...]
    draws: DrawRecord


def make_requests(worlds: Sequence[TaskWorld], size: Size, seed: int) -> list[RolloutRequest]:
    """The episodes of a trial: some tasks of every world, spread over its training split."""
    return [
        RolloutRequest(
            group_id=f"trial/task{place}/prompt{number}",
            world=world,
            split="train",
            index=number * world.num_tasks("train") // size.num_prompts,
            rng_keys=tuple(
                mix_key(seed, place, number, sample) & _KEY_MASK
                for sample in range(size.group_size)
            ),
        )
        for place, world in enumerate(worlds)
        for number in range(size.num_prompts)
    ]


def tell_failure(failure: Failure) -> str:
    """A failure of an episode, in words."""
    return f"{failure.kind} failure of {failure.owner}: {failure.message}"


def play_trial(
    driver: RolloutDriver, worlds: Sequence[TaskWorld], draws: DrawRecord, size: Size, seed: int
) -> TextTrial:
    """Play the first turns of a few episodes of every world.

    Args:
        driver: the sampler of a run; its generator and its limits are used, not its scoring.
        worlds: the tasks.
        draws: what watches the draws of the generator.
        size: how much.
        seed: of everything drawn.
    """
    generator = RecordingGenerator(driver.generator, size)
    codec = RecordingCodec(driver.codec)
    player = _UnscoredDriver(generator, codec, driver.limits, driver.deterministic)
    requests = make_requests(worlds, size, seed)
    with draws.recording():
        groups = player.run(requests)
    played, failures = [], []
    for request, group in zip(requests, groups, strict=True):
        for key, rollout in zip(request.rng_keys, group.rollouts, strict=True):
            if (failure := rollout.episode.failure) is not None:
                failures.append(tell_failure(failure))
            if rollout.trajectory.num_model_tokens:
                stream, logps = generator.streams[key], generator.logps[key]
                played.append(Played(rollout, key, stream, logps))
    return TextTrial(tuple(played), tuple(failures), tuple(codec.renderings), draws)


def drawn_rows(
    draws: DrawRecord, key: int, places: Sequence[int]
) -> tuple[list[int], Tensor | None]:
    """Which of some places of a dialogue have a recorded distribution, and these [N, V]."""
    known = [number for number, place in enumerate(places) if (key, place) in draws.rows]
    if not known:
        return [], None
    return known, torch.stack([draws.rows[key, places[number]] for number in known])
