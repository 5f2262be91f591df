"""What an algorithm of one's own is made of; the mathematics is that of `core`. Imports torch."""

from searchrl.core.advantage import StepScores as StepScores
from searchrl.core.loss import kl_penalty as kl_penalty
from searchrl.core.loss import ppo_clip_loss as ppo_clip_loss
