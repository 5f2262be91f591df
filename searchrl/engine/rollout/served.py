"""Dialogues of a wrapper that serves the policy: prompts are ids, rollouts have segments."""

from __future__ import annotations

from collections.abc import Sequence

from searchrl.contracts.serving import Rendered, SampledTurn, Serving
from searchrl.engine.rollout.dialogue import Dialogue, RolloutRequest
from searchrl.engine.rollout.talk import Talk
from searchrl.engine.sampling.generator import FinishedTurn, Handle, mix_key


class Served(Talk):
    """Opens and continues them on one generator."""

    observes = Rendered
    takes_cut_turns = True

    def serving(self, dialogue: Dialogue) -> Serving:
        """See the base."""
        sampling = getattr(self.generator, "sampling", None)
        limits = self.limits
        return Serving(
            dialogue.trajectory.rollout_id,
            self.codec,
            getattr(sampling, "temperature", 1.0),
            limits.thinking,
            limits.max_total_tokens,
            limits.env_timeout_s,
            dialogue.over,
        )

    def action(self, text: str, turn: FinishedTurn) -> SampledTurn:
        """See the base."""
        return SampledTurn(text, turn.ids, turn.logps or (), turn.reason)

    def open(
        self, request: RolloutRequest, dialogues: Sequence[Dialogue]
    ) -> dict[Handle, Dialogue]:
        """See the base; prompts are those of agents, and equal ones are computed once."""
        live: dict[Handle, Dialogue] = {}
        for prompt in dict.fromkeys(dialogue.prompt for dialogue in dialogues):
            ready = [dialogue for dialogue in dialogues if dialogue.prompt == prompt]
            for dialogue in ready:
                dialogue.stops, dialogue.max_tokens = prompt.stops, prompt.max_tokens
            live |= self._open(request, ready, prompt.ids)
        return live

    def go_on(
        self,
        dialogue: Dialogue,
        turn: FinishedTurn,
        observation: Rendered,
        live: dict[Handle, Dialogue],
    ) -> str:
        """See the base; the wrapper says which segment goes on."""
        trajectory, handle, ids = dialogue.trajectory, turn.handle, list(observation.ids)
        dialogue.stops, dialogue.max_tokens = observation.stops, observation.max_tokens
        number = observation.segment
        if number != trajectory.current:
            self.generator.close(handle)
            del live[handle]
            if number == len(trajectory.segments):
                trajectory.begin_segment(observation.reason)
                trajectory.append_prompt(ids)
            else:
                trajectory.current = number
                trajectory.append_env(ids)
            segment = trajectory.segments[number]
            prompt, key = segment.prompt, dialogue.request.rng_keys[dialogue.sample]
            if number:
                # Of what it begins with, so that it is the same in whatever slot it is.
                before = trajectory.segments[:number]
                place = sum(one.ids[: len(prompt)] == prompt for one in before)
                key = mix_key(key, *prompt, place)
            experts = None if dialogue.expert is None else [dialogue.expert]
            (handle,) = self.generator.open(tuple(segment.ids), 1, [key], experts)
            live[handle] = dialogue
            ids = []
        if self._submit(dialogue, handle, ids):
            return observation.text
        self.generator.close(handle)
        del live[handle]
        return ""
