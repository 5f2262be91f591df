"""Criteria of generators: G1 to G4, over turns of the embedded model. They import torch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from searchrl.config.sections import ModelConfig
from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.loading import load_policy, resolve_device, resolve_model
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.tolerance import tolerance_of
from searchrl.engine.sampling.generator import FinishedTurn, Handle, Sampling
from searchrl.testing.criteria import Problem, criterion, find_missing
from searchrl.testing.kit.subject import Subject

PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17], [18])
"""Prompts of unequal length, so that a batch of them is padded."""
SAMPLING = Sampling(temperature=1.3)
"""Not 1, so that log-probs of another temperature are seen."""


@functools.cache
def _load() -> Policy:
    model, device = ModelConfig(name="tiny", adapter="full"), resolve_device("auto")
    return load_policy(model, resolve_model("tiny", device), device, trainable=True)


class Table:
    """A generator on a copy of the embedded model, and turns that are played to their end."""

    def __init__(self, subject: Subject, eos_ids: frozenset[int] = frozenset()) -> None:
        self.policy = copy.deepcopy(_load())
        # Else a token that is never sampled, so that turns are long.
        self.policy.eos_ids = eos_ids or frozenset({self.policy.vocab_size - 1})
        self.made: Any = subject.make(self.policy, SAMPLING, num_slots=2, max_length=256)
        self.poll = getattr(self.made, "poll", None)  # where most faults are

    def play(
        self,
        prompts: Sequence[Sequence[int]],
        keys: Sequence[int],
        stops: Sequence[str] = (),
        max_tokens: int = 12,
    ) -> list[FinishedTurn]:
        """One turn of each prompt."""
        pairs = zip(prompts, keys, strict=True)
        handles = [self.made.open(prompt, 1, [key])[0] for prompt, key in pairs]
        for handle in handles:
            self.made.submit(handle, [], stops, max_tokens)
        return self.finish(handles)

    def finish(self, handles: Sequence[Handle], *, is_last: bool = True) -> list[FinishedTurn]:
        """The turns that were asked for; `is_last` closes each dialogue with its turn."""
        done: dict[Handle, FinishedTurn] = {}
        while turns := self.made.poll():
            done |= {turn.handle: turn for turn in turns}
            for turn in turns if is_last else ():
                self.made.close(turn.handle)
        return [done[handle] for handle in handles]

    def judge_logps(self, prompt: Sequence[int], turn: FinishedTurn) -> Iterator[Problem]:
        """Compare the log-probs of a turn with those of one forward pass over its ids."""
        if turn.error is not None or not turn.ids:
            yield Problem(f"a turn without tokens ({turn.error or turn.reason})", self.poll)
            return
        ids = [*prompt, *turn.ids]
        with torch.inference_mode(), self.policy.evaluating():
            logits_TV = self.policy.model(torch.tensor([ids], device=self.policy.device)).logits[0]
        logp_TV = torch.log_softmax(logits_TV.float() / SAMPLING.temperature, dim=-1)
        expected = [float(logp_TV[i - 1, ids[i]]) for i in range(len(prompt), len(ids))]
        if turn.logps is None or len(turn.logps) != len(expected):
            given = "no log-probs" if turn.logps is None else f"{len(turn.logps)} log-probs"
            yield Problem(f"{given} for {len(expected)} sampled tokens", self.poll)
            return
        gaps = [abs(a - b) for a, b in zip(turn.logps, expected, strict=True)]
        if not max(gaps) <= tolerance_of(self.policy.dtype).token:  # nan, too
            what = f"a log-prob is {max(gaps):.3g} nats from that of the policy's forward pass"
            yield Problem(what, self.poll)


@criterion("G1")
def _gives_what_it_sampled(subject: Subject) -> Iterator[Problem]:
    table = Table(subject)
    if missing := [*find_missing(table.made, "open", "submit", "poll", "close", "sync")]:
        yield from missing
        return
    for prompt, turn in zip(PROMPTS, table.play(PROMPTS, range(4)), strict=True):
        yield from table.judge_logps(prompt, turn)
    (handle,) = table.made.open([5], 1, [0])
    table.made.submit(handle, [], (), 3)
    table.made.close(handle)
    if turns := table.made.poll():
        yield Problem(f"{len(turns)} turns of a dialogue that was closed", table.poll)


@criterion("G2")
def _ends_turns(subject: Subject) -> Iterator[Problem]:
    free = Table(subject).play(PROMPTS[:1], [3], max_tokens=40)[0].ids
    table = Table(subject)
    decode = table.policy.renderer.decode
    cut = len(free) // 2
    # Across a seam of two tokens.
    stop = decode(free[:cut])[-1:] + decode(free)[len(decode(free[:cut])) :][:1]
    length = next(n for n in range(1, len(free) + 1) if stop in decode(free[:n]))
    wanted = {
        "at most 5 tokens": ((), 5, free[:5], TurnStop.MAX_TOKENS),
        f"the stop string {stop!r}": ((stop,), 40, free[:length], TurnStop.STOP_STRING),
    }
    for what, (stops, most, ids, reason) in wanted.items():
        (turn,) = table.play(PROMPTS[:1], [3], stops, most)
        if (turn.ids, turn.reason) != (ids, reason):
            told = f"{len(turn.ids)} tokens, {turn.reason}; expected {len(ids)}, {reason}"
            yield Problem(f"a turn with {what} has {told}", table.poll)
    table = Table(subject, frozenset({free[4]}))
    (turn,) = table.play(PROMPTS[:1], [3])
    if turn.ids != free[: free.index(free[4]) + 1] or turn.reason is not TurnStop.EOS:
        told = f"{len(turn.ids)} tokens, {turn.reason}; expected {free.index(free[4]) + 1}, eos"
        yield Problem(f"a turn with an end-of-message token has {told}", table.poll)


@criterion("G3")
def _draws_by_key(subject: Subject) -> Iterator[Problem]:
    table = Table(subject)
    first, other, again = table.play([PROMPTS[0]] * 3, [1, 2, 1])
    if first.ids != again.ids:
        yield Problem("two dialogues with one prompt and one key have different tokens", table.poll)
    if first.ids == other.ids:
        yield Problem("two dialogues with different keys have the same tokens", table.poll)
    (handle,) = table.made.open(PROMPTS[0], 1, [1])
    table.made.submit(handle, [], (), 5)
    (begun,) = table.finish([handle], is_last=False)
    table.made.submit(handle, [40, 41], (), 6)
    (continued,) = table.finish([handle])
    (whole,) = table.play([[*PROMPTS[0], *begun.ids, 40, 41]], [1], max_tokens=6)
    if continued.ids != whole.ids:
        what = "a turn after an observation is not what one long prompt with that key gives"
        yield Problem(what, table.poll)


@criterion("G4")
def _takes_new_weights(subject: Subject) -> Iterator[Problem]:
    table = Table(subject)
    table.play(PROMPTS[:1], [1])
    with torch.no_grad():
        for parameter in table.policy.parameters:
            parameter.mul_(1.3)
    table.policy.version = 3
    version = table.made.sync(table.policy)
    (turn,) = table.play(PROMPTS[:1], [1])
    if {version, turn.version} != {3}:
        what = f"sync with version 3 returns {version}, and a turn after it has {turn.version}"
        yield Problem(what, table.made.sync)
    yield from table.judge_logps(PROMPTS[0], turn)
