"""Trains a network that decides: settings, episodes, loss and update, from top to bottom.

    policy:  p = (1 - number of legal actions * floor) * softmax + floor
    dr_grpo: J = ratio * A - beta * k3(start, policy),    A = return - mean return of the question
    ppo:     J = min(ratio * A, clip(ratio) * A) + entropy_weight * H - beta * k3,    A by GAE
             loss = -J + value_weight * (target - value)^2

Dr. GRPO is Liu et al. 2025 (arXiv 2503.20783): no division by the deviation, a constant in place of
the length. PPO is Schulman et al. 2017, equation 7, with GAE. Left out: clipped values, a
target KL that ends a step early, mini-batches. Every draw of a step is a function of seed and step,
so there is no state of a generator to keep. Shapes: B episodes, S choices, D numbers seen, A
actions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from searchrl import PolicyError
from searchrl_control.collections.judged import TRAIN
from searchrl_control.environment.env import RetrievalControlEnv, Turn
from searchrl_control.environment.measures import ANY
from searchrl_control.training.networks import (
    Decided,
    Network,
    NetworkSettings,
    masked_logps,
    shared_space,
    space_of,
)

CLIP = 0.2
"""Bound of the ratio on both sides of 1; with one epoch per step it is never reached."""
MAX_GRAD_NORM = 0.5
_DELTA = 1e-8

Policy = Callable[[Tensor], Decided]
"""Logits of the actions for rows [B, S, D]."""


class Episodes(NamedTuple):
    """Episodes from begin to end. Where `is_done_BS` is false, a row is 0 and not read."""

    seen_BSD: Tensor
    legal_BSA: Tensor
    action_BS: Tensor
    reward_BS: Tensor
    is_done_BS: Tensor
    turns: Sequence[Turn]
    """The last turn of each episode."""


def play(
    policy: Policy,
    envs: Sequence[RetrievalControlEnv],
    turns: Sequence[Turn],
    choose: Callable[[Tensor, Tensor], Tensor],
) -> Episodes:
    """Play an episode of each environment from its first turn to its end.

    `choose` gets logits and legality [B, A] of all episodes: a draw does not depend on which end.
    """
    space, turns = space_of(envs[0]), list(turns)
    shape = (len(turns), space.max_choices)
    seen_BSD = torch.zeros((*shape, space.width))
    legal_BSA = torch.ones((*shape, len(space.actions)), dtype=torch.bool)
    action_BS, reward_BS = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    is_done_BS = torch.zeros(shape, dtype=torch.bool)
    for step in range(space.max_choices):
        live = [at for at, turn in enumerate(turns) if not turn.is_over]
        if not live:
            break
        seen = [envs[at].row(turns[at].question, turns[at].path, step) for at in live]
        rows, legal = zip(*seen, strict=True)
        seen_BSD[live, step] = torch.from_numpy(np.stack(rows))
        legal_BSA[live, step] = torch.from_numpy(np.stack(legal))
        with torch.no_grad():
            logits_BA = policy(seen_BSD[:, : step + 1]).logits_BSA[:, -1]
        chosen = choose(logits_BA, legal_BSA[:, step]).tolist()
        for at in live:
            turns[at], reward_BS[at, step] = envs[at].advance(turns[at], chosen[at])
            action_BS[at, step], is_done_BS[at, step] = chosen[at], True
    return Episodes(seen_BSD, legal_BSA, action_BS, reward_BS, is_done_BS, turns)


def choose_greedily(logits_BA: Tensor, legal_BA: Tensor) -> Tensor:
    """The most probable legal action."""
    return torch.where(legal_BA, logits_BA, -torch.inf).argmax(dim=-1)


def watch(
    policy: Policy, played: Episodes, actions: Sequence[str], floor: float
) -> tuple[Counter[str], float]:
    """Decisions of the policy that played some episodes, where more than one action was legal.

    Returns the count of each action there, and the smallest probability of a legal one; 1 if there
    was no such decision.
    """
    is_free_BS = played.is_done_BS & (played.legal_BSA.sum(dim=-1) > 1)
    choices = Counter(actions[number] for number in played.action_BS[is_free_BS].tolist())
    if not choices:
        return choices, 1.0
    with torch.no_grad():
        logits_NA = policy(played.seen_BSD).logits_BSA[is_free_BS]
    legal_NA = played.legal_BSA[is_free_BS]
    return choices, float(masked_logps(logits_NA.double(), legal_NA, floor)[legal_NA].min().exp())


Count = Annotated[int, Field(ge=1)]
AtLeastZero = Annotated[float, Field(ge=0)]


class Settings(BaseModel):
    """Settings of a training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    envs: list[dict[str, Any]] = Field(default=[{"collection": "demo"}], min_length=1)
    """Settings of `retrieval-control`, once for each collection; each question is equally likely.
    `difficulty` may be a mapping of steps to levels: `{0: any, 5: mostly_hard}`."""
    network: NetworkSettings = NetworkSettings()
    algorithm: Literal["ppo", "dr_grpo"] = "dr_grpo"
    """`ppo` learns from the network's critic; `dr_grpo` compares the episodes of a question."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    max_steps: Annotated[int, Field(ge=0)] = 200
    questions: Count = 50
    """Questions of a step."""
    group_size: Count = 20
    """Episodes of each question; of one alone, `dr_grpo` learns nothing."""
    epochs: Count = 1
    """Updates of a step. With one, every ratio is 1 and nothing is clipped."""
    lr: Annotated[float, Field(gt=0)] = 0.01
    beta: AtLeastZero = 0.005
    """Weight of the KL to the network as it began (`start`). In `dr_grpo`, greedy play leaves the
    start where it expects to win more than `STRENGTH` times beta; else it falls back to it."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Lambda of GAE. Later rewards are not discounted: episodes have five steps."""
    value_weight: AtLeastZero = 0.5
    entropy_weight: AtLeastZero = 0.01
    """Both are for `ppo`."""
    floor: Annotated[float, Field(gt=0, le=0.1)] = 0.001
    """The least probability of a legal action in training: none dies out. Greedy play is the same
    with any."""
    checkpoint_every: Count = 1
    """They are small, and a comparison looks at each for a collapse."""


class Training:
    """A network under training, its environments, and the network as it began (`start`)."""

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(1)  # a pass of a small network has nothing to share
        self.settings, self.step = settings, 0
        self._envs: dict[tuple[int, str], RetrievalControlEnv] = {}
        self.space = shared_space(self._open(number, 0) for number in range(len(settings.envs)))
        made = []
        for _ in range(2):
            torch.manual_seed(settings.seed)
            made.append(Network(self.space, settings.network))
        self.network, self.start = made
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.lr)

    def take_step(self) -> dict[str, float]:
        """Play the episodes of the next step and learn from them; returns figures."""
        began = time.perf_counter()
        # Everything random of a step: what is asked, and what is done.
        rng = np.random.default_rng([self.settings.seed, self.step])
        envs, turns = self._draw(rng)
        played, once = self.play(envs, turns, rng), slice(None, None, self.settings.group_size)
        greedy = play(self.network, envs[once], turns[once], choose_greedily)
        metrics = self.describe(played, greedy) | self.update(played)
        self.step += 1
        seconds = time.perf_counter() - began
        return metrics | {"episodes_per_s": len(played.turns) / seconds}

    def play(
        self, envs: Sequence[RetrievalControlEnv], turns: Sequence[Turn], rng: np.random.Generator
    ) -> Episodes:
        """Play the episodes of a step, all at once."""
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))

        def draw(logits_BA: Tensor, legal_BA: Tensor) -> Tensor:
            p_BA = masked_logps(logits_BA, legal_BA, self.settings.floor).exp()
            return torch.multinomial(p_BA, 1, generator=generator)[:, 0]

        return play(self.network, envs, turns, draw)

    def update(self, played: Episodes) -> dict[str, float]:
        """Learn from episodes: `epochs` times the same ones."""
        settings, is_ppo = self.settings, self.settings.algorithm == "ppo"
        count, total = played.is_done_BS.shape[0], int(played.is_done_BS.sum())
        # The loss is a mean over choices; of Dr. GRPO, over those that there could be.
        denominator = total if is_ppo else played.is_done_BS.numel()
        weight_BS = played.is_done_BS / denominator
        with torch.no_grad():
            old_BS, value_BS, _ = self._look(self.network, played)
            ref_BS, _, _ = self._look(self.start, played)
        if is_ppo:
            is_done_BS = played.is_done_BS
            raw_BS = estimate(played.reward_BS, value_BS, is_done_BS, settings.decay)
            target_BS = raw_BS + value_BS
            spread, mean = torch.std_mean(raw_BS[is_done_BS], correction=0)
            adv_BS = (raw_BS - mean) / (spread + _DELTA)
        else:
            return_GN = played.reward_BS.sum(dim=1).reshape(-1, settings.group_size)
            adv_G = return_GN - return_GN.mean(dim=1, keepdim=True)
            adv_BS, target_BS = adv_G.reshape(count, 1).expand_as(old_BS), value_BS
        figures: dict[str, float] = {}
        for epoch in range(settings.epochs):
            logp_BS, value_BS, entropy_BS = self._look(self.network, played)
            ratio_BS = torch.exp(logp_BS - old_BS)
            surr1_BS = ratio_BS * adv_BS
            surr2_BS = ratio_BS.clamp(1 - CLIP, 1 + CLIP) * adv_BS
            kl_BS = torch.exp(ref_BS - logp_BS) - 1 - (ref_BS - logp_BS)  # k3, Schulman 2020
            objective_BS = torch.minimum(surr1_BS, surr2_BS) - settings.beta * kl_BS
            loss = -(weight_BS * objective_BS).sum()
            error_BS = (target_BS - value_BS).square()
            if is_ppo:
                loss = loss - settings.entropy_weight * (weight_BS * entropy_BS).sum()
                loss = loss + settings.value_weight * (weight_BS * error_BS).sum()
            self.optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.network.parameters(), MAX_GRAD_NORM)
            if not torch.isfinite(norm):
                raise PolicyError(
                    f"step {self.step + 1}: the gradient is not finite; go on from a checkpoint "
                    "with a lower lr"
                )
            self.optimizer.step()
            if epoch == 0:
                figures = {"loss": loss.item(), "grad_norm": norm.item()}
                means = {"kl": kl_BS, "entropy": entropy_BS}
                means |= {"value_loss": error_BS} if is_ppo else {}
                figures |= {name: _mean(column, played) for name, column in means.items()}
        figures["clip_frac"] = _mean((surr2_BS < surr1_BS).float(), played)
        return figures

    def describe(self, played: Episodes, greedy: Episodes) -> dict[str, float]:
        """Figures of the worth of episodes, and of decisions between several legal actions.

        `greedy_actions` are the different ones in greedy play of the same questions.
        """
        figures = {
            "reward": float(played.reward_BS.sum(dim=1).mean()),
            "ndcg": float(np.mean([turn.worth for turn in played.turns])),
            "actions": float(played.is_done_BS.sum(dim=1).float().mean()),
        }
        (choices, least), (used, _) = (
            watch(self.network, one, self.space.actions, self.settings.floor)
            for one in (played, greedy)
        )
        if choices:
            total, figures["least_action_p"] = choices.total(), least
            figures["greedy_actions"] = len(used)
            figures |= {f"action/{name}": choices[name] / total for name in self.space.actions}
        return figures

    def _look(self, network: Network, played: Episodes) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probs of what was done, values and entropies, all [B, S]."""
        logits_BSA, value_BS = network(played.seen_BSD)
        logp_BSA = masked_logps(logits_BSA, played.legal_BSA, self.settings.floor)
        # `where` and not a product with the mask: 0 * -inf is NaN.
        known_BSA = torch.where(played.legal_BSA, logp_BSA, 0.0)
        entropy_BS = -(known_BSA.exp() * known_BSA).sum(dim=-1)
        logp_BS = logp_BSA.gather(2, played.action_BS[..., None])[..., 0]
        # Behind the end, action 0 may be illegal; nothing is read there.
        return torch.where(played.is_done_BS, logp_BS, 0.0), value_BS, entropy_BS

    def _draw(self, rng: np.random.Generator) -> tuple[list[RetrievalControlEnv], list[Turn]]:
        """The environment and the first turn of every episode of a step, group after group."""
        settings = self.settings
        sizes = [self._open(n, 0).num_tasks(TRAIN) for n in range(len(settings.envs))]
        weights = np.array(sizes, dtype=float)
        which = rng.choice(len(weights), settings.questions, p=weights / weights.sum())
        envs: list[RetrievalControlEnv] = []
        turns: list[Turn] = []
        for number in sorted(which.tolist()):
            env = self._open(number, self.step)
            index = int(rng.integers(env.num_tasks(TRAIN)))
            envs += [env] * settings.group_size
            turns += [env.begin(TRAIN, index)] * settings.group_size
        return envs, turns

    def _open(self, number: int, done: int) -> RetrievalControlEnv:
        """The environment of a collection as it is after so many steps."""
        settings = dict(self.settings.envs[number])
        if isinstance(stages := settings.get("difficulty", ANY), Mapping):
            levels = {int(step): level for step, level in stages.items()}
            settings["difficulty"] = levels[max(step for step in levels if step <= done)]
        key = (number, str(settings.get("difficulty", ANY)))
        if key not in self._envs:
            self._envs[key] = RetrievalControlEnv(**settings)
        return self._envs[key]


def estimate(reward_BS: Tensor, value_BS: Tensor, is_done_BS: Tensor, decay: float) -> Tensor:
    """Advantages [B, S] by GAE (Schulman et al. 2016, equations 11 to 16); 0 behind the end.

        delta_t     = r_t + V_(t+1) - V_t
        advantage_t = delta_t + decay * advantage_(t+1)

    After the last choice of an episode comes 0, also where a limit ended it: the limit is part of
    the task. Nothing of one episode reaches another.
    """
    adv_BS = torch.zeros_like(value_BS)
    later_B = next_B = torch.zeros_like(value_BS[:, 0])
    for step in reversed(range(value_BS.shape[1])):
        value_B, is_done_B = value_BS[:, step], is_done_BS[:, step]
        delta_B = reward_BS[:, step] + next_B - value_B
        later_B = torch.where(is_done_B, delta_B + decay * later_B, 0.0)
        next_B = torch.where(is_done_B, value_B, 0.0)
        adv_BS[:, step] = later_B
    return adv_BS


def _mean(column_BS: Tensor, played: Episodes) -> float:
    return float(column_BS.detach()[played.is_done_BS].mean())
