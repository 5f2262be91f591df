"""Logits to log-probs: the one place where illegal actions are taken out.

Owns the mask, the temperature and the entropy of a choice, and how networks are run: an episode at
a time, always in one shape. Who draws and who learns call the same functions, so the ratio of the
first update is exactly 1. In a batch it would not be: the last bits of a matrix product depend on
where in it a row stands. Shapes: B episodes, S choices, D numbers seen, A actions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from searchrl.contracts import Chosen


def masked_logps(logits_BSA: Tensor, legal_BSA: Tensor, temperature: float) -> Tensor:
    """Log-probs [B, S, A] of the actions in nats; -inf for those that are not legal.

    Computed in 32 bits at least. `temperature` is above 0; every choice has a legal action.
    """
    logits_BSA = logits_BSA if logits_BSA.dtype == torch.float64 else logits_BSA.float()
    masked_BSA = torch.where(legal_BSA, logits_BSA / temperature, -torch.inf)
    return torch.log_softmax(masked_BSA, dim=-1)


def entropies(logp_BSA: Tensor, legal_BSA: Tensor) -> Tensor:
    """Entropies [B, S] in nats, over the legal actions."""
    # `where` and not a product with the mask: 0 * -inf is NaN.
    known_BSA = torch.where(legal_BSA, logp_BSA, 0.0)
    return -(known_BSA.exp() * known_BSA).sum(dim=-1)


def run_episodes(network: Callable[[Tensor], Chosen], seen_BSD: Tensor) -> Chosen:
    """Run a network over B episodes, each in a pass of its own.

    Raises:
        ValueError: it returns something else than `Chosen` of the right shapes; says what.
    """
    # A clone begins at an address of its own: kernels treat others differently, to the last bit.
    parts = [network(seen_SD[None].clone()) for seen_SD in seen_BSD]
    for part in parts:
        _ensure_chosen(part, seen_BSD.shape[1])
    values = [part.value_BS for part in parts if part.value_BS is not None]
    logits_BSA = torch.cat([part.logits_BSA for part in parts])
    return Chosen(logits_BSA, torch.cat(values) if len(values) == len(parts) else None)


def _ensure_chosen(made: object, num_choices: int) -> None:
    if not isinstance(made, Chosen):
        raise ValueError(f"it returned {type(made).__name__}; expected searchrl.contracts.Chosen")
    shape = tuple(made.logits_BSA.shape)
    if len(shape) != 3 or shape[:2] != (1, num_choices):
        raise ValueError(
            f"its logits are of shape {shape}; expected [B, S, A] = (1, {num_choices}, A)"
        )
    if made.value_BS is not None and tuple(made.value_BS.shape) != shape[:2]:
        raise ValueError(
            f"its values are of shape {tuple(made.value_BS.shape)}; expected [B, S] = {shape[:2]}"
        )
