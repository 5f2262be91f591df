"""The doctor: all checks of a run that is about to begin, by name and in order.

Owns the two tables of checks, for language models and for networks of choices, and how much is
played for them: a little at the start of every training run, more for `searchrl doctor`. A failed
check raises nothing here; `Report.ensure_good` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from searchrl.engine.checks.choices import ChoiceCase, ChoiceSubject, play_choices
from searchrl.engine.checks.logps import (
    check_agreement,
    check_batch,
    check_dropout,
    check_record,
    check_sampling,
    check_temperature,
)
from searchrl.engine.checks.networks import (
    check_choices,
    check_follows,
    check_gradients,
    check_heat,
    check_masks,
    check_ratio,
    check_saved,
)
from searchrl.engine.checks.report import Checked, Report, Verdict, failed
from searchrl.engine.checks.subject import Case, TextCase, TextSubject
from searchrl.engine.checks.texts import (
    check_eos,
    check_episodes,
    check_ledger,
    check_lengths,
    check_round_trip,
    check_stops,
    check_template,
    check_turns,
)
from searchrl.engine.checks.trial import Size, play_trial
from searchrl.engine.checks.weights import check_cache, check_reference
from searchrl.errors import SearchRLError

THOROUGH = Size(num_prompts=2, group_size=2, num_turns=3, turn_tokens=32)
QUICK = Size(num_prompts=1, group_size=2, num_turns=2, turn_tokens=8)
"""What is played for `searchrl doctor`, and at the start of training."""
MANY_CHOICES = Size(num_prompts=8, group_size=2, num_turns=8, turn_tokens=1)
FEW_CHOICES = Size(num_prompts=1, group_size=2, num_turns=3, turn_tokens=1)
"""The same for networks of choices."""

C = TypeVar("C", bound=Case)


class Check(NamedTuple, Generic[C]):
    """A check: what it is called, what it asks, and how it finds out.

    `is_quick`: it is part of the checks at the start of training. The others move weights for the
    moment, which takes several passes.
    """

    name: str
    question: str
    run: Callable[[C], Verdict]
    is_quick: bool = True


CHECKS: tuple[Check[TextCase], ...] = (
    Check("sampling", "Can every token be drawn (no top-k, top-p, min-p)?", check_sampling),
    Check("episodes", "Can the environments be played?", check_episodes),
    Check("lengths", "Do prompts and turns fit the limits?", check_lengths),
    Check("template", "Does the chat template neither strip nor insert?", check_template),
    Check("round_trip", "Do thoughts, newlines and tags survive the tokenizer?", check_round_trip),
    Check("stops", "Can every stop string be written, and is it found?", check_stops),
    Check("eos", "Is a genuine end-of-text or padding token trained?", check_eos),
    Check("ledger", "Are ids appended as sampled, never made again?", check_ledger),
    Check("turns", "Do environment and model read what the tokens say?", check_turns),
    Check("record", "Does the sampler report the log-probs of its draws?", check_record),
    Check("temperature", "Is the trainer's temperature that of the sampler?", check_temperature),
    Check("agreement", "Do sampler and trainer agree over the whole vocabulary?", check_agreement),
    Check("batch", "Are mask, groups, rows and ratio of a batch right?", check_batch),
    Check("dropout", "Is dropout off in an update?", check_dropout),
    Check("reference", "Does the reference stay, with its adapter off?", check_reference, False),
    Check("cache", "Does the sampler follow an update, its cache included?", check_cache, False),
)


CHOICE_CHECKS: tuple[Check[ChoiceCase], ...] = (
    Check("episodes", "Can the environments be played?", check_episodes),
    Check("ledger", "Does the ledger hold what was seen and what was chosen?", check_choices),
    Check("masks", "Is the mask of an update that of the draw?", check_masks),
    Check("temperature", "Is the trainer's temperature that of the sampler?", check_heat),
    Check("batch", "Are mask, groups, rows and ratio of a batch right?", check_batch),
    Check("ratio", "Is the ratio before an update exactly 1?", check_ratio),
    Check("dropout", "Is dropout off in an update?", check_dropout),
    Check("gradients", "Does every parameter get a gradient?", check_gradients, False),
    Check("reference", "Does the reference stay where it is?", check_reference, False),
    Check("follows", "Does the sampler follow an update?", check_follows, False),
    Check("saved", "Does a saved policy come back as it was?", check_saved, False),
)


def examine(subject: TextSubject | ChoiceSubject, *, is_thorough: bool) -> Report:
    """Play a trial and run the checks on it: all, or the quick ones on a small trial.

    What is looked at is as before afterwards: weights bit for bit, and no dialogue is open.
    """
    started = time.perf_counter()
    if isinstance(subject, ChoiceSubject):
        subject.sampler.sync(subject.policy)
        size = MANY_CHOICES if is_thorough else FEW_CHOICES
        played = play_choices(subject.sampler, subject.worlds, size, subject.seed)
        done = _run_all(CHOICE_CHECKS, ChoiceCase(subject, played, is_thorough))
    else:
        subject.sampler.sync(subject.policy)
        size = THOROUGH if is_thorough else QUICK
        trial = play_trial(subject.sampler, subject.worlds, subject.draws, size, subject.seed)
        done = _run_all(CHECKS, TextCase(subject, trial, is_thorough))
    return Report(done, time.perf_counter() - started)


def _run_all(checks: Sequence[Check[C]], case: C) -> tuple[Checked, ...]:
    return tuple(_run(check, case) for check in checks if case.is_thorough or check.is_quick)


def _run(check: Check[C], case: C) -> Checked:
    started = time.perf_counter()
    try:
        verdict = check.run(case)
    except SearchRLError as error:
        verdict = failed(f"it could not be looked at: {error}", "")
    return Checked(check.name, check.question, verdict, time.perf_counter() - started)
