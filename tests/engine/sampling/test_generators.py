"""The contract of generators, kept by the plain one and by the slot engine: against
`model.generate`, against the trainer's forward pass, and against each other."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_toy import micro_policy, token_logps
from generator_play import PROMPTS, finish, full_logps, run
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.generator import Generator, Sampling, mix_key
from searchrl.engine.sampling.hf_generator import HFGenerator
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.errors import GenerationFailure

Make = Callable[..., Generator]

thorough = pytest.mark.thorough


@pytest.fixture(params=[pytest.param("hf", marks=thorough), "slots"])
def make(request: pytest.FixtureRequest) -> Make:
    """Every generator keeps the same contract; `hf` is the reference."""
    return HFGenerator if request.param == "hf" else SlotGenerator


def test_greedy_is_what_model_generate_writes(make: Make, policy: Policy):
    turns = run(make(policy, Sampling(0.0)), PROMPTS, range(4))
    for prompt, turn in zip(PROMPTS, turns, strict=True):
        expected = policy.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=0,
        )[0, len(prompt) :]
        assert list(turn.ids) == expected.tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_of_a_padded_batch_equal_an_unpadded_forward_pass(
    make: Make, policy: Policy, temperature: float
):
    turns = run(make(policy, Sampling(temperature)), PROMPTS, range(4), max_tokens=20)
    for prompt, turn in zip(PROMPTS, turns, strict=True):
        expected = full_logps(policy, [*prompt, *turn.ids], len(prompt), temperature)
        assert turn.logps == pytest.approx(expected, abs=1e-5)


@thorough
@pytest.mark.parametrize("batch_size", [3, 64])
def test_batch_composition_does_not_change_what_is_sampled(
    make: Make, policy: Policy, batch_size: int
):
    prompts, keys = [*PROMPTS, *PROMPTS], [mix_key(7, n) for n in range(8)]
    together = run(make(policy, Sampling(), batch_size), prompts, keys, max_tokens=16)
    for prompt, key, turn in zip(prompts, keys, together, strict=True):
        (alone,) = run(make(policy, Sampling()), [prompt], [key], max_tokens=16)
        assert alone.ids == turn.ids and alone.logps == pytest.approx(turn.logps, abs=1e-5)


def test_siblings_differ_and_equal_keys_agree(make: Make, policy: Policy):
    a, b, again = run(make(policy, Sampling()), [PROMPTS[0]] * 3, [1, 2, 1])
    assert a.ids == again.ids != b.ids


def test_draws_depend_on_key_and_position_only(make: Make, policy: Policy):
    # A turn continued after an observation samples what one long prompt would have sampled.
    generator = make(policy, Sampling())
    (handle,) = generator.open(PROMPTS[0], 1, [9])
    generator.submit(handle, [], (), 5)
    (first,) = finish(generator, [handle])
    generator.submit(handle, [40, 41, 42], (), 6)
    (second,) = finish(generator, [handle])
    (fresh,) = run(
        make(policy, Sampling()), [[*PROMPTS[0], *first.ids, 40, 41, 42]], [9], max_tokens=6
    )
    assert fresh.ids == second.ids and fresh.logps == pytest.approx(second.logps, abs=1e-5)


def test_end_of_message_ends_the_turn_and_is_kept(make: Make, policy: Policy):
    wanted = run(make(policy, Sampling()), [PROMPTS[0]], [3])[0].ids
    policy.eos_ids = frozenset({wanted[4]})
    assert wanted[4] not in wanted[:4]
    (turn,) = run(make(policy, Sampling()), [PROMPTS[0]], [3])
    assert turn.ids == wanted[:5]
    assert turn.reason is TurnStop.EOS and len(turn.logps or ()) == 5


def test_stop_string_ends_the_turn_with_the_token_that_completed_it(make: Make, policy: Policy):
    free = run(make(policy, Sampling()), [PROMPTS[0]], [3], max_tokens=40)[0].ids
    pieces = [policy.renderer.decode([token]) for token in free]
    text = "".join(pieces)
    end = next(i for i in range(3, len(pieces)) if pieces[i].isascii() and pieces[i - 1].isascii())
    stop = pieces[end - 1][-1:] + pieces[end][:1]  # across a seam of two tokens
    assert text.index(stop) == len("".join(pieces[:end])) - 1
    (turn,) = run(make(policy, Sampling()), [PROMPTS[0]], [3], stops=[stop], max_tokens=40)
    assert turn.ids == free[: end + 1] and turn.reason is TurnStop.STOP_STRING


def test_version_is_stamped_and_synced(make: Make, policy: Policy):
    generator = make(policy, Sampling())
    assert run(generator, [[5]], [0])[0].version == 0
    policy.version = 3
    assert generator.sync(policy) == 3 and run(generator, [[5]], [0])[0].version == 3


@pytest.mark.parametrize("observation", [[], [40, 41]])
@pytest.mark.parametrize("is_optimizer", [False, True])
def test_no_cache_survives_a_weight_update(
    make: Make, policy: Policy, is_optimizer: bool, observation: list[int]
):
    """However the weights changed, and without anyone saying so: torch counts writes."""
    generator = make(policy, Sampling(0.0), 4, 800)
    (handle,) = generator.open(PROMPTS[0], 1, [1])
    generator.submit(handle, [], (), 4)
    (first,) = finish(generator, [handle])
    if is_optimizer:
        for parameter in policy.parameters:
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD(policy.parameters, lr=0.3).step()
    else:
        with torch.no_grad():
            for parameter in policy.parameters:
                parameter.mul_(1.3)
    generator.submit(handle, observation, (), 4)
    (second,) = finish(generator, [handle])
    ids = [*PROMPTS[0], *first.ids, *observation, *second.ids]
    assert second.logps == pytest.approx(full_logps(policy, ids, len(ids) - 4, 1.0), abs=1e-5)


def test_non_finite_logits_name_the_remedy(make: Make, policy: Policy):
    with torch.no_grad():
        policy.parameters[0].fill_(float("nan"))
    with pytest.raises(GenerationFailure, match="non-finite logits.*model.dtype=float32"):
        run(make(policy, Sampling()), [[5]], [0])


def test_closed_dialogue_is_forgotten_and_nothing_in_flight_gives_nothing(
    make: Make, policy: Policy
):
    generator = make(policy, Sampling())
    (handle,) = generator.open([5], 1, [0])
    assert generator.poll() == []
    generator.submit(handle, [], (), 3)
    generator.close(handle)
    assert generator.poll() == []


@pytest.mark.parametrize("make", [HFGenerator, SlotGenerator])
def test_model_with_absolute_positions_is_padded_as_rightly(
    make: Make, micro_model: Path, tmp_path: Path
):
    """Rotary models forgive shifted positions; learned ones do not. Any causal LM will do."""
    config = GPT2Config(vocab_size=320, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    torch.manual_seed(0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(micro_model).save_pretrained(tmp_path)
    policy = micro_policy(tmp_path)
    with torch.no_grad():
        policy.model.transformer.wpe.weight.mul_(30)
    turns = run(make(policy, Sampling()), PROMPTS, range(4))
    for prompt, turn in zip(PROMPTS, turns, strict=True):
        ids = [*prompt, *turn.ids]
        assert turn.logps == pytest.approx(full_logps(policy, ids, len(prompt), 1.0), abs=1e-5)
        chosen_BT = torch.tensor([[False] * len(prompt) + [True] * len(turn.ids)])
        with torch.no_grad():
            trained = token_logps(policy, torch.tensor([ids]), chosen_BT)
        assert turn.logps == pytest.approx(trained.tolist(), abs=1e-5)


def test_a_device_samples_what_the_reference_samples_on_a_cpu(
    device: torch.device, micro_model: Path
):
    there = SlotGenerator(micro_policy(micro_model, device=device), Sampling())
    ours = run(there, PROMPTS, range(4))
    theirs = run(HFGenerator(micro_policy(micro_model), Sampling()), PROMPTS, range(4))
    assert [t.ids for t in ours] == [t.ids for t in theirs]
    for left, right in zip(ours, theirs, strict=True):
        assert left.logps == pytest.approx(right.logps, abs=1e-4)
