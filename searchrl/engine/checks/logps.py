"""Checks of log-probs: sampler against trainer, over the whole vocabulary.

The trainer's are computed as the learner computes them, from the packed trial; the sampler's are
those that tokens were drawn from. Caller: `doctor`. Shapes: N sampled tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from searchrl.core.excerpt import Excerpt, take_excerpt
from searchrl.engine.checks.report import Verdict, failed, passed, skipped, warned
from searchrl.engine.checks.subject import Case, Compared, TextCase
from searchrl.engine.checks.texts import NOTHING_PLAYED
from searchrl.engine.checks.trial import drawn_rows
from searchrl.engine.learning.batch_check import BatchCheck, look_at
from searchrl.engine.learning.sampled import SampledTokens
from searchrl.errors import CheckError

_RECORD_TOLERANCE = 1e-3
"""Nats between the log-prob that a sampler reports and the distribution that it drew from: both
are float32 whatever the model is."""
_SAME_TEMPERATURE = 0.02
"""Share by which temperatures may seem to differ: rounding of bfloat16 logits."""


def check_sampling(case: TextCase) -> Verdict:
    """Whether all of the distribution can be drawn."""
    sampling = case.subject.sampling
    cuts = {"top_k": (sampling.top_k, 0), "top_p": (sampling.top_p, 1.0)}
    cuts["min_p"] = (sampling.min_p, 0.0)
    named = ", ".join(
        f"{name}={value:g}" for name, (value, whole) in cuts.items() if value != whole
    )
    if not named:
        return passed("nothing is cut (no top-k, top-p or min-p)")
    says = (
        f"sampling.{named} cuts what can be drawn: each token was drawn with a larger probability "
        "than its log-prob says, so every ratio is too large"
    )
    fix = "Leave it out in training"
    if sampling.allow_truncated:
        return warned(says, f"{fix}; sampling.allow_truncated asks for it")
    return failed(says, fix)


def check_batch(case: Case) -> Verdict:
    """The checks that every batch of the run gets, on the trial."""
    subject = case.subject
    if not case.trial.played:
        return skipped(NOTHING_PLAYED)
    check = BatchCheck(subject.policy.tell, subject.tolerance)
    version, seen = subject.policy.version, SampledTokens()
    try:
        packed = case.pack()
        check.begin(case.trial.groups, packed)
        with subject.learner.computing(), torch.no_grad():
            for batch in case.batches(packed):
                logps = subject.policy.logps(batch.layout, temperature=subject.learner.temperature)
                seen = seen + look_at(batch, logps.logp_N, check, version)
        if not seen.num_tokens:
            return failed(
                f"the sampler stamps its tokens with other weights than the policy's (version "
                f"{version}): what it samples is not on-policy",
                "A generator's sync() must take the policy's weights and its version",
            )
        check.conclude(seen)
    except CheckError as error:
        excerpt = error.excerpt if isinstance(error.excerpt, Excerpt) else None
        return failed(f"{error.check}: {error.what}", "", excerpt)
    return passed(
        f"{seen.num_tokens:,.0f} tokens are packed as they were sampled; mean difference of "
        f"log-probs {seen.mean_gap:.1e} nats",
        {"tokens": seen.num_tokens, "mismatch": seen.mean_gap, "mismatch_max": seen.max_gap},
    )


def check_record(case: TextCase) -> Verdict:
    """Whether the sampler reports the log-probs of the distributions that it drew from."""
    worst, count = 0.0, 0
    for one in case.trial.played:
        ids, logps = one.trajectory.ids, one.trajectory.sampler_logps
        places = [n for n, logp in enumerate(logps) if logp is not None]
        known, rows_NV = drawn_rows(case.trial.draws, one.key, places)
        if rows_NV is None:
            continue
        places = [places[number] for number in known]
        drawn_N = rows_NV.gather(1, torch.tensor([[ids[place]] for place in places]))[:, 0]
        gap_N = (drawn_N - torch.tensor([logps[place] or 0.0 for place in places])).abs()
        count += len(places)
        worst = max(worst, float(gap_N.nan_to_num(torch.inf).max()))
        if worst > _RECORD_TOLERANCE:
            at = int(gap_N.nan_to_num(torch.inf).argmax())
            known_logps = dict(zip(places, drawn_N.tolist(), strict=True))
            return failed(
                f"the sampler reports the log-prob {logps[places[at]]:.4f} for a token that it "
                f"drew with {float(drawn_N[at]):.4f} (shown in the last column)",
                "A generator must report log-probs at the sampling temperature over the whole "
                "vocabulary, as they are: without noise, and before anything is cut",
                take_excerpt(
                    one.trajectory,
                    places[at],
                    case.subject.sampler.codec.decode,
                    trainer_logps=known_logps,
                ),
                {"largest": worst},
            )
    if not count:
        return skipped("the generator shows no distributions (it does not use draw_tokens)")
    return passed(
        f"{count:,} log-probs are those of the draws", {"tokens": count, "largest": worst}
    )


def check_agreement(case: TextCase) -> Verdict:
    """Whether sampler and trainer have one distribution at every sampled position."""
    tolerance, total, largest, count = case.subject.tolerance, 0.0, 0.0, 0
    worst: tuple[float, Compared, int] | None = None
    for one in case.compared:
        own_N = one.trainer_NV.gather(1, one.token_N[:, None])[:, 0]
        apart = float((own_N - one.trainer_N).abs().max())
        if not apart <= tolerance.token:
            return failed(
                f"the trainer's log-probs of sampled tokens are {apart:.3g} nats from its own "
                "distributions",
                "The head computes log-probs of chosen tokens in another way: report it",
            )
        never_N = (one.sampler_NV.isneginf() & one.trainer_NV.isfinite()).sum(1)
        if int(never_N.max()):
            at = int(never_N.argmax())
            return failed(
                f"{int(never_N.max()):,} tokens that the trainer gives a probability can never be "
                "drawn by the sampler",
                "Something cuts or forbids tokens in sampling; switch it off, the ratio is biased",
                _shown(case, one, at),
            )
        # The difference that a token drawn here is expected to have: all of the vocabulary counts.
        gap_NV = (one.sampler_NV - one.trainer_NV).abs()
        gap_N = torch.where(one.sampler_NV.isfinite(), one.sampler_NV.exp() * gap_NV, 0.0).sum(1)
        most, at = float(gap_N.max()), int(gap_N.argmax())
        if worst is None or not most <= worst[0]:
            worst = (most, one, at)
        total, count, largest = total + float(gap_N.sum()), count + len(gap_N), max(largest, most)
    if worst is None:
        return skipped(_why_nothing(case))
    mean = total / count
    figures = {"positions": float(count), "mean": mean, "largest": largest}
    figures |= {"limit_mean": tolerance.mean, "limit_token": tolerance.token}
    if mean <= tolerance.mean and largest <= tolerance.token:
        return passed(
            f"over the whole vocabulary at {count:,} positions log-probs differ by {mean:.1e} nats "
            f"on average (limit {tolerance.mean:g})",
            figures=figures,
        )
    return failed(
        f"sampler and trainer have different distributions: over the whole vocabulary at {count:,} "
        f"positions log-probs differ by {mean:.3g} nats on average (limit {tolerance.mean:g}), by "
        f"{largest:.3g} at one position (limit {tolerance.token:g})",
        "The other checks say what differs (temperature, cache, dropout). If only this one and "
        "'batch' fail, the sampler's forward pass is another than the trainer's: try --set "
        "engine.generator=hf; if the sampler's precision differs on purpose, set "
        "engine.max_mismatch",
        _shown(case, worst[1], worst[2]),
        figures=figures,
    )


def check_temperature(case: TextCase) -> Verdict:
    """Whether sampler and trainer divide logits by the same temperature: measured, not read."""
    trainer, asked = case.subject.learner.temperature, case.subject.temperature
    if trainer != asked:
        return failed(
            f"the trainer takes log-probs at temperature {trainer:g}, and rollout.temperature is "
            f"{asked:g}",
            "Both must be the temperature that tokens are drawn at: report it",
            figures={"measured": trainer},
        )
    product = square = before = after = 0.0
    rows = case.compared
    for one in rows:
        sampler_NV, trainer_NV = (_centred(x) for x in (one.sampler_NV, one.trainer_NV))
        product += float((sampler_NV * trainer_NV).sum())
        square += float((trainer_NV * trainer_NV).sum())
    if not rows or square == 0:
        return skipped(_why_nothing(case))
    slope = product / square
    for one in rows:
        sampler_NV, trainer_NV = (_centred(x) for x in (one.sampler_NV, one.trainer_NV))
        before += float((sampler_NV - trainer_NV).square().sum())
        after += float((sampler_NV - slope * trainer_NV).square().sum())
    measured = trainer / slope if slope else 0.0
    is_temperature = after < 0.25 * before
    if abs(slope - 1) > _SAME_TEMPERATURE and is_temperature:
        return failed(
            f"the sampler's distributions are the trainer's at another temperature: it draws at "
            f"{measured:.3g}, the trainer takes log-probs at {trainer:g}",
            "A generator must use the temperature of the `sampling` that it is given",
            _shown(case, rows[0], 0),
            figures={"measured": measured},
        )
    return passed(
        f"tokens are drawn and trained at temperature {trainer:g}", {"measured": measured}
    )


def check_dropout(case: Case) -> Verdict:
    """Whether the passes of an update are free of dropout: two of them are alike."""
    subject = case.subject
    if not case.trial.played:
        return skipped(NOTHING_PLAYED)
    batch = next(case.batches(case.pack()))
    with subject.learner.computing(), torch.no_grad():
        passes = [
            subject.policy.logps(batch.layout, temperature=subject.learner.temperature).logp_N
            for _ in range(2)
        ]
        active = [
            name
            for name, module in subject.policy.named_modules()
            if isinstance(module, nn.Dropout) and module.p > 0 and module.training
        ]
    gap = float((passes[0] - passes[1]).abs().max())
    if gap <= subject.tolerance.mean and not active:
        return passed("two passes of an update agree, no dropout is active", {"largest": gap})
    where = f": {active[0]}" if active else ""
    return failed(
        f"dropout is active in an update{where}; two passes over the same tokens differ by "
        f"{gap:.3g} nats, so the ratio is not 1 before any update",
        "Dropout belongs to sft only: report it, and set the model's dropout rates to 0",
        figures={"largest": gap},
    )


def _why_nothing(case: TextCase) -> str:
    if not case.trial.played:
        return NOTHING_PLAYED
    return "the generator shows no distributions (it does not use draw_tokens)"


def _centred(logp_NV: Tensor) -> Tensor:
    """Log-probs less their mean over the vocabulary: what a temperature multiplies."""
    finite_NV = torch.where(logp_NV.isfinite(), logp_NV, 0.0)
    return finite_NV - finite_NV.mean(1, keepdim=True)


def _shown(case: TextCase, one: Compared, number: int) -> Excerpt:
    known = dict(zip(one.places, one.trainer_N.tolist(), strict=True))
    decode = case.subject.sampler.codec.decode
    return take_excerpt(one.trajectory, one.places[number], decode, trainer_logps=known)
