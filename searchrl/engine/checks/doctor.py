"""The doctor: all checks of a run that is about to begin, by name and in order.

A failed check raises nothing here; `Report.ensure_good` does. Checks of texts are `texts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from searchrl.algorithms.builtin import make_grpo
from searchrl.core.excerpt import Excerpt, visible
from searchrl.engine.checks.report import Report, State, Verdict
from searchrl.engine.checks.texts import (
    check_observations,
    check_round_trip,
    check_stops,
    check_template,
)
from searchrl.engine.checks.trial import Size, Subject
from searchrl.engine.learning.batch_check import BatchCheck
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.learning.sampled import SampledTokens
from searchrl.errors import CheckError, SearchRLError

THOROUGH = Size(num_prompts=16, num_tasks=2, group_size=2, num_turns=3, turn_tokens=32)
QUICK = Size(num_prompts=1, num_tasks=1, group_size=2, num_turns=2, turn_tokens=8)
"""Sizes of the trial for `searchrl doctor`, and at the start of training."""


def examine(subject: Subject) -> Report:
    """Run all checks. Afterwards everything is as before."""
    started = time.perf_counter()
    subject.sampler.sync(subject.policy)
    done = []
    for name, (question, check) in CHECKS.items():
        began = time.perf_counter()
        try:
            verdict = check(subject)
        except SearchRLError as error:
            verdict = Verdict(State.FAILED, f"it could not be looked at: {error}")
        took_s = time.perf_counter() - began
        done.append(replace(verdict, name=name, question=question, took_s=took_s))
    return Report(tuple(done), time.perf_counter() - started)


def check_sampling(subject: Subject) -> Verdict:
    """Check that all of the distribution can be drawn."""
    sampling = subject.sampling
    if not sampling.cuts:
        return Verdict(State.PASSED, "nothing is cut (no top-k, top-p or min-p)")
    says = (
        f"sampling.{sampling.cuts} cuts what can be drawn: each token was drawn with a larger "
        "probability than its log-prob says, so every ratio is too large"
    )
    fix = "Leave it out in training"
    if sampling.allow_truncated:
        return Verdict(State.WARNED, says, f"{fix}; sampling.allow_truncated asks for it")
    return Verdict(State.FAILED, says, fix)


def check_episodes(subject: Subject) -> Verdict:
    """Check that environments could be played."""
    failures = [one.episode.failure for one in subject.rollouts if one.episode.failure]
    figures = {"episodes": len(subject.played), "failures": len(failures)}
    if not failures:
        return Verdict(State.PASSED, f"{len(subject.played)} short episodes played", "", figures)
    first = failures[0]
    # At the start of a run its limit of failures decides.
    return Verdict(
        State.WARNED if subject.size is QUICK else State.FAILED,
        f"{len(failures)} of the trial's episodes failed: {first.kind} failure of {first.owner}: "
        f"{visible(first.message)}",
        "Look at the environment: searchrl check NAME",
        figures,
    )


def check_lengths(subject: Subject) -> Verdict:
    """Check that prompts leave room for turns."""
    limits, positions = subject.sampler.limits, subject.policy.max_positions
    if not subject.prompts:
        return Verdict(State.SKIPPED, "no prompt was rendered")
    longest, total = max(len(one.made.ids) for one in subject.prompts), limits.max_total_tokens
    figures = {"longest_prompt": longest, "max_total_tokens": total}
    if total > positions:
        return Verdict(
            State.FAILED,
            f"episodes may have {total:,} tokens, and the model was made for {positions:,}",
            "Lower rollout.max_total_tokens",
            figures,
        )
    if longest >= total:
        return Verdict(
            State.FAILED,
            f"a prompt of {longest:,} tokens leaves no room for a turn: episodes end at {total:,}",
            "Raise rollout.max_total_tokens and model.max_context, or shorten the instruction",
            figures,
        )
    if longest + limits.max_turn_tokens > total:
        return Verdict(
            State.WARNED,
            f"behind a prompt of {longest:,} tokens there is room for {total - longest:,} of the "
            f"{limits.max_turn_tokens:,} tokens that a turn may have",
            "Raise rollout.max_total_tokens and model.max_context",
            figures,
        )
    least = longest + limits.max_observation_tokens + 2 * limits.max_turn_tokens
    if least > total and any(world.compacts for world in subject.worlds):
        return Verdict(
            State.WARNED,
            f"a prompt, an observation and two turns may have {least:,} tokens, and the window has "
            f"{total:,}: episodes may end there",
            "Raise the window of the wrapper, or lower rollout.max_observation_tokens",
            figures,
        )
    says = f"prompts of up to {longest:,} tokens, {total:,} in an episode"
    return Verdict(State.PASSED, says, "", figures)


def check_batch(subject: Subject) -> Verdict:
    """The checks that every batch of the run gets, on the trial."""
    policy, learner = subject.policy, subject.learner
    if not subject.played:
        return Verdict(State.SKIPPED, "no token was sampled in the trial")
    check = BatchCheck(policy.renderer.decode, subject.tolerance)
    seen, groups = SampledTokens(), subject.groups
    whole = replace(learner.loss_settings, beta=1.0)  # groups of one reward, too
    packed = pack_step(groups, make_grpo(), whole, constant=learner.constant)
    try:
        check.begin(groups, packed)
        with learner.computing(), torch.no_grad():
            for batch in micro_batches(
                packed.groups,
                learner.micro_batch_tokens,
                policy.device,
                is_packed=learner.packing_fault is None,
            ):
                logps = policy.logps(batch.layout, temperature=learner.temperature)
                seen = seen + check.look_at(batch, logps.logp_N, policy.version)
        check.conclude(seen)
    except CheckError as error:
        excerpt = error.excerpt if isinstance(error.excerpt, Excerpt) else None
        fix = "What differs is the model, the generator, or a plugin's algorithm; else report it"
        return Verdict(State.FAILED, f"{error.check}: {error.what}", fix, excerpt=excerpt)
    if not seen.num_tokens:
        return Verdict(
            State.FAILED,
            "the sampler stamps its tokens with other weights than the policy's (version "
            f"{policy.version}): what it samples is not on-policy",
            "A generator's sync() must take the policy's weights and its version",
        )
    figures = {"tokens": seen.num_tokens, "mismatch": seen.mean_gap, "mismatch_max": seen.max_gap}
    return Verdict(
        State.PASSED,
        f"{seen.num_tokens:,.0f} tokens are packed as they were sampled; mean difference of "
        f"log-probs {seen.mean_gap:.1e} nats (limit {subject.tolerance.mean:g})",
        "",
        figures | {"limit": subject.tolerance.mean, "limit_max": subject.tolerance.token},
    )


CHECKS: dict[str, tuple[str, Callable[[Subject], Verdict]]] = {
    "sampling": ("Can every token be drawn (no top-k, top-p, min-p)?", check_sampling),
    "episodes": ("Can the environments be played?", check_episodes),
    "lengths": ("Do prompts and turns fit the limits?", check_lengths),
    "template": ("Does the chat template neither strip nor insert?", check_template),
    "round_trip": ("Do thoughts, newlines and tags survive the tokenizer?", check_round_trip),
    "stops": ("Can every stop string be written, and is it found?", check_stops),
    "observations": ("Does the model read all that environments say?", check_observations),
    "batch": ("Are ids and mask right, and do sampler and trainer agree?", check_batch),
}
"""The question of each check, and the function that answers it."""
