"""The slot engine: whole episodes as the plain generator plays them, and nothing computed twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_toy import LIMITS, enlarge_lora, micro_policy
from generator_play import PROMPTS, finish, full_logps, run

from searchrl.core.trajectory import Trajectory
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.rollout import RolloutDriver
from searchrl.engine.sampling.generator import Generator, Sampling, mix_key
from searchrl.engine.sampling.hf_generator import HFGenerator
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.errors import PolicyError


@pytest.fixture(params=["full", "lora"])
def any_policy(request: pytest.FixtureRequest, device: torch.device, micro_model: Path) -> Policy:
    policy = micro_policy(micro_model, device=device, adapter=request.param)
    return enlarge_lora(policy) if request.param == "lora" else policy


def episodes(generator: Generator, policy: Policy, world: Any, n: int = 6) -> list[Trajectory]:
    driver = RolloutDriver(generator, policy.renderer, LIMITS)
    requests = [
        RolloutRequest(f"g{i}", world, "train", i, tuple(mix_key(i, k) for k in range(3)))
        for i in range(n)
    ]
    return [r.trajectory for group in driver.run(requests) for r in group.rollouts]


def logps(trajectory: Trajectory) -> list[float]:
    return [float(p) for p in trajectory.sampler_logps if p is not None]


@pytest.fixture(scope="module")
def plain() -> dict[Any, list[Trajectory]]:
    """What the plain generator plays, by device and by whether the policy has an adapter."""
    return {}


@pytest.mark.parametrize("num_slots", [3, 64])
def test_episodes_are_those_of_the_plain_generator(
    any_policy: Policy, short_world: Any, plain: Any, num_slots: int
):
    """Fork, decode, observations appended, slots refilled: ids equal, log-probs to 1e-5.

    On a card, which chooses its kernels by the size of the batch, to 1e-4.
    """
    slots = SlotGenerator(any_policy, Sampling(), num_slots, 800)
    ours = episodes(slots, any_policy, short_world)
    key = any_policy.device, any_policy.is_lora
    if key not in plain:
        plain[key] = episodes(HFGenerator(any_policy, Sampling()), any_policy, short_world)
    theirs, limit = plain[key], 1e-5 if any_policy.device.type == "cpu" else 1e-4
    assert [t.ids for t in ours] == [t.ids for t in theirs]
    assert sum(len(t.turns) > 1 for t in ours) >= 6
    for left, right in zip(ours, theirs, strict=True):
        assert logps(left) == pytest.approx(logps(right), abs=limit)


def test_prompt_is_computed_once_however_large_the_group(policy: Policy):
    policy.eos_ids = frozenset()
    prompt = list(range(40))
    for n in (1, 8):
        generator = SlotGenerator(policy, Sampling(), 3, 800)
        handles = generator.open(prompt, n, list(range(n)))
        for handle in handles:
            generator.submit(handle, [], (), 6)
        assert len(finish(generator, handles, is_last=True)) == n
        assert generator.stats.num_prefilled == len(prompt) - 1
        assert generator.stats.num_decoded == 6 * n


def test_tokens_computed_grow_with_what_is_appended_not_with_turns_squared(policy: Policy):
    policy.eos_ids = frozenset()
    generator = SlotGenerator(policy, Sampling(), 2, 800)
    (handle,) = generator.open(PROMPTS[0], 1, [4])
    for turn in range(8):
        generator.submit(handle, [40] * 10 if turn else [], (), 5)
        finish(generator, [handle])
    # The last token of a turn is computed with the observation behind it.
    assert generator.stats.num_prefilled == len(PROMPTS[0]) - 1
    assert generator.stats.num_appended == 7 * 10 and generator.stats.num_decoded == 8 * 5


def test_siblings_that_wrote_and_read_the_same_compute_it_once(policy: Policy):
    """Greedy siblings, of whom the last one is told something else."""
    policy.eos_ids = frozenset()
    generator = SlotGenerator(policy, Sampling(0.0), 4, 800)
    handles = generator.open(PROMPTS[0], 4, range(4))
    texts: dict[Any, list[int]] = {handle: list(PROMPTS[0]) for handle in handles}
    for told in ([], [40] * 10):
        for handle in handles:
            text = [41] * 6 if told and handle == handles[3] else told
            generator.submit(handle, text, (), 5)
            texts[handle] += text
        for turn in finish(generator, handles):
            text = texts[turn.handle]
            expected = full_logps(policy, [*text, *turn.ids], len(text), 1.0)
            assert turn.logps == pytest.approx(expected, abs=1e-5)
            text += turn.ids
    assert generator.stats.num_appended == 10 + 6


def test_a_sibling_that_waited_for_a_slot_reads_no_prompt_of_older_weights(policy: Policy):
    """Four siblings on two slots; the weights change when the first two have ended."""
    policy.eos_ids = frozenset()
    generator = SlotGenerator(policy, Sampling(0.0), 2, 800)
    handles = generator.open(PROMPTS[0], 4, range(4))
    for handle in handles:
        generator.submit(handle, [], (), 4)
    early = generator.poll()
    assert [turn.handle for turn in early] == handles[:2]
    with torch.no_grad():
        for parameter in policy.parameters:
            parameter.mul_(1.3)
    for turn in early:
        generator.close(turn.handle)
    for turn in finish(generator, handles[2:]):
        expected = full_logps(policy, [*PROMPTS[0], *turn.ids], len(PROMPTS[0]), 1.0)
        assert turn.logps == pytest.approx(expected, abs=1e-5)


def test_idle_slots_are_refilled_at_once(policy: Policy):
    """256 episodes of log-normal lengths spread eightfold on 32 slots."""
    policy.eos_ids = frozenset()
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(np.log(24), 0.65, 256)), 8, 64).astype(int).tolist()
    generator = SlotGenerator(policy, Sampling(), 32, 128)
    handles = generator.open(PROMPTS[2], len(lengths), list(range(len(lengths))))
    for handle, length in zip(handles, lengths, strict=True):
        generator.submit(handle, [], (), length)
    done, before_drain = 0, None
    while turns := generator.poll():
        done += len(turns)
        for turn in turns:
            generator.close(turn.handle)
        if len(lengths) - done >= 32:
            before_drain = generator.stats.slot_use
    assert done == 256
    assert before_drain is not None and before_drain >= 0.95
    assert 0.85 <= generator.stats.slot_use < 1, "rows that idle are counted"


def test_closing_a_dialogue_that_waits_for_a_slot_or_decodes(policy: Policy):
    generator = SlotGenerator(policy, Sampling(), 1, 800)
    first, second, third = generator.open(PROMPTS[0], 3, [1, 2, 3])
    for handle in (first, second, third):
        generator.submit(handle, [], (), 4)
    generator.close(second)
    assert [turn.handle for turn in generator.poll()] == [first]
    assert generator.poll() == [], "the slot is held by a dialogue that may go on"
    generator.close(first)
    (turn,) = generator.poll()
    (alone,) = run(SlotGenerator(policy, Sampling()), [PROMPTS[0]], [3], max_tokens=4)
    assert (turn.handle, turn.ids) == (third, alone.ids)


def test_truncated_draws_count_what_they_left_out(policy: Policy):
    generator = SlotGenerator(policy, Sampling(1.0, top_k=5), 4, 800)
    turns = run(generator, PROMPTS, range(4), max_tokens=10)
    assert generator.stats.sum_log_mass < -1
    for prompt, turn in zip(PROMPTS, turns, strict=True):
        expected = full_logps(policy, [*prompt, *turn.ids], len(prompt), 1.0)
        assert turn.logps == pytest.approx(expected, abs=1e-5)


def test_model_with_sliding_windows_is_refused_with_the_reason(policy: Policy):
    policy.model.config.layer_types = ["sliding_attention"]
    with pytest.raises(PolicyError, match="sliding-window"):
        SlotGenerator(policy, Sampling())


def test_model_with_logits_behind_its_head_is_refused(policy: Policy):
    """A Granite model divides its logits by 8: other tokens were sampled than the model's."""
    forward = policy.model.forward

    def scaled(*args: Any, **named: Any) -> Any:
        made = forward(*args, **named)
        made.logits = made.logits / 8
        return made

    policy.model.forward = scaled
    with pytest.raises(PolicyError, match="scaled or capped behind its head"):
        SlotGenerator(policy, Sampling())
