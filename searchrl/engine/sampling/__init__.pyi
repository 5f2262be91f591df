from .generator import FinishedTurn as FinishedTurn
from .generator import Generator as Generator
from .generator import Handle as Handle
from .generator import OpenSequence as OpenSequence
from .generator import Sampling as Sampling
from .generator import mix_key as mix_key
from .stops import StopTable as StopTable
from .stops import vocabulary_bytes as vocabulary_bytes
