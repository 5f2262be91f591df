"""Draws choices: for all live episodes at once, each a function of its key and its turn.

Owns the draw. A choice depends on the key of its rollout, on the turn and on what was seen, and on
no order and no other episode. `rollout` is the caller.
Shapes: B episodes, S choices, A actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from searchrl.core.trajectory import View
from searchrl.engine.choosing.layout import stack_views
from searchrl.engine.choosing.masks import masked_logps
from searchrl.engine.choosing.policy import Choices
from searchrl.engine.sampling.draw import inverse_cdf, key_tensor, uniforms
from searchrl.errors import GenerationFailure


class Chose(NamedTuple):
    """An action by number, its log-prob in nats, and the version of the weights.

    `probs` are the probabilities of all actions as they were drawn; 0 for those that are not legal.
    """

    action: int
    logp: float
    version: int
    probs: tuple[float, ...]


class Chooser:
    """Chooses with the weights of a policy.

    Args:
        policy: whose weights; they are not copied.
        temperature: 0 takes the most probable action; log-probs and probabilities are then those
            at temperature 1.
    """

    def __init__(self, policy: Choices, temperature: float) -> None:
        self.policy = policy
        self.temperature = temperature

    @property
    def num_actions(self) -> int:
        """How many actions there are."""
        return self.policy.space.num_actions

    def choose(self, seen: Sequence[Sequence[View]], keys: Sequence[int]) -> list[Chose]:
        """Choose the next action of each episode, from everything it has shown until now.

        Raises:
            GenerationFailure: the network gives no finite log-probs.
            PluginError: it returns something else than the contract says.
        """
        policy = self.policy
        seen_BSD, legal_BSA = stack_views(seen, policy.space.max_choices)
        with torch.no_grad(), policy.evaluating():
            logits_BSA = policy.run(seen_BSD.to(policy.device, policy.dtype)).logits_BSA
            logp_BSA = masked_logps(
                logits_BSA, legal_BSA.to(policy.device), self.temperature or 1.0
            )
        last_B = torch.tensor([len(views) - 1 for views in seen], device=policy.device)
        logp_BA = logp_BSA[torch.arange(len(seen), device=policy.device), last_B]
        legal_BA = legal_BSA[torch.arange(len(seen)), last_B.cpu()].to(policy.device)
        if not torch.isfinite(logp_BA[legal_BA]).all():
            raise GenerationFailure(
                f"policy '{policy.name}' gives logits that are not finite; its weights are damaged"
            )
        prob_BA = logp_BA.exp()
        if self.temperature == 0:
            action_B = logp_BA.argmax(dim=-1)
        else:
            key_B = key_tensor(list(keys), policy.device)
            action_B = inverse_cdf(prob_BA, uniforms(key_B, last_B))
        chosen_B = logp_BA.gather(1, action_B[:, None])[:, 0]
        rows = zip(action_B.tolist(), chosen_B.tolist(), prob_BA.tolist(), strict=True)
        return [Chose(action, logp, policy.version, tuple(p)) for action, logp, p in rows]
