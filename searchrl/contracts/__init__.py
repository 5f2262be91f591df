"""Contracts of the plugin kinds: what a protocol, retriever, reward, tracker, alarm … must do.

Structural types (`typing.Protocol`): a plugin never has to inherit from us; the records that cross
boundaries (`Task`, `Episode`, `Passage`, …), and the checks of what crosses several of them. Other
packages know each other through this one alone; names become objects in `plugins`.
"""

from searchrl.contracts.backends import Backend
from searchrl.contracts.compacting import Context, Room
from searchrl.contracts.history import History
from searchrl.contracts.playing import Expert, TagProtocol, TokenBudget
from searchrl.contracts.problems import JUDGE_SCALE, find_passages_problem, find_verdict_problem
from searchrl.contracts.retrieving import Retriever, RetrieverFactory, StoredRetriever
from searchrl.contracts.scoring import Judge, PaidJudge
from searchrl.contracts.serving import Rendered, SampledTurn, Serving
from searchrl.contracts.settings import Address, Command, VariableName
from searchrl.contracts.traffic import Traffic
from searchrl.contracts.watching import Alert, Metric, Paired
from searchrl.core.drawing import Graph, Table
from searchrl.core.encoding import make_encodable
from searchrl.core.episode import (
    ACT,
    ANSWER,
    COMPACT,
    INVALID,
    SEARCH,
    TOOL,
    Action,
    Episode,
    EpisodeTurn,
    JudgeCase,
    Passage,
    Score,
    Task,
    ToolCall,
    Unscored,
    Verdict,
)

__all__ = [
    "ACT",
    "ANSWER",
    "COMPACT",
    "INVALID",
    "JUDGE_SCALE",
    "SEARCH",
    "TOOL",
    "Action",
    "Address",
    "Alert",
    "Backend",
    "Command",
    "Context",
    "Episode",
    "EpisodeTurn",
    "Expert",
    "Graph",
    "History",
    "Judge",
    "JudgeCase",
    "Metric",
    "PaidJudge",
    "Paired",
    "Passage",
    "Rendered",
    "Retriever",
    "RetrieverFactory",
    "Room",
    "SampledTurn",
    "Score",
    "Serving",
    "StoredRetriever",
    "Table",
    "TagProtocol",
    "Task",
    "TokenBudget",
    "ToolCall",
    "Traffic",
    "Unscored",
    "VariableName",
    "Verdict",
    "find_passages_problem",
    "find_verdict_problem",
    "make_encodable",
]
