"""Checks of weights: an update reaches the sampler, and never the reference.

Trained weights are moved a little for the moment and put back bit for bit. Caller: `doctor`.
Shapes: N tokens, T tokens of a dialogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from searchrl.core.excerpt import take_excerpt
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.checks.report import Verdict, failed, passed, skipped
from searchrl.engine.checks.subject import Case, TextCase
from searchrl.engine.checks.texts import NOTHING_PLAYED
from searchrl.engine.learning.trained import TrainedPolicy
from searchrl.engine.model.layout import TokenRow, pad
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.generator import FinishedTurn, Generator, Handle

_MAX_MOVED = 1 << 24
"""Most weights that are moved (and copied): of a large model some matrices, not all."""
_SHARE, _LEAST = 0.1, 0.02
"""How far: a part of the spread of a parameter; a new adapter's B is 0, so at least so much."""
_FINE = 1e-3
"""Nats that these steps move log-probs by in any case; with coarser rounding they are larger."""
_TOKENS = 6
"""Tokens of a turn before and after an update."""
_KEYS = ((1 << 61) + 1, (1 << 61) + 2)
"""Keys of the dialogues here, apart from those of the trial."""


@contextmanager
def moved_weights(policy: TrainedPolicy, seed: int, limit: float) -> Iterator[None]:
    """Trained weights a little elsewhere, as after an update; afterwards as they were.

    `limit` is the difference of log-probs that counts as rounding: log-probs have to move further.
    """
    chosen: list[Tensor] = []
    # Every second one first: in a large model those of all layers, not only of the first.
    parameters: list[Tensor] = [*policy.parameters]
    for parameter in (*parameters[::2], *parameters[1::2]):
        if not chosen or sum(p.numel() for p in chosen) + parameter.numel() <= _MAX_MOVED:
            chosen.append(parameter)
    rng = torch.Generator().manual_seed(seed % (1 << 63))
    size = max(1.0, limit / _FINE) ** 0.5
    version = policy.version
    with torch.no_grad():
        kept = [parameter.detach().clone() for parameter in chosen]
        try:
            for parameter in chosen:
                spread = float(parameter.float().std()) if parameter.numel() > 1 else 0.0
                scale = size * max(_LEAST, _SHARE * spread)
                noise = torch.randn(parameter.shape, generator=rng) * scale
                parameter.add_(noise.to(parameter.device, parameter.dtype))
            policy.version += 1
            yield
        finally:
            for parameter, before in zip(chosen, kept, strict=True):
                parameter.copy_(before)
            policy.version = version


def check_reference(case: Case) -> Verdict:
    """Whether the reference stays where it is when the policy moves."""
    subject = case.subject
    policy, beta = subject.policy, subject.learner.loss_settings.beta
    if not case.trial.played:
        return skipped(NOTHING_PLAYED)
    if beta == 0:
        return skipped("algorithm.beta is 0: there is no reference")
    batch = next(case.batches(case.pack()))
    heat = subject.learner.temperature
    with subject.learner.computing(), torch.no_grad():

        def look() -> tuple[Tensor, Tensor]:
            own = policy.logps(batch.layout, temperature=heat).logp_N
            return own, policy.logps(batch.layout, temperature=heat, reference=True).logp_N

        own_N, ref_N = look()
        with moved_weights(policy, subject.seed, subject.tolerance.mean):
            moved_N, moved_ref_N = look()
    by_policy = float((moved_N - own_N).abs().max())
    by_reference = float((moved_ref_N - ref_N).abs().max())
    figures = {"policy_moved": by_policy, "reference_moved": by_reference}
    if not by_reference <= subject.tolerance.mean:
        is_lora = isinstance(policy, Policy) and policy.is_lora
        what = "its adapter is not off" if is_lora else "it is no copy of its own"
        return failed(
            f"the reference moves with the policy (by {by_reference:.3g} nats where the policy "
            f"moves by {by_policy:.3g}): {what}, so the KL term compares the policy with itself",
            "Report it with the versions of peft and transformers; algorithm.beta=0 does without",
            figures=figures,
        )
    is_sure = float(own_N.min()) > -subject.tolerance.mean
    if not by_policy > subject.tolerance.mean and (by_policy > 0 or is_sure):
        # A policy that has converged: no small change of its weights shows in its log-probs.
        return skipped(f"the weights were moved, and log-probs by {by_policy:.1e} nats only")
    if not by_policy > subject.tolerance.mean:
        return failed(
            "the trained weights were moved, and the policy's log-probs stayed: what is trained is "
            "not what is computed with",
            "Look at what is trained: the adapter may be off or merged",
            figures=figures,
        )
    return passed("the reference stays where it is when the policy moves", figures=figures)


def check_cache(case: TextCase) -> Verdict:
    """Whether a sampler uses new weights everywhere, keys and values of earlier tokens included."""
    subject = case.subject
    policy, generator = subject.policy, subject.sampler.generator
    if not case.trial.played:
        return skipped(NOTHING_PLAYED)
    played = case.trial.played[0]
    prompt = played.trajectory.ids[: played.trajectory.num_prompt_tokens]
    stops = played.world.protocol.stops
    observation = subject.sampler.codec.encode_plain("\n and so on \n")
    if len(prompt) + 2 * _TOKENS + len(observation) > subject.sampler.limits.max_total_tokens:
        return skipped("a prompt leaves no room for two turns")
    handles = generator.open(prompt, len(_KEYS), _KEYS)
    try:
        first = _turns(generator, handles, [], stops)
        with moved_weights(policy, subject.seed, subject.tolerance.mean):
            generator.sync(policy)
            second = _turns(generator, handles, observation, stops)
            now = [
                _logps(case, [*prompt, *a.ids, *observation], b.ids)
                for a, b in zip(first, second, strict=True)
            ]
    finally:
        for handle in handles:
            generator.close(handle)
        generator.sync(policy)
    before = [
        _logps(case, [*prompt, *a.ids, *observation], b.ids)
        for a, b in zip(first, second, strict=True)
    ]
    sampled_N = torch.tensor([logp for turn in second for logp in turn.logps or ()])
    if len(sampled_N) != len(torch.cat(now)) or not len(sampled_N):
        return skipped("the generator gives no log-probs")
    gap = float((sampled_N - torch.cat(now)).abs().mean())
    moved = float((torch.cat(before) - torch.cat(now)).abs().mean())
    figures = {"mismatch": gap, "weights_moved": moved}
    if moved <= 2 * subject.tolerance.mean:
        return skipped(f"the weights were moved, and log-probs by {moved:.1e} nats only")
    if gap <= subject.tolerance.mean:
        return passed(
            f"after an update tokens are drawn from the new weights (difference {gap:.1e} nats)",
            figures=figures,
        )
    ledger = Trajectory("two turns", "two turns")
    ledger.append_prompt(prompt)
    for turn in first[:1]:
        ledger.append_model(turn.ids, turn.logps, version=0, reason=TurnStop.STOP_STRING)
    ledger.append_env(observation)
    start = len(ledger)
    for turn in second[:1]:
        ledger.append_model(turn.ids, turn.logps, version=1, reason=TurnStop.STOP_STRING)
    known = {start + n: float(logp) for n, logp in enumerate(now[0])}
    decode = subject.sampler.codec.decode
    return failed(
        f"after an update, in the middle of a dialogue, the sampler is {gap:.3g} nats from the new "
        f"weights (the update itself moved log-probs by {moved:.3g}): it goes on with weights, or "
        "keys and values, of before",
        "A generator's sync() must drop what it computed with other weights; try --set "
        "engine.generator=hf",
        take_excerpt(ledger, start, decode, trainer_logps=known),
        figures=figures,
    )


def _turns(
    generator: Generator, handles: Sequence[Handle], append: list[int], stops: Sequence[str]
) -> list[FinishedTurn]:
    """The next turn of every dialogue, in their order."""
    for handle in handles:
        generator.submit(handle, append, stops, _TOKENS)
    turns: dict[Handle, FinishedTurn] = {}
    while len(turns) < len(handles) and (finished := generator.poll()):
        turns |= {turn.handle: turn for turn in finished}
    return [turns[handle] for handle in handles if handle in turns]


def _logps(case: TextCase, context: Sequence[int], ids: Sequence[int]) -> Tensor:
    """The trainer's log-probs of a turn behind its context."""
    mask = [False] * len(context) + [True] * len(ids)
    layout = pad([TokenRow([*context, *ids], mask, len(context))], case.subject.policy.device)
    with torch.no_grad(), case.subject.policy.evaluating():
        temperature = case.subject.learner.temperature
        return case.subject.policy.logps(layout, temperature=temperature).logp_N.cpu()
