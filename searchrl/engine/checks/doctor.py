"""The doctor: all checks of a run that is about to begin, by name and in order.

Owns the table of checks and how much is played for them: a little at the start of every training
run, more for `searchrl doctor`. A failed check raises nothing here; `Report.ensure_good` does.
Caller: `programs/setup/session`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from searchrl.engine.checks.logps import (
    check_agreement,
    check_batch,
    check_dropout,
    check_record,
    check_sampling,
    check_temperature,
)
from searchrl.engine.checks.report import Checked, Report, Verdict, failed
from searchrl.engine.checks.subject import Case, Subject
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


class Check(NamedTuple):
    """A check: what it is called, what it asks, and how it finds out.

    `is_quick`: it is part of the checks at the start of training. The others move weights for the
    moment, which takes several passes.
    """

    name: str
    question: str
    run: Callable[[Case], Verdict]
    is_quick: bool = True


CHECKS = (
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


def examine(subject: Subject, *, is_thorough: bool) -> Report:
    """Play a trial and run the checks on it: all, or the quick ones on a small trial.

    What is looked at is as before afterwards: weights bit for bit, and no dialogue is open.
    """
    started = time.perf_counter()
    size = THOROUGH if is_thorough else QUICK
    subject.sampler.sync(subject.policy)
    trial = play_trial(subject.sampler, subject.worlds, subject.draws, size, subject.seed)
    case = Case(subject, trial, is_thorough)
    done = [_run(check, case) for check in CHECKS if is_thorough or check.is_quick]
    return Report(tuple(done), time.perf_counter() - started)


def _run(check: Check, case: Case) -> Checked:
    started = time.perf_counter()
    try:
        verdict = check.run(case)
    except SearchRLError as error:
        verdict = failed(f"it could not be looked at: {error}", "")
    return Checked(check.name, check.question, verdict, time.perf_counter() - started)
