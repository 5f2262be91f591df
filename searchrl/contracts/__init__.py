"""Contracts of the plugin kinds: what a protocol, retriever, reward, tracker, alarm … must do.

Structural types (`typing.Protocol`): a plugin never has to inherit from us; and the checks of what
crosses several boundaries. Parts on floor 1 know each other through this room alone; names become
objects in `plugins`. All names are imported from here: `from searchrl.contracts import Reward`.
"""

from searchrl.contracts.playing import Drawer, Expert, ExpertFactory, TagProtocol, TokenBudget
from searchrl.contracts.problems import (
    JUDGE_SCALE,
    MAX_REWARD,
    find_action_problem,
    find_alert_problem,
    find_passages_problem,
    find_ranks_problem,
    find_slice_problem,
    find_task_problem,
    find_verdict_problem,
)
from searchrl.contracts.retrieving import (
    RankingRetriever,
    Retriever,
    RetrieverFactory,
    StoredRetriever,
)
from searchrl.contracts.scoring import GroupReward, Judge, PaidJudge, RankingJudge, Reward
from searchrl.contracts.settings import (
    Account,
    Address,
    Command,
    FilePath,
    ModuleName,
    NeedsTrust,
    VariableName,
    Weights,
)
from searchrl.contracts.traffic import Traffic
from searchrl.contracts.watching import Alarm, Metric, Paired, Tracker

__all__ = [
    "JUDGE_SCALE",
    "MAX_REWARD",
    "Account",
    "Address",
    "Alarm",
    "Command",
    "Drawer",
    "Expert",
    "ExpertFactory",
    "FilePath",
    "GroupReward",
    "Judge",
    "Metric",
    "ModuleName",
    "NeedsTrust",
    "PaidJudge",
    "Paired",
    "RankingJudge",
    "RankingRetriever",
    "Retriever",
    "RetrieverFactory",
    "Reward",
    "StoredRetriever",
    "TagProtocol",
    "TokenBudget",
    "Tracker",
    "Traffic",
    "VariableName",
    "Weights",
    "find_action_problem",
    "find_alert_problem",
    "find_passages_problem",
    "find_ranks_problem",
    "find_slice_problem",
    "find_task_problem",
    "find_verdict_problem",
]
