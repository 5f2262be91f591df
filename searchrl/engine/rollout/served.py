"""Dialogues of a wrapper that serves the policy: prompts are ids, rollouts have segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchrl.contracts.serving import Rendered, Serving
from searchrl.core.episode import StopReason
from searchrl.engine.rollout.dialogue import Dialogue, Limits, RolloutRequest
from searchrl.engine.sampling.generator import Generator, Handle, mix_key


class Served:
    """Opens and continues them on one generator."""

    def __init__(self, generator: Generator, limits: Limits) -> None:
        self.generator = generator
        self.limits = limits

    def serving(self, dialogue: Dialogue, codec: Any) -> Serving:
        """The record for a wrapper that serves the policy."""
        sampling = getattr(self.generator, "sampling", None)
        limits = self.limits
        return Serving(
            dialogue.trajectory.rollout_id,
            codec,
            getattr(sampling, "temperature", 1.0),
            limits.thinking,
            limits.max_total_tokens,
            limits.env_timeout_s,
            dialogue.over,
        )

    def open(self, request: RolloutRequest, ready: Sequence[Dialogue]) -> dict[Handle, Dialogue]:
        """Open dialogues whose prompts are those of agents; equal ones are computed once."""
        live: dict[Handle, Dialogue] = {}
        for ids in dict.fromkeys(said_by(d).ids for d in ready):
            own = [d for d in ready if said_by(d).ids == ids]
            keys = [request.rng_keys[d.sample] for d in own]
            experts = [d.expert for d in own if d.expert is not None]
            handles = self.generator.open(ids, len(own), keys, experts or None)
            for dialogue, handle in zip(own, handles, strict=True):
                dialogue.trajectory.own_prompt = True
                dialogue.trajectory.append_prompt(ids)
                dialogue.segments.append(dialogue.trajectory)
                self._ask(dialogue, handle, said_by(dialogue), [])
                if dialogue.stop is None:
                    live[handle] = dialogue
                else:
                    self.generator.close(handle)
        return live

    def go_on(self, dialogue: Dialogue, handle: Handle, said: Rendered) -> Handle:
        """Ask for the turn that a wrapper wants next; returns the handle of its segment."""
        segments, number, ids = dialogue.segments, said.segment, list(said.ids)
        if number == dialogue.asked[-1]:
            dialogue.trajectory.append_env(ids)
        else:
            if number == len(segments):
                segments.append(dialogue.new_segment(said.reason))
                segments[number].append_prompt(ids)
            else:
                segments[number].append_env(ids)
            dialogue.trajectory = segments[number]
            prompt = segments[number].ids[: segments[number].num_prompt_tokens]
            # Of what it begins with, so that it is the same in whatever slot it is.
            place = sum(one.ids[: len(prompt)] == prompt for one in segments[:number])
            own = dialogue.request.rng_keys[dialogue.sample]
            key = mix_key(own, *prompt, place) if number else own
            self.generator.close(handle)
            experts = [dialogue.expert] if dialogue.expert is not None else None
            (handle,) = self.generator.open(segments[number].ids, 1, [key], experts)
            ids = []
        self._ask(dialogue, handle, said, ids)
        return handle

    def _ask(self, dialogue: Dialogue, handle: Handle, said: Rendered, ids: list[int]) -> None:
        """Submit the turn of a dialogue that is served, unless its segment is full."""
        room = self.limits.max_total_tokens - len(dialogue.trajectory)
        if room < 1:
            dialogue.stop = StopReason.TOTAL_TOKENS
            return
        dialogue.asked.append(said.segment)
        dialogue.stops = said.stops
        most = min(self.limits.max_turn_tokens, room, said.max_tokens or room)
        self.generator.submit(handle, ids, said.stops, most)


def said_by(dialogue: Dialogue) -> Rendered:
    """The prompt of a dialogue, which is rendered."""
    assert isinstance(dialogue.prompt, Rendered)
    return dialogue.prompt
