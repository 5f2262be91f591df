from .parts import StepScores as StepScores
from .parts import kl_penalty as kl_penalty
from .parts import ppo_clip_loss as ppo_clip_loss
from .record import Algorithm as Algorithm
from .record import Critic as Critic
