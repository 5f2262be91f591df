"""The plain Hugging Face generator against `model.generate`, against the trainer's forward pass,
and against exact probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_toy import micro_policy
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from searchrl.core.trajectory import TurnStop
from searchrl.engine.generator import FinishedTurn, Handle, Sampling, mix_key
from searchrl.engine.hf_generator import HFGenerator, _inverse_cdf, _uniforms
from searchrl.engine.policy import Policy
from searchrl.errors import GenerationFailure

PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17], [18])
"""Of unequal length, so that a batch of them is padded."""


def run(
    generator: HFGenerator,
    prompts: Sequence[Sequence[int]],
    keys: Sequence[int],
    *,
    stops: Sequence[str] = (),
    max_tokens: int = 12,
) -> list[FinishedTurn]:
    handles = [
        generator.open(prompt, 1, [key])[0] for prompt, key in zip(prompts, keys, strict=True)
    ]
    for handle in handles:
        generator.submit(handle, [], stops, max_tokens)
    return finish(generator, handles)


def finish(generator: HFGenerator, handles: Sequence[Handle]) -> list[FinishedTurn]:
    done: dict[Handle, FinishedTurn] = {}
    while turns := generator.poll():
        done |= {turn.handle: turn for turn in turns}
    return [done[handle] for handle in handles]


def full_logps(policy: Policy, ids: Sequence[int], start: int, temperature: float) -> list[float]:
    """Log-probs of ids[start:] from one unpadded forward pass."""
    with torch.no_grad():
        logits_TV = policy.model(input_ids=torch.tensor([list(ids)])).logits[0]
    logp_TV = torch.log_softmax(logits_TV.float() / temperature, dim=-1)
    return [float(logp_TV[i - 1, ids[i]]) for i in range(start, len(ids))]


def test_greedy_is_what_model_generate_writes(policy: Policy):
    turns = run(HFGenerator(policy, Sampling(0.0)), PROMPTS, range(4))
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
    policy: Policy, temperature: float
):
    turns = run(HFGenerator(policy, Sampling(temperature)), PROMPTS, range(4), max_tokens=20)
    for prompt, turn in zip(PROMPTS, turns, strict=True):
        expected = full_logps(policy, [*prompt, *turn.ids], len(prompt), temperature)
        assert turn.logps == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_batch_composition_does_not_change_what_is_sampled(policy: Policy, batch_size: int):
    prompts, keys = [*PROMPTS, *PROMPTS], [mix_key(7, n) for n in range(8)]
    together = run(HFGenerator(policy, Sampling(), batch_size), prompts, keys, max_tokens=16)
    for prompt, key, turn in zip(prompts, keys, together, strict=True):
        (alone,) = run(HFGenerator(policy, Sampling()), [prompt], [key], max_tokens=16)
        assert alone.ids == turn.ids
        assert alone.logps == pytest.approx(turn.logps, abs=1e-5)


def test_siblings_differ_and_equal_keys_agree(policy: Policy):
    a, b, again = run(HFGenerator(policy, Sampling()), [PROMPTS[0]] * 3, [1, 2, 1])
    assert a.ids == again.ids != b.ids


def test_draws_depend_on_key_and_position_only(policy: Policy):
    # A turn continued after an observation samples what one long prompt would have sampled.
    generator = HFGenerator(policy, Sampling())
    (handle,) = generator.open(PROMPTS[0], 1, [9])
    generator.submit(handle, [], (), 5)
    (first,) = finish(generator, [handle])
    generator.submit(handle, [40, 41, 42], (), 6)
    (second,) = finish(generator, [handle])
    (fresh,) = run(
        HFGenerator(policy, Sampling()), [[*PROMPTS[0], *first.ids, 40, 41, 42]], [9], max_tokens=6
    )
    assert fresh.ids == second.ids
    assert fresh.logps == pytest.approx(second.logps, abs=1e-5)


def test_turns_after_an_observation_condition_on_it(policy: Policy):
    generator = HFGenerator(policy, Sampling(0.0))
    handles = generator.open(PROMPTS[0], 2, [1, 1])
    for handle, observation in zip(handles, ([40, 41], [90, 91]), strict=True):
        generator.submit(handle, observation, (), 8)
    turns = finish(generator, handles)
    for turn, observation in zip(turns, ([40, 41], [90, 91]), strict=True):
        ids = [*PROMPTS[0], *observation, *turn.ids]
        # Greedy sampling reports log-probs at temperature 1.
        assert turn.logps == pytest.approx(full_logps(policy, ids, 9, 1.0), abs=1e-5)
    assert turns[0].logps != turns[1].logps


def test_dialogue_that_finishes_early_does_not_disturb_the_others(policy: Policy):
    generator = HFGenerator(policy, Sampling())
    handles = [generator.open(p, 1, [n])[0] for n, p in enumerate(PROMPTS)]
    limits = [2, 15, 1, 9]
    for handle, limit in zip(handles, limits, strict=True):
        generator.submit(handle, [], (), limit)
    turns = finish(generator, handles)
    assert [len(turn.ids) for turn in turns] == limits
    assert {turn.reason for turn in turns} == {TurnStop.MAX_TOKENS}
    for n, (prompt, turn) in enumerate(zip(PROMPTS, turns, strict=True)):
        (alone,) = run(HFGenerator(policy, Sampling()), [prompt], [n], max_tokens=limits[n])
        assert alone.ids == turn.ids
        expected = full_logps(policy, [*prompt, *turn.ids], len(prompt), 1.0)
        assert turn.logps == pytest.approx(expected, abs=1e-5)


def test_end_of_message_ends_the_turn_and_is_kept(policy: Policy):
    wanted = run(HFGenerator(policy, Sampling()), [PROMPTS[0]], [3])[0].ids
    policy.eos_ids = frozenset({wanted[4]})
    assert wanted[4] not in wanted[:4]
    (turn,) = run(HFGenerator(policy, Sampling()), [PROMPTS[0]], [3])
    assert turn.ids == wanted[:5]
    assert turn.reason is TurnStop.EOS and len(turn.logps or ()) == 5


def test_stop_string_ends_the_turn_with_the_token_that_completed_it(policy: Policy):
    free = run(HFGenerator(policy, Sampling()), [PROMPTS[0]], [3])[0].ids
    pieces = [policy.renderer.decode([token]) for token in free]
    text = "".join(pieces)
    end = next(i for i in range(3, len(pieces)) if pieces[i].isascii() and pieces[i - 1].isascii())
    stop = pieces[end - 1][-1:] + pieces[end][:1]  # across a seam of two tokens
    assert text.index(stop) == len("".join(pieces[:end])) - 1
    (turn,) = run(HFGenerator(policy, Sampling()), [PROMPTS[0]], [3], stops=[stop])
    assert turn.ids == free[: end + 1] and turn.reason is TurnStop.STOP_STRING


def test_version_is_stamped_and_synced(policy: Policy):
    generator = HFGenerator(policy, Sampling())
    assert run(generator, [[5]], [0])[0].version == 0
    policy.version = 3
    assert generator.sync(policy) == 3
    assert run(generator, [[5]], [0])[0].version == 3


def test_no_cache_survives_a_weight_update(policy: Policy):
    generator = HFGenerator(policy, Sampling(0.0))
    (handle,) = generator.open(PROMPTS[0], 1, [1])
    generator.submit(handle, [], (), 4)
    (first,) = finish(generator, [handle])
    with torch.no_grad():
        for parameter in policy.parameters:
            parameter.mul_(1.3)
    generator.submit(handle, [], (), 4)
    (second,) = finish(generator, [handle])
    ids = [*PROMPTS[0], *first.ids, *second.ids]
    assert second.logps == pytest.approx(full_logps(policy, ids, len(ids) - 4, 1.0), abs=1e-5)


def test_non_finite_logits_name_the_remedy(policy: Policy):
    with torch.no_grad():
        policy.parameters[0].fill_(float("nan"))
    with pytest.raises(GenerationFailure, match="non-finite logits.*model.dtype=float32"):
        run(HFGenerator(policy, Sampling()), [[5]], [0])


def test_closed_dialogue_is_forgotten_and_nothing_in_flight_gives_nothing(policy: Policy):
    generator = HFGenerator(policy, Sampling())
    (handle,) = generator.open([5], 1, [0])
    assert generator.poll() == []
    generator.submit(handle, [], (), 3)
    generator.close(handle)
    assert generator.poll() == []


def test_model_with_absolute_positions_is_padded_as_rightly(micro_model: Path, tmp_path: Path):
    """Rotary models forgive shifted positions; learned ones do not. Any causal LM will do."""
    config = GPT2Config(vocab_size=320, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    torch.manual_seed(0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(micro_model).save_pretrained(tmp_path)
    policy = micro_policy(tmp_path)
    with torch.no_grad():
        policy.model.transformer.wpe.weight.mul_(30)
    turns = run(HFGenerator(policy, Sampling()), PROMPTS, range(4))
    for prompt, turn in zip(PROMPTS, turns, strict=True):
        ids = [*prompt, *turn.ids]
        assert turn.logps == pytest.approx(full_logps(policy, ids, len(prompt), 1.0), abs=1e-5)
        chosen_BT = torch.tensor([[False] * len(prompt) + [True] * len(turn.ids)])
        with torch.no_grad():
            trained, _ = policy.token_logps(torch.tensor([ids]), chosen_BT)
        assert turn.logps == pytest.approx(trained.tolist(), abs=1e-5)


class TestInverseCdf:
    """Sampling from the full distribution: no top-p, no top-k, nothing biased."""

    def test_frequencies_match_exact_probabilities(self):
        torch.manual_seed(0)
        logp_V = torch.log_softmax(torch.randn(40) * 1.5, dim=-1)
        n = 40_000
        uniforms = _uniforms([mix_key(11, i) for i in range(n)], [3] * n)
        drawn = _inverse_cdf(logp_V.expand(n, -1), torch.tensor(uniforms))
        counts = np.bincount(drawn.numpy(), minlength=40)
        expected = logp_V.double().exp().numpy() * n
        chi2 = float(((counts - expected) ** 2 / expected).sum())
        # 39 degrees of freedom: mean 39, standard deviation 8.8; 80 is beyond p = 1e-4.
        assert chi2 < 80

    def test_uniforms_are_uniform_over_positions_of_one_key(self):
        n = 50_000
        values = _uniforms([mix_key(1, 2)] * n, list(range(n)))
        assert values.min() >= 0.0 and values.max() < 1.0
        counts = np.histogram(values, bins=50, range=(0, 1))[0]
        assert float(((counts - n / 50) ** 2 / (n / 50)).sum()) < 110  # 49 degrees of freedom
        # Neighbouring positions and neighbouring keys are uncorrelated.
        other = _uniforms([mix_key(1, 3)] * n, list(range(n)))
        for left, right in ((values[1:], values[:-1]), (values, other)):
            assert abs(float(np.corrcoef(left, right)[0, 1])) < 4 / math.sqrt(n)

    def test_edges_never_draw_an_impossible_token(self):
        logp_BV = torch.log(torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]] * 4))
        uniform_B = torch.tensor([0.0, 0.2501, 0.2499, 1 - 2**-53]).double()
        assert _inverse_cdf(logp_BV, uniform_B).tolist() == [1, 3, 1, 3]


@pytest.mark.gpu
def test_gpu_samples_what_the_cpu_samples(micro_model: Path):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    on_cpu, on_gpu = micro_policy(micro_model), micro_policy(micro_model)
    on_gpu.model.to("cuda")
    on_gpu.device = torch.device("cuda")
    cpu = run(HFGenerator(on_cpu, Sampling()), PROMPTS, range(4))
    gpu = run(HFGenerator(on_gpu, Sampling()), PROMPTS, range(4))
    assert [t.ids for t in cpu] == [t.ids for t in gpu]
    for left, right in zip(cpu, gpu, strict=True):
        assert left.logps == pytest.approx(right.logps, abs=1e-4)
