"""Parts to make a new algorithm of; the mathematics is that of `core`. Imports torch."""

from searchrl.core.advantage import Column as Column
from searchrl.core.advantage import StepScores as StepScores
from searchrl.core.advantage import grpo_advantages as grpo_advantages
from searchrl.core.loss import kl_penalty as kl_penalty
from searchrl.core.loss import ppo_clip_loss as ppo_clip_loss
from searchrl.core.trajectory import Origin as Origin
from searchrl.core.trajectory import Probe as Probe
from searchrl.core.trajectory import Trajectory as Trajectory
from searchrl.core.trajectory import TurnStop as TurnStop
