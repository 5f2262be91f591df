"""How far sampler and trainer may be apart, in nats, and attention at another scale."""

import pytest
import torch

from searchrl.engine.model.attention import grouped_attention, mask_for
from searchrl.engine.model.tolerance import tolerance_of


@pytest.mark.parametrize(
    ("dtype", "mean"), [(torch.float32, 0.001), (torch.float16, 0.005), (torch.bfloat16, 0.04)]
)
def test_one_token_may_differ_by_fifty_times_the_mean(dtype: torch.dtype, mean: float) -> None:
    assert tolerance_of(dtype) == pytest.approx((mean, 50 * mean))
    assert tolerance_of(dtype, 0.0) == (0.0, 0.0), "what a run asks for, also nothing at all"


@pytest.mark.parametrize("scale", [None, 0.1])
def test_grouped_attention_is_that_of_repeated_heads(
    device: torch.device, scale: float | None
) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    is_seen = torch.ones(3, 5, dtype=torch.bool).tril(2)[None, None]
    there = [one.to(device) for one in (query, key, value)]
    ours = grouped_attention(*there, mask_for(*there[:2], is_seen.to(device)), scale).cpu()
    whole = (one.repeat_interleave(2, dim=1) for one in (key, value))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, *whole, attn_mask=is_seen, scale=scale
    )
    assert torch.allclose(ours, expected, atol=1e-5)
