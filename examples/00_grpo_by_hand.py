"""GRPO on four numbers: every quantity of the loss, computed with plain floats and printed.

Four answers to one question, one token each, so that a table holds everything. The last step
hands the same numbers to `searchrl.core.loss` and compares. Run: python examples/00_grpo_by_hand.py
"""

import math

import torch

from searchrl.algorithms import StepScores, ppo_clip_loss
from searchrl.core.advantage import grpo_advantages
from searchrl.core.loss import LossSettings, Reduction, loss_columns, token_weights

CLIP_LOW, CLIP_HIGH, BETA = 0.2, 0.28, 0.1

# 1. Four rollouts of one question. Two found the answer.
rewards = [1.0, 1.0, 0.0, 0.0]
mean = sum(rewards) / 4
std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / 4)
advantages = [(r - mean) / (std + 1e-6) for r in rewards]
print("1. How good was each rollout, compared with its siblings?")
print(f"   rewards {rewards}: mean {mean}, std {std}")
print(f"   A = (r - mean) / std = {[round(a, 3) for a in advantages]}\n")

# 2. The probability of each sampled token: when it was sampled, now, and under the reference.
old_p = [0.20, 0.20, 0.20, 0.20]
now_p = [0.30, 0.10, 0.30, 0.10]
ref_p = [0.20, 0.20, 0.20, 0.20]
weight = 1 / 4  # token-mean over the four model tokens of the step

print("2. What does each token contribute?   J = min(surr1, surr2) - beta * k3")
print("   token    A   ratio   surr1   surr2     min      k3       J   dJ/dlogp")
objective, gradients = 0.0, []
for i in range(4):
    adv = advantages[i]
    ratio = now_p[i] / old_p[i]
    surr1 = ratio * adv
    surr2 = min(max(ratio, 1 - CLIP_LOW), 1 + CLIP_HIGH) * adv
    u = math.log(ref_p[i] / now_p[i])
    k3 = math.exp(u) - u - 1
    J = min(surr1, surr2) - BETA * k3
    is_clipped = surr2 < surr1
    # d ratio / d logp = ratio; a clipped token is flat; d k3 / d logp = 1 - e^u.
    gradient = (0.0 if is_clipped else surr1) - BETA * (1 - math.exp(u))
    objective += weight * J
    gradients.append(-weight * gradient)
    print(
        f"   {i:5d} {adv:+4.0f} {ratio:7.2f} {surr1:+7.2f} {surr2:+7.2f} {min(surr1, surr2):+7.2f}"
        f" {k3:7.4f} {J:+7.4f} {gradient:+10.4f}{'   clipped' if is_clipped else ''}"
    )
print("   Token 0 is good and already 1.5 times as likely: enough, the clip stops the push.")
print("   Token 3 is bad and already half as likely: enough, too.")
print("   Tokens 1 and 2 moved the wrong way: they are never clipped.\n")

# 3. One number to descend on.
print("3. Reduce.")
print(f"   loss = - sum of weight * J = {-objective:+.6f}   (weight {weight} per token)\n")

# 4. The same through the library.
step = StepScores(rewards, group_ids=["question"] * 4, is_scored=[True] * 4)
logp_T = torch.tensor(now_p, dtype=torch.float64).log().requires_grad_()
columns = loss_columns(
    logp_T,
    torch.tensor(old_p, dtype=torch.float64).log(),
    torch.tensor(grpo_advantages(step), dtype=torch.float64),
    torch.tensor(token_weights([1, 1, 1, 1], Reduction.TOKEN_MEAN), dtype=torch.float64),
    ref_logp_T=torch.tensor(ref_p, dtype=torch.float64).log(),
)
settings = LossSettings(clip_low=CLIP_LOW, clip_high=CLIP_HIGH, beta=BETA)
loss, stats = ppo_clip_loss(columns, settings)
(gradient_T,) = torch.autograd.grad(loss, logp_T)
print("4. searchrl.core.loss.ppo_clip_loss on the same numbers.")
means = stats.means()
print(f"   loss {means['loss']:+.6f}, clip fraction {means['clip_frac']}")
print(f"   kl {means['kl']:.4f} nats/token")
print(f"   gradient by hand  {[round(g, 6) for g in gradients]}")
print(f"   gradient by torch {[round(g, 6) for g in gradient_T.tolist()]}")
assert math.isclose(loss.item(), -objective, rel_tol=1e-9)
assert all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(gradient_T, gradients, strict=True))
print("   They agree.\n")

# 5. The first update.
fresh_T = torch.tensor(old_p, dtype=torch.float64).log().requires_grad_()
columns = loss_columns(
    fresh_T,
    fresh_T.detach(),
    torch.tensor(advantages, dtype=torch.float64),
    torch.full((4,), weight, dtype=torch.float64),
)
loss, _ = ppo_clip_loss(columns, LossSettings())
(gradient_T,) = torch.autograd.grad(loss, fresh_T)
print("5. And right after sampling, when every ratio is 1?")
print(f"   loss {abs(loss.item()):.6f}: the advantages cancel. It is not broken, the gradient is")
print(f"   {[round(g, 3) for g in gradient_T.tolist()]}: descend, and good tokens become likelier.")
