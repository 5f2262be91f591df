"""What the generators' tests share: prompts, turns played to their end, the trainer's log-probs."""

from collections.abc import Sequence

import torch

from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.generator import FinishedTurn, Generator, Handle

PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17], [18])
"""Of unequal length, so that a batch of them is padded."""


def run(
    generator: Generator,
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
    return finish(generator, handles, is_last=True)


def finish(
    generator: Generator, handles: Sequence[Handle], *, is_last: bool = False
) -> list[FinishedTurn]:
    """The turns that were asked for; `is_last` closes each dialogue with its turn."""
    done: dict[Handle, FinishedTurn] = {}
    while turns := generator.poll():
        done |= {turn.handle: turn for turn in turns}
        for turn in turns if is_last else ():
            generator.close(turn.handle)
    return [done[handle] for handle in handles]


def full_logps(policy: Policy, ids: Sequence[int], start: int, temperature: float) -> list[float]:
    """Log-probs of ids[start:] from one unpadded forward pass."""
    with torch.no_grad():
        logits_TV = policy.model(input_ids=torch.tensor([ids], device=policy.device)).logits[0]
    logp_TV = torch.log_softmax(logits_TV.float() / temperature, dim=-1)
    return [float(logp_TV[i - 1, ids[i]]) for i in range(start, len(ids))]
