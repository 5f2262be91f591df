"""An algorithm: an advantage function, a loss function, a reduction, and its numbers.

The mathematics lives in `core`; nothing here chooses a loss by string inside a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from searchrl.config.sections import AlgorithmConfig
from searchrl.contracts import TagProtocol
from searchrl.core.advantage import AdvantageFn, ColumnsFn
from searchrl.core.episode import Task
from searchrl.core.group import Group, Trainable
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Probe, Reading

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter

    from searchrl.core.columns import LossColumns, LossStats

    LossFn = Callable[[LossColumns, LossSettings], tuple[Tensor, LossStats]]

Groups = Sequence[Group[Trainable]]


class Ask(StrEnum):
    """A figure that an algorithm asks for beside rewards and the sampler's record."""

    TRAINER_LOGPS = "trainer_logps"
    """Old log-probs that the trainer computes before the update, not the sampler's record."""
    TOKEN_KL = "token_kl"
    """`StepScores.token_kl`: the KL to the reference is part of the reward."""
    TURN_REWARDS = "turn_rewards"
    """`StepScores.turn_rewards`, which are always there: a note says where they do not add up."""
    ENTROPY = "entropy"
    """A gradient through `LossColumns.entropy_T`, which takes a second pass of the head."""


@dataclass(frozen=True, slots=True)
class Critic:
    """A value head on the policy's last hidden states: what reward it expects from here on.

    Its values are in `StepScores.values` and `LossColumns.value_T`; the algorithm adds the column
    `target`.
    """

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
    """Place of the task among the training tasks of its environment."""
    num_rollouts: int


class Trainer(Protocol):
    """The run that trains, as an algorithm sees it."""

    seed: int
    protocols: Sequence[TagProtocol]
    """One for each environment of the run."""
    env_names: Sequence[str]
    """Names of these environments, as in `Trajectory.env`."""
    scorers: Sequence[Any]
    """One for each environment: it knows the components and their limits."""
    on_note: Callable[[str], None]
    """Tells the user a sentence."""

    def tasks(self, indices: Sequence[int] | None = None) -> Iterable[tuple[int, int, Task]]:
        """Entry, index and task of the training tasks that their environments describe.

        `indices`: those alone, of each environment; None: all.
        """

    def imitate(self, entry: int, index: int, turns: Sequence[str]) -> Any:
        """Play turns that somebody wrote: the episode as a demonstration, with its reward."""

    def read(self, probes: Sequence[Probe]) -> list[Reading]:
        """Log-prob and entropy of texts behind rollouts, under the current weights.

        Without a gradient, and in batches; a beginning that several probes share is computed once.
        In a run of several processes all of them must ask for the same probes.
        """


class Hooks:
    """Calls of a run beside its updates; they do nothing by default. For a subclass."""

    def begin(self, trainer: Trainer) -> None:
        """Called once, before the first step."""

    def ask(self, prompts: Sequence[Prompt], step: int) -> Sequence[Prompt]:
        """Return the prompts of a step: with other training tasks, or fewer rollouts."""
        return prompts

    def branch(self, groups: Groups, number: int) -> Sequence[tuple[Any, int]]:
        """Return rollouts of the groups to continue anew, each behind so many turns of its episode.

        Called for round `number`, from 0, until it returns none; the new rollouts are then in the
        groups. 0 turns begin anew. An environment plays the kept turns again; if it replies in
        other words, the episode fails. The turns that a rollout kept belong to its `parent`.
        """
        return ()

    def extend(self, groups: Groups, step: int) -> Groups:
        """Return the groups of a step; rollouts may have been added."""
        return groups

    def parameters(self) -> Iterable[Parameter]:
        """Return trainable parameters of the algorithm's own."""
        return ()

    def metrics(self) -> Mapping[str, float]:
        """Return figures that are recorded after every step."""
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        """Return what a checkpoint keeps."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Turns scored rollouts into a gradient.

    `advantages` sees the whole optimiser step and returns one per rollout: a number, or a `Column`
    per turn or token. `loss` is `loss(columns, settings) -> (loss, LossStats)`, like
    `core.loss.ppo_clip_loss`. `reduction` names a `core.reduction.Reduction`; `constant` divides by
    `rollout.max_total_tokens`.
    """

    name: str
    advantages: AdvantageFn
    loss: LossFn
    reduction: str = "sequence-mean"
    clip_low: float = 0.2
    """Default, like `clip_high` and `beta`, for runs that set none."""
    clip_high: float = 0.2
    beta: float = 1e-3
    asks: Collection[str] = ()
    """Figures (`Ask`) that are computed for it."""
    columns: ColumnsFn = lambda step: {}
    """Columns of its own for the loss, which reads them as `columns["name"]`."""
    terms: Sequence[str] = ()
    """Columns that weigh a further term of the loss: 1 at its tokens, 0 at others. The packer
    divides each by a denominator of its own."""
    critic: Critic | None = None
    hooks: Hooks = field(default_factory=Hooks)
    off_policy: bool = False
    """Its loss reads `LossColumns.is_off_T`: `Hooks.extend` may add demonstrations."""
    corrects_sampler: bool = False
    """Its loss weighs each token by the trainer's probability over the sampler's: older weights may
    have sampled it (`scale.max_staleness`)."""
    max_refills: int | None = None
    """Dynamic sampling: how often groups of one constant reward are replaced by other prompts.

    None: never, and no such metric.
    """
    length_penalty: Callable[[int, int], float] | None = None
    """(tokens the model wrote, `rollout.max_total_tokens`) -> added to the reward, at most 0."""

    def __post_init__(self) -> None:
        """Raise ValueError for a figure that nobody knows."""
        if unknown := set(self.asks) - {*Ask}:
            known = ", ".join(Ask)
            raise ValueError(f"algorithm '{self.name}' asks for {unknown.pop()!r}; known: {known}")

    @property
    def branches(self) -> bool:
        """True if its hooks let rollouts branch."""
        return type(self.hooks).branch is not Hooks.branch

    def resolve(self, settings: AlgorithmConfig) -> LossSettings:
        """Return the numbers of a run: its own, and the algorithm's where it sets none."""
        given = settings.clip_low, settings.clip_high, settings.beta
        defaults = self.clip_low, self.clip_high, self.beta
        clip_low, clip_high, beta = (
            mine if value is None else value for value, mine in zip(given, defaults, strict=True)
        )
        reduction = self.reduction if settings.reduction == "auto" else settings.reduction
        return LossSettings(clip_low, clip_high, beta, reduction)

    def needs_reference(self, settings: AlgorithmConfig) -> bool:
        """Return True where the policy is compared with the weights it began with."""
        return Ask.TOKEN_KL in self.asks or self.resolve(settings).beta > 0

    def length_penalty_of(self, max_total_tokens: int) -> Callable[[int], float] | None:
        """Return the length penalty of a run as a function of the tokens alone."""
        penalty = self.length_penalty
        return None if penalty is None else lambda num_tokens: penalty(num_tokens, max_total_tokens)
