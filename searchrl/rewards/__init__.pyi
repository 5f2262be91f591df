from .answers import cover_em as cover_em
from .answers import em as em
from .components import FunctionGroupReward as FunctionGroupReward
from .components import FunctionReward as FunctionReward
from .judged import ask_judge as ask_judge
from .judged import ask_ranking as ask_ranking
