"""Dialogues of a wrapper that serves the policy: prompts are ids, rollouts have segments."""

from __future__ import annotations

from collections.abc import Sequence

from searchrl.contracts import Context
from searchrl.contracts.serving import Rendered, SampledTurn, Serving
from searchrl.engine.rollout.dialogue import Dialogue, RolloutRequest
from searchrl.engine.rollout.text_turns import TextTurns
from searchrl.engine.sampling.generator import FinishedTurn, Handle


class ServedTurns(TextTurns):
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
        context: Context | None = None,
    ) -> str:
        """See the base; the wrapper says which segment goes on."""
        trajectory, handle, ids = dialogue.trajectory, turn.handle, list(observation.ids)
        dialogue.stops, dialogue.max_tokens = observation.stops, observation.max_tokens
        number = observation.segment
        if number == trajectory.current:
            return observation.text if self._submit(dialogue, handle, ids) else ""
        if number == len(trajectory.segments):
            trajectory.begin_segment(observation.reason)
            trajectory.append_prompt(ids)
        else:
            trajectory.current = number
            trajectory.append_env(ids)
        return observation.text if self._reopen(dialogue, handle, live) else ""
