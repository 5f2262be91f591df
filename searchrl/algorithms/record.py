"""What an algorithm is: an advantage function, a loss function and a reduction, and its numbers.

The mathematics lives in `core`; nothing here chooses a loss by string inside a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from searchrl.config.sections import AlgorithmConfig
from searchrl.contracts import TagProtocol
from searchrl.core.advantage import AdvantageFn, TargetFn
from searchrl.core.episode import Task
from searchrl.core.group import Group, Trainable
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Trajectory

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter

    from searchrl.core.columns import LossColumns, LossStats

    LossFn = Callable[[LossColumns, LossSettings], tuple[Tensor, LossStats]]

Groups = Sequence[Group[Trainable]]


@dataclass(frozen=True, slots=True)
class Critic:
    """A value head on the policy's last hidden states: what reward it expects from here on."""

    make: Callable[[int], Module]
    """From the width of a hidden state: a module from fp32 states [N, width] to values [N]."""
    lr: float
    """Its own peak; the schedule is that of the run."""
    per_token: bool = False
    """A value before every token that the model writes; else before every turn."""
    warmup_steps: int = 0
    """First steps in which the policy does not move."""
    trains_policy: bool = False
    """The gradient of the value loss reaches the policy, too."""
    looks_ahead: bool = True
    """Advantages read the value of the next turn (or token), which must follow from this one: in a
    rollout of several segments it does not. False with γ = λ = 1."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of a step: the task that a group plays, and how many rollouts of it are sampled."""

    group_id: str
    entry: int
    """Place in the list of environments of the run."""
    level: Any
    """The difficulty, where it changes; else None."""
    index: int
    """Of the task among the training tasks of its environment."""
    num_rollouts: int


class Bench(Protocol):
    """What an algorithm may ask of the run that it trains."""

    seed: int
    protocols: Sequence[TagProtocol]
    """Of each environment of the run."""
    scorers: Sequence[Any]
    """Of each environment, too: what is scored, and between what values it lies."""
    on_note: Callable[[str], None]
    """Tells the user a sentence."""

    def tasks(self, indices: Sequence[int] | None = None) -> Iterable[tuple[int, int, Task]]:
        """Entry, index and task of the training tasks that their environments describe.

        `indices`: those alone, of each environment; None: all.
        """

    def imitate(self, entry: int, index: int, turns: Sequence[str]) -> Any:
        """Play turns that somebody wrote: the episode as a demonstration, with its reward."""

    def mean_entropies(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """Nats per token that the model wrote, under the current policy; 0 without any."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What turns scored rollouts into a gradient.

    `advantages` sees the whole optimiser step and returns one per rollout, turn or token. `loss` is
    `loss(columns, settings) -> (loss, LossStats)`, like `core.loss.ppo_clip_loss`. `reduction`
    names a `core.reduction.Reduction`; `constant` divides by `rollout.max_total_tokens`. `extend`
    may add rollouts to groups, `parameters` may add trainable ones, `state_dict` is checkpointed
    and `load_state_dict` restores it; all of these do nothing by default. So do `begin`, called
    once before the first step, `ask`, which may put other training tasks in place of prompts of a
    step or leave out rollouts, and `metrics`, which are recorded after every step. Raises TypeError
    for `targets` without a `critic`.
    """

    name: str
    advantages: AdvantageFn
    loss: LossFn
    reduction: str = "sequence-mean"
    extend: Callable[[Groups, int], Groups] = lambda groups, step: groups
    parameters: Callable[[], Iterable[Parameter]] = tuple
    state_dict: Callable[[], Mapping[str, Any]] = dict
    load_state_dict: Callable[[Mapping[str, Any]], None] = lambda state: None
    begin: Callable[[Bench], None] = lambda bench: None
    ask: Callable[[Sequence[Prompt], int], Sequence[Prompt]] = lambda prompts, step: prompts
    metrics: Callable[[], Mapping[str, float]] = dict
    off_policy: bool = False
    """Its loss reads `LossColumns.is_off_T`: `extend` may add demonstrations."""
    clip_low: float = 0.2
    """Of the algorithm, like `clip_high` and `beta`: used where the run sets none."""
    clip_high: float = 0.2
    beta: float = 1e-3
    needs_trainer_logp: bool = False
    """Old log-probs are recomputed by the trainer before the update, not the sampler's record."""
    corrects_sampler: bool = False
    """Its loss weighs each token by the trainer's probability over the sampler's: older weights may
    have sampled it (`scale.max_staleness`)."""
    trains_entropy: bool = False
    """Gradients flow through `LossColumns.entropy_T` too, which takes a second pass of the head."""
    holds_solved_groups: bool = False
    """All-correct groups, though dead, get a `LossColumns.hold_weight_T`: for LLDS."""
    max_refills: int | None = None
    """Dynamic sampling: how often groups of one constant reward are replaced by other prompts.

    None: never, and no such metric.
    """
    length_penalty: Callable[[int, int], float] | None = None
    """(tokens the model wrote, `rollout.max_total_tokens`) -> added to the reward, at most 0."""
    critic: Critic | None = None
    """Its advantages read `StepScores.values`, its loss `LossColumns.value_T`."""
    targets: TargetFn | None = None
    """What the values of a critic are to become: `LossColumns.target_T`."""
    reads_turns: bool = False
    """Its advantages read `StepScores.turn_scores` or `turn_rewards`: each turn has its own."""
    needs_token_kl: bool = False
    """Its advantages read `StepScores.token_kl`: the KL to the reference is part of the reward."""

    def __post_init__(self) -> None:
        """Raise TypeError for targets without values."""
        if self.targets is not None and self.critic is None:
            raise TypeError(
                f"algorithm '{self.name}' has targets, which are what values are to become, and "
                "nothing that has values: add critic=Critic(…)"
            )

    def resolve(self, settings: AlgorithmConfig) -> LossSettings:
        """Return the numbers of a run: its own, and the algorithm's where it sets none."""
        given = settings.clip_low, settings.clip_high, settings.beta
        own = self.clip_low, self.clip_high, self.beta
        clip_low, clip_high, beta = (
            mine if value is None else value for value, mine in zip(given, own, strict=True)
        )
        reduction = self.reduction if settings.reduction == "auto" else settings.reduction
        return LossSettings(clip_low, clip_high, beta, reduction)

    def needs_reference(self, settings: AlgorithmConfig) -> bool:
        """Whether the policy is compared with the weights it began with."""
        return self.needs_token_kl or self.resolve(settings).beta > 0

    def length_penalty_of(self, max_total_tokens: int) -> Callable[[int], float] | None:
        """Return the length penalty of a run as a function of the tokens alone."""
        penalty = self.length_penalty
        return None if penalty is None else lambda num_tokens: penalty(num_tokens, max_total_tokens)
