"""Steps of a run in half precision and on each device: what is rounded, and what must not be."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from session_toy import LORA, MakeSession
from torch.utils._python_dispatch import TorchDispatchMode

CASES: dict[str, Any] = {
    "full weights": {"model": {"adapter": "full"}},
    "hf": {"engine": {"generator": "hf"}},
    "no reference": {"algorithm": {"beta": 0.0}},
    "updates": {"optim": {"lr": 1e-4, "epochs": 2, "mini_batches": 2, "micro_batch_tokens": 64}},
    **{name: {"algorithm": {"name": name}} for name in ("gspo", "cispo", "dapo", "tis")},
}


HALVES = ("bfloat16", "float16")
KINDS = [("bfloat16", "slots"), ("float16", "slots"), *(("bfloat16", case) for case in CASES)]
KINDS += [
    pytest.param("float16", case, marks=pytest.mark.thorough)
    for case in CASES
    if case != "full weights"  # which float16 cannot train
]


@pytest.mark.parametrize(("dtype", "case"), KINDS)
def test_in_half_precision_a_step_begins_where_the_sampler_was(
    device: torch.device, make_session: MakeSession, small_qwen3: Path, dtype: str, case: str
) -> None:
    """Otherwise the session's own check raises: with the tolerance of the doctor."""
    more = {"optim": {"lr": 1e-4}} | CASES.get(case, {})
    model = LORA | {"name": str(small_qwen3), "dtype": dtype} | more.get("model", {})
    session = make_session(**more | {"model": model}, device=device.type, max_steps=2)
    with torch.no_grad():  # far from uniform, where rounding shows
        for parameter in session.policy.base_model.parameters():
            parameter.mul_(3)
    assert session.policy.dtype == getattr(torch, dtype)
    for step in (1, 2):
        told = session.update(session.sample(step), step).metrics
        assert all(map(math.isfinite, told.values()))
        assert told["mismatch"] <= session.tolerance.mean
        assert told["mismatch_max"] <= session.tolerance.token
        if case != "updates":
            assert told["ratio_mean"] == pytest.approx(1, abs=session.tolerance.mean)


EXACT = ("_softmax", "_log_softmax", "logsumexp", "log", "exp", "expm1")


class Dtypes(TorchDispatchMode):
    """The dtypes of the first tensors of some operations, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = defaultdict[str, set[torch.dtype]](set)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := func.overloadpacket.__name__) in EXACT:
            self.seen[name].add(args[0].dtype)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("dtype", HALVES)
def test_log_probs_loss_and_optimiser_are_float32(
    device: torch.device, make_session: MakeSession, dtype: str
) -> None:
    session = make_session(device=device.type, model=LORA | {"dtype": dtype}, max_steps=2)
    learner, columns = session.learner, []
    loss = learner.algorithm.loss

    def spy(given: Any, settings: Any) -> Any:
        made, stats = loss(given, settings)
        parts = given.logp_T, given.old_logp_T, given.adv_T, given.weight_T, given.ref_logp_T
        columns.extend([made, given.entropy_T, *parts])
        return made, stats

    learner.algorithm = replace(learner.algorithm, loss=spy)
    with Dtypes() as dtypes:
        session.update(session.sample(1), 1)
    assert {"_softmax", "log", "exp"} <= {*dtypes.seen}
    assert set().union(*dtypes.seen.values()) == {torch.float32}
    state = [one for state in learner.optimizer.state.values() for one in state.values()]
    assert len(state) == 3 * len(learner.parameters) == 3 * 14
    assert {one.dtype for one in (*columns, *state, *learner.parameters)} == {torch.float32}


def test_a_card_gives_back_its_cache_before_and_after_an_update(
    device: torch.device, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks have the sizes of the other phase. Without a card the calls do nothing."""
    session = make_session(device=device.type)
    drawn, policy, empty = session.sample(1), session.policy, torch.cuda.empty_cache
    versions: list[int] = []
    spy = lambda: (versions.append(policy.version), empty())  # noqa: E731
    monkeypatch.setattr(torch.cuda, "empty_cache", spy)
    session.update(drawn, 1)
    assert versions == [0, 1]
