"""Checks of networks of choices: the ledger, the mask, the ratio, gradients, updates, a saved one.

The trainer's numbers are computed as the learner computes them, the sampler's are those that it
gave. Weights that are moved for the moment are put back bit for bit. Shapes: N trained choices.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from searchrl.core.excerpt import Excerpt, take_excerpt
from searchrl.core.trajectory import Trajectory, View
from searchrl.engine.checks.choices import ChoiceCase, Pair
from searchrl.engine.checks.report import Verdict, failed, passed, skipped, warned
from searchrl.engine.checks.weights import moved_weights

NO_CHOICE = "no action was chosen in the trial"
_SHOWN = 4
"""Names of parameters in a message."""


def check_choices(case: ChoiceCase) -> Verdict:
    """Whether a ledger holds what the sampler was shown and what it chose, in order."""
    fix = "The driver of choices changed it on its way into the ledger: report it"
    for one in case.trial.played:
        ledger = one.trajectory
        columns = (
            ("the action", list(ledger.ids), one.stream),
            ("the log-prob", list(ledger.sampler_logps), one.logps),
            ("what was seen", list(ledger.views), [draw.seen[-1] for draw in one.draws]),
            (
                "how probable each action was",
                list(ledger.probs),
                [d.chose.probs for d in one.draws],
            ),
        )
        for what, kept, drawn in columns:
            if kept == drawn:
                continue
            pairs = enumerate(zip(kept, drawn, strict=False))
            place = next((n for n, (a, b) in pairs if a != b), min(len(kept), len(drawn)))
            says = f"{what} of choice {place} in the ledger is not that of the sampler"
            return failed(says, fix, _excerpt(case, ledger, place))
        for place, draw in enumerate(one.draws):
            if draw.seen != ledger.views[: place + 1]:
                says = f"choice {place} was made from other views than those before it"
                return failed(says, fix, _excerpt(case, ledger, place))
    if not case.trial.played:
        return skipped(NO_CHOICE)
    count = sum(len(one.stream) for one in case.trial.played)
    return passed(f"{count:,} choices are those of the sampler", {"choices": count})


def check_masks(case: ChoiceCase) -> Verdict:
    """Whether an update takes out the actions that were taken out of the draw, and no other.

    No ledger takes an action that its own view forbids (`Trajectory.append_model`).
    """
    names = case.subject.policy.space.actions
    for pair in case.pairs:
        legal = list(pair.view.legal)
        for what, found in (
            ("the layout of an update", pair.legal_A.tolist()),
            ("the log-probs of an update", (~pair.trainer_A.isneginf()).tolist()),
        ):
            if found == legal:
                continue
            number = next(n for n, (a, b) in enumerate(zip(found, legal, strict=True)) if a != b)
            allows = "can" if found[number] else "cannot"
            return failed(
                f"by {what}, action '{names[number]}' {allows} be chosen at choice {pair.place}, "
                "and in the draw it was the other way round: the ratio is then not 1",
                "The mask of the ledger must be used, and by masked_logps alone: report it",
                _show(case, pair),
            )
    if not case.pairs:
        return skipped(NO_CHOICE)
    taken = sum(pair.view.legal.count(False) for pair in case.pairs)
    figures = {"choices": len(case.pairs), "illegal": taken}
    says = f"{len(case.pairs):,} choices have the mask of their draw ({taken:,} illegal actions)"
    return passed(says, figures)


def check_heat(case: ChoiceCase) -> Verdict:
    """Whether sampler and trainer divide logits by the temperature of the configuration."""
    asked, sampler = case.subject.temperature, case.subject.sampler.chooser.temperature
    trainer = case.subject.learner.temperature
    figures = {"sampler": sampler, "trainer": trainer}
    if sampler == trainer == asked:
        return passed(f"choices are drawn and trained at temperature {asked:g}", figures)
    return failed(
        f"choices are drawn at temperature {sampler:g} and trained at {trainer:g}, and "
        f"rollout.temperature is {asked:g}",
        "All three must be the same: report it",
        figures=figures,
    )


def check_ratio(case: ChoiceCase) -> Verdict:
    """Whether the ratio of every choice is exactly 1 with the weights that drew it."""
    if not case.pairs:
        return skipped(NO_CHOICE)
    sampled = [pair.trajectory.sampler_logps[pair.place] for pair in case.pairs]
    gaps = [
        float("inf") if logp is None else abs(pair.trainer - logp)
        for pair, logp in zip(case.pairs, sampled, strict=True)
    ]
    worst = max(range(len(gaps)), key=lambda n: (gaps[n] != gaps[n], gaps[n]))
    figures = {"choices": len(gaps), "largest": gaps[worst]}
    if gaps[worst] == 0:
        return passed(f"the ratio of {len(gaps):,} choices is exactly 1", figures)
    limit = case.subject.tolerance.token
    says = (
        f"sampler and trainer are {gaps[worst]:.3g} nats apart at one choice, with the weights "
        "that drew it"
    )
    if gaps[worst] <= limit:
        fix = "Leave out of the network what depends on the batch or is drawn: searchrl check NAME"
        return warned(f"{says}: the ratio is 1 up to rounding only", fix, figures)
    return failed(
        f"{says} (limit {limit:g}): the ratio does not begin at 1",
        "The other checks say what differs (mask, temperature, dropout)",
        _show(case, case.pairs[worst]),
        figures,
    )


def check_gradients(case: ChoiceCase) -> Verdict:
    """Whether every parameter of the network gets a gradient from the choices of the trial.

    With the weights a little elsewhere: where a last layer begins with zeros, the layers before it
    have none yet.
    """
    subject = case.subject
    if not any(pair.view.legal.count(True) > 1 for pair in case.pairs):
        return skipped("no choice of the trial had two legal actions")
    named = list(subject.policy.named_parameters())
    wanted = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    reached: set[str] = set()
    drawn = torch.Generator().manual_seed(subject.seed % (1 << 63))
    with moved_weights(subject.policy, subject.seed, subject.tolerance.mean):
        for batch in case.batches(case.pack()):
            with subject.learner.computing(), torch.enable_grad():
                made = subject.policy.logps(batch.layout, temperature=subject.learner.temperature)
                # One weight each: sums over a group could cancel.
                weight_N = torch.randn(made.logp_N.shape, generator=drawn).to(made.logp_N)
                loss = (weight_N * made.logp_N).sum()
                if made.value_N is not None:
                    loss = loss + (weight_N * made.value_N).sum()
                grads = torch.autograd.grad(loss, [p for _, p in wanted], allow_unused=True)
            for (name, _), grad in zip(wanted, grads, strict=True):
                if grad is not None and bool(grad.any()):
                    reached.add(name)
    without = [name for name, _ in wanted if name not in reached]
    frozen = [name for name, parameter in named if not parameter.requires_grad]
    figures = {"parameters": len(wanted), "without": len(without), "frozen": len(frozen)}
    if without:
        return failed(
            f"{len(without)} of {len(wanted)} parameters of policy '{subject.policy.name}' get no "
            f"gradient, so nothing of them is learned: {_list(without)}",
            "Look for what cuts the graph in forward() (detach, no_grad, argmax), and for parts of "
            "the observation that are always 0",
            figures=figures,
        )
    if frozen:
        return warned(
            f"{len(frozen)} parameters of policy '{subject.policy.name}' are frozen, so nothing of "
            f"them is learned: {_list(frozen)}",
            "What is frozen belongs into the observation of the environment, where it is computed "
            "once",
            figures,
        )
    return passed(f"all {len(wanted)} parameters get a gradient", figures)


def check_follows(case: ChoiceCase) -> Verdict:
    """Whether the sampler chooses with new weights once it has been told of them."""
    subject = case.subject
    policy, sampler = subject.policy, subject.sampler
    draws = [draw for one in case.trial.played for draw in one.draws[-1:]]
    if not draws:
        return skipped(NO_CHOICE)
    seen, keys = [draw.seen for draw in draws], [draw.key for draw in draws]
    before = sampler.chooser.choose(seen, keys)
    try:
        with moved_weights(policy, subject.seed, subject.tolerance.mean):
            said = sampler.sync(policy)
            chosen = sampler.chooser.choose(seen, keys)
            version = policy.version
            layout = policy.lay_out(
                [_last_of(one.seen, made.action) for one, made in zip(draws, chosen, strict=True)],
                policy.device,
            )
            with subject.learner.computing(), torch.no_grad():
                heat = subject.learner.temperature
                now = policy.logps(layout, temperature=heat).logp_N.tolist()
    finally:
        sampler.sync(policy)
    gap = max(abs(made.logp - logp) for made, logp in zip(chosen, now, strict=True))
    versions = {said, *(made.version for made in chosen)}
    figures = {"largest": gap}
    if gap <= subject.tolerance.mean and versions == {version}:
        if [made.logp for made in chosen] == [made.logp for made in before]:
            return skipped("the weights were moved, and no log-prob changed")
        return passed("after an update choices are drawn from the new weights", figures)
    return failed(
        f"after an update the sampler is {gap:.3g} nats from the new weights, and calls them "
        f"version {max(versions - {version}, default=version)} where the policy says {version}: it "
        "goes on with those of before",
        "sync() of the driver must take the weights of the policy: report it",
        figures=figures,
    )


def check_saved(case: ChoiceCase) -> Verdict:
    """Whether a policy that is written and made again says the same, to the last bit."""
    subject = case.subject
    if not case.trial.played:
        return skipped(NO_CHOICE)
    batch = next(case.batches(case.pack()))
    heat = subject.learner.temperature

    def look() -> Tensor:
        with subject.learner.computing():
            return subject.policy.distributions(batch.layout, temperature=heat)

    # Elsewhere first: a new network may begin with the weights that this one has.
    with (
        tempfile.TemporaryDirectory(prefix="searchrl-doctor-") as folder,
        moved_weights(subject.policy, subject.seed, subject.tolerance.mean),
    ):
        subject.policy.save(Path(folder))
        own_NA = look()
        again = subject.remake(Path(folder))
        with again.updating():
            again_NA = again.distributions(batch.layout, temperature=heat)
    if torch.equal(own_NA, again_NA):
        says = f"{own_NA.shape[0]:,} choices of a saved policy are the same to the last bit"
        return passed(says, {"choices": own_NA.shape[0]})
    gap_NA = torch.where(own_NA == again_NA, 0.0, (own_NA - again_NA).abs())
    return failed(
        f"a policy that was saved and made again differs by {float(gap_NA.max()):.3g} nats: a run "
        "that is resumed would go on with another one",
        "What the network needs must be in its state_dict(): parameters, or buffers that are "
        "persistent",
        figures={"largest": float(gap_NA.max())},
    )


class _Row(NamedTuple):
    """An episode whose last choice alone is looked at; see `SeenRow`."""

    views: tuple[View, ...]
    ids: list[int]
    mask: list[bool]


def _last_of(views: tuple[View, ...], action: int) -> _Row:
    before = len(views) - 1
    return _Row(views, [0] * before + [action], [False] * before + [True])


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + more


def _show(case: ChoiceCase, pair: Pair) -> Excerpt:
    decode, known = case.subject.policy.tell, {pair.place: pair.trainer}
    return take_excerpt(pair.trajectory, pair.place, decode, trainer_logps=known)


def _excerpt(case: ChoiceCase, ledger: Trajectory, place: int) -> Excerpt:
    return take_excerpt(ledger, place, case.subject.policy.tell)
