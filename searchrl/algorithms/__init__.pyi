from .parts import LossColumns as LossColumns
from .parts import LossSettings as LossSettings
from .parts import LossStats as LossStats
from .parts import StepScores as StepScores
from .parts import kl_penalty as kl_penalty
from .parts import ppo_clip_loss as ppo_clip_loss
from .parts import token_weights as token_weights
from .record import Algorithm as Algorithm
