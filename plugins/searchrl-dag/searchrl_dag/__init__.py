"""Plan-then-search: one turn plans a graph of queries over several sources. Only hooks."""

from searchrl import hookimpl
from searchrl.hookspecs import RegisterTool

PLUGIN_API = 2


@hookimpl
def register_retrievers(register: RegisterTool) -> None:
    """`exa`: the web as a source, or all that an environment searches."""
    register(
        "exa",
        "searchrl_dag.exa.client:ExaRetriever",
        description="web search by Exa (EXA_API_KEY), with a cache on disk that can be replayed",
    )
