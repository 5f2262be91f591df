"""Draws: uniform, unbiased, a function of key and position; truncation cuts what it says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from searchrl.engine.sampling.draw import draw_tokens, inverse_cdf, key_tensor, truncate, uniforms
from searchrl.engine.sampling.generator import Sampling, mix_key


def draws(keys: list[int], positions: list[int]) -> Tensor:
    return uniforms(key_tensor(keys), torch.tensor(positions))


def splitmix(key: int, position: int) -> float:
    """The definition, in Python integers."""
    mask = (1 << 64) - 1
    z = (key + position * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6))
def test_uniforms_are_splitmix64(key: int, position: int):
    assert draws([key], [position]).item() == splitmix(key, position)


class TestInverseCdf:
    """Sampling from the full distribution: no top-p, no top-k, nothing biased."""

    # n - 1 degrees of freedom: mean n - 1, deviation sqrt(2 n); the limits are beyond p = 1e-4.
    @pytest.mark.parametrize(("vocab", "limit"), [(40, 80), (200, 290)])
    def test_frequencies_match_exact_probabilities(self, vocab: int, limit: float):
        """Within one block of the running sum and over several."""
        torch.manual_seed(0)
        prob_V = torch.softmax(torch.randn(vocab) * 1.5, dim=-1)
        n = 60_000
        uniform_B = draws([mix_key(11, i) for i in range(n)], [3] * n)
        drawn = inverse_cdf(prob_V.expand(n, -1), uniform_B)
        counts = np.bincount(drawn.numpy(), minlength=vocab)
        expected = prob_V.double().numpy() * n
        assert float(((counts - expected) ** 2 / expected).sum()) < limit

    def test_uniforms_are_uniform_over_positions_of_one_key(self):
        n = 50_000
        values = draws([mix_key(1, 2)] * n, list(range(n))).numpy()
        assert values.min() >= 0.0 and values.max() < 1.0
        counts = np.histogram(values, bins=50, range=(0, 1))[0]
        assert float(((counts - n / 50) ** 2 / (n / 50)).sum()) < 110  # 49 degrees of freedom
        # Neighbouring positions and neighbouring keys are uncorrelated.
        other = draws([mix_key(1, 3)] * n, list(range(n))).numpy()
        for left, right in ((values[1:], values[:-1]), (values, other)):
            assert abs(float(np.corrcoef(left, right)[0, 1])) < 4 / math.sqrt(n)

    @pytest.mark.parametrize(
        ("vocab", "first", "second"),
        [(5, 1, 3), (320, 70, 300), (200, 63, 64), (200, 0, 199), (200, 127, 128)],
    )
    def test_edges_and_empty_blocks_never_draw_an_impossible_token(
        self, vocab: int, first: int, second: int
    ):
        prob_BV = torch.zeros(4, vocab)
        prob_BV[:, first], prob_BV[:, second] = 0.25, 0.75
        uniform_B = torch.tensor([0.0, 0.2501, 0.2499, 1 - 2**-53]).double()
        assert inverse_cdf(prob_BV, uniform_B).tolist() == [first, second, first, second]
        for place in (first, second):
            only_BV = torch.zeros(4, vocab)
            only_BV[:, place] = 1.0
            assert inverse_cdf(only_BV, uniform_B).tolist() == [place] * 4

    @given(st.integers(1, 400), st.integers(0, 2**32 - 1))
    def test_many_blocks_draw_what_one_running_sum_draws(self, vocab: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        prob_BV = torch.softmax(torch.randn(16, vocab, generator=generator) * 4, dim=-1)
        prob_BV[:, torch.rand(vocab, generator=generator) < 0.3] = 0.0
        prob_BV[:, -1] += 0.1
        uniform_B = torch.rand(16, generator=generator, dtype=torch.float64)
        cdf_BV = prob_BV.double().cumsum(dim=-1)
        threshold_B1 = uniform_B[:, None] * cdf_BV[:, -1:]
        expected = (cdf_BV <= threshold_B1).sum(dim=-1)
        # Sums in another order may differ in their last bit, right at an edge.
        is_clear = ((cdf_BV - threshold_B1).abs().amin(dim=-1)) > 1e-12
        drawn = inverse_cdf(prob_BV, uniform_B)
        assert torch.equal(drawn[is_clear], expected[is_clear])
        assert (prob_BV.gather(1, drawn[:, None]) > 0).all()


PROBS = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05], [0.05, 0.1, 0.15, 0.2, 0.5]])


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ({"top_k": 2}, [0.5, 0.2, 0, 0, 0]),
        ({"top_p": 0.6}, [0.5, 0.2, 0, 0, 0]),
        ({"min_p": 0.25}, [0.5, 0.2, 0.15, 0, 0]),
        # The share is of what top-k left: .5 is more than .6 of .7.
        ({"top_k": 2, "top_p": 0.6}, [0.5, 0, 0, 0, 0]),
        ({"top_k": 4, "top_p": 0.8, "min_p": 0.35}, [0.5, 0.2, 0, 0, 0]),
    ],
)
def test_truncation_cuts_what_it_says(cut: dict[str, float], kept: list[float]):
    sampling = Sampling(1.0, **cut)  # type: ignore[arg-type]
    assert sampling.is_truncated
    expected = torch.tensor([kept, kept[::-1]])
    assert torch.equal(truncate(PROBS, sampling), expected)


def test_logprobs_are_of_the_full_vocabulary_whatever_is_cut():
    n = 4000
    logits_BV = PROBS[:1].log().expand(n, -1)
    keys = key_tensor([mix_key(5, i) for i in range(n)])
    draw = draw_tokens(logits_BV, Sampling(1.0, top_k=2), keys, torch.zeros(n, dtype=torch.int64))
    assert set(draw.token_B.tolist()) == {0, 1}
    assert torch.allclose(draw.logp_B, PROBS[0].log()[draw.token_B])
    assert draw.log_mass_B is not None
    assert torch.allclose(draw.log_mass_B, torch.tensor(math.log(0.7)))
    # Renormalised: 5/7 of the draws are token 0; four standard deviations are 0.029.
    assert abs(float((draw.token_B == 0).float().mean()) - 5 / 7) < 0.029


def test_greedy_takes_the_largest_and_reports_it_at_temperature_one():
    draw = draw_tokens(PROBS.log(), Sampling(0.0, top_k=3), torch.zeros(2).long(), torch.arange(2))
    assert draw.token_B.tolist() == [0, 4] and draw.log_mass_B is None
    assert torch.allclose(draw.logp_B, torch.tensor([0.5, 0.5]).log())
    assert not Sampling(0.0, top_k=3, top_p=0.5, min_p=0.1).is_truncated
