"""Dialogues in text: one rendered prompt for a group, observations, and the room for each turn.

Owns what the policy reads of an episode, and when it is asked for its next turn. `served_turns`
does the same where a wrapper makes the ids itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchrl.contracts import Context, Room
from searchrl.contracts.serving import Serving
from searchrl.core.episode import StopReason
from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.rendering import TextCodec
from searchrl.engine.rollout.dialogue import Dialogue, Limits, RolloutRequest
from searchrl.engine.sampling.generator import FinishedTurn, Generator, Handle, mix_key
from searchrl.errors import EnvironmentFailure, ProtocolFailure
from searchrl.tracing import TRACER

_TWO_PROMPTS = (
    "reset() gave two rollouts of one group different prompts; a task must be a pure function of "
    "split, index and seed"
)


class TextTurns:
    """Opens and continues dialogues on one generator."""

    observes: type = str
    """Type of a prompt, and of an observation after which the policy writes."""
    takes_cut_turns = False
    """Hand turns that the token limit cut to the environment: half a query is no action."""

    def __init__(self, generator: Generator, codec: TextCodec, limits: Limits) -> None:
        self.generator = generator
        self.codec = codec
        self.limits = limits

    def serving(self, dialogue: Dialogue) -> Serving | None:
        """The policy for a wrapper that serves it."""
        return None

    def action(self, text: str, turn: FinishedTurn) -> Any:
        """The argument of the environment's step."""
        return text

    def most(self, dialogue: Dialogue) -> int:
        """Most tokens of a segment of a dialogue; a window of words is no limit of bytes."""
        limit, window = self.limits.max_total_tokens, dialogue.request.world.window
        return min(limit, window or limit) if self.codec.end_ids else limit

    def room(self, dialogue: Dialogue) -> Room | None:
        """The room of a dialogue, for a wrapper that compacts; None: there is none."""
        if not dialogue.request.world.compacts:
            return None
        trajectory, total = dialogue.trajectory, self.limits.max_total_tokens
        most = min(total, dialogue.request.world.window or total)
        budget = self.codec.budget(most)
        ids = trajectory.segments[trajectory.current].ids
        # The byte codec has no tokens and counts words.
        num_tokens = len(ids) if self.codec.end_ids else budget.count(self.codec.decode(ids))
        of_turn = self.limits.max_turn_tokens
        return Room(num_tokens, most, of_turn if of_turn < total else 0, budget.count)

    def open(
        self, request: RolloutRequest, dialogues: Sequence[Dialogue]
    ) -> dict[Handle, Dialogue]:
        """Open the dialogues of a group and ask for their first turns; return those in flight."""
        for dialogue in dialogues:
            # The group shares one rendered prompt; another one would be answered blindly.
            if dialogue.prompt != dialogues[0].prompt:
                dialogue.fail(EnvironmentFailure(_TWO_PROMPTS))
        ready = [d for d in dialogues if d.stop is None]
        protocol = request.world.protocol
        try:
            opening = protocol.opening(request.forced) if request.forced else ""
        except ProtocolFailure as error:
            for dialogue in ready:
                dialogue.fail(error)
            return {}
        rendered = self.codec.render_prompt(
            protocol.instruction,
            ready[0].prompt,
            thinking=self.limits.thinking,
            forced_opening=opening,
        )
        for dialogue in ready:
            dialogue.prefix = "" if dialogue.turns else rendered.assistant_prefix
            dialogue.stops = request.world.stops
        if not request.branches:
            return self._open(request, ready, rendered.ids)
        live: dict[Handle, Dialogue] = {}
        for dialogue in ready:
            branch = dialogue.branch
            ids = branch.ids if branch and branch.turns else rendered.ids
            if list(ids[: len(rendered.ids)]) == list(rendered.ids):
                live |= self._open(request, [dialogue], ids)
            else:
                dialogue.fail(EnvironmentFailure(_TWO_PROMPTS))
        return live

    def _open(
        self, request: RolloutRequest, ready: Sequence[Dialogue], ids: Sequence[int]
    ) -> dict[Handle, Dialogue]:
        """Open dialogues on one prompt, which is computed once."""
        handles = self.generator.open(
            ids,
            len(ready),
            [request.rng_keys[d.sample] for d in ready],
            [d.expert for d in ready if d.expert is not None] or None,
        )
        live = {}
        for dialogue, handle in zip(ready, handles, strict=True):
            dialogue.trajectory.append_prompt(ids)
            if self._submit(dialogue, handle, []):
                live[handle] = dialogue
            else:
                self.generator.close(handle)
        return live

    def go_on(
        self,
        dialogue: Dialogue,
        turn: FinishedTurn,
        observation: Any,
        live: dict[Handle, Dialogue],
        context: Context | None = None,
    ) -> str:
        """Append an observation and ask for the next turn; return the text that was shown.

        It stands behind `context`, in a new segment, where there is one.
        """
        if turn.reason is TurnStop.EOS:
            dialogue.stop = StopReason.EOS
            return ""
        # Measured as the env's own budget is: the byte codec has no tokens and counts words.
        shown = self.codec.budget(self.limits.max_observation_tokens).fit(str(observation))
        if shown != observation:  # of an env that ignores its budget
            dialogue.signals["observations_cut"] = dialogue.signals.get("observations_cut", 0) + 1
        if context is None:
            ids = self.codec.encode_plain(shown)
            return shown if self._submit(dialogue, turn.handle, ids) else ""
        self._begin_segment(dialogue, context, shown)
        is_begun = dialogue.stop is None
        return shown if is_begun and self._reopen(dialogue, turn.handle, live) else ""

    def _begin_segment(self, dialogue: Dialogue, context: Context, shown: str) -> None:
        """Begin a segment with a context and what is shown behind it, or end the dialogue."""
        trajectory, request = dialogue.trajectory, dialogue.request
        begins_anew = context.kept[:1] == (0,)  # behind the opening that its first turn had
        protocol, forced = request.world.protocol, request.forced if begins_anew else None
        for one in context.kept:
            if isinstance(one, int) and not 0 <= one < len(trajectory.turns):
                what = f"step() put {one} into info['context'] as a turn that is kept; expected a "
                what += f"number of one so far, 0 to {len(trajectory.turns) - 1}"
                dialogue.fail(EnvironmentFailure(what))
                return
        rendered = self.codec.render_prompt(
            protocol.instruction,
            context.prompt,
            thinking=self.limits.thinking,
            forced_opening=protocol.opening(forced) if forced else "",
        )
        prompt = rendered.ids
        behind: list[int] = []
        for one in (*context.kept, shown):
            if isinstance(one, str):
                behind += self.codec.encode_plain(one)
            else:
                behind += trajectory.turn_ids(trajectory.turns[one])
        dialogue.prefix = "" if behind else rendered.assistant_prefix
        opened = self.codec.encode_model_text(rendered.assistant_prefix)
        if behind and not begins_anew and opened and prompt[-len(opened) :] == opened:
            del prompt[-len(opened) :]  # only a first turn stands behind it
        if len(prompt) + len(behind) >= self.most(dialogue):
            dialogue.stop = StopReason.TOTAL_TOKENS
            return
        trajectory.begin_segment(context.reason)
        trajectory.append_prompt([*prompt, *behind])

    def _reopen(self, dialogue: Dialogue, handle: Handle, live: dict[Handle, Dialogue]) -> bool:
        """Go on in the segment that is now the current one; False if no token is left for a turn.

        The key of its draws is that of what it begins with, so that it is the same in any slot.
        """
        self.generator.close(handle)
        del live[handle]
        trajectory = dialogue.trajectory
        number, segment = trajectory.current, trajectory.segments[trajectory.current]
        prompt, key = segment.prompt, dialogue.request.rng_keys[dialogue.sample]
        if number:
            before = trajectory.segments[:number]
            place = sum(one.ids[: len(prompt)] == prompt for one in before)
            key = mix_key(key, *prompt, place)
        experts = None if dialogue.expert is None else [dialogue.expert]
        (handle,) = self.generator.open(tuple(segment.ids), 1, [key], experts)
        if not self._submit(dialogue, handle, []):
            self.generator.close(handle)
            return False
        live[handle] = dialogue
        return True

    def _submit(self, dialogue: Dialogue, handle: Handle, append_ids: list[int]) -> bool:
        """Ask for the next turn; False (and a stop reason) when no token is left for it."""
        trajectory = dialogue.trajectory
        length = len(trajectory.segments[trajectory.current]) + len(append_ids)
        room = self.most(dialogue) - length
        if room < 1:
            dialogue.stop = StopReason.TOTAL_TOKENS
            return False
        if append_ids:
            trajectory.append_env(append_ids)
        most = min(self.limits.max_turn_tokens, room, dialogue.max_tokens or room)
        facts: Any = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": length}
        dialogue.turn_span = TRACER.start_span("chat", dialogue.trace, attributes=facts)
        self.generator.submit(handle, append_ids, dialogue.stops, most)
        return True
