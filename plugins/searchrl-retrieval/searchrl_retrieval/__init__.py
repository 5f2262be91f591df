"""Search engines for real corpora, with their indexes on disk. Only hooks: nothing is loaded."""

from searchrl import Register, hookimpl

PLUGIN_API = 2

_RETRIEVERS = (
    ("bm25s", "bm25s.kind:make_bm25s", True, "BM25 from disk for corpora of any size"),
    ("http", "http.client:HttpRetriever", True, "a retrieval server of Search-R1's form"),
    ("static", "dense.kinds:make_static", True, "vectors of a static-embedding model, for laptops"),
    ("dense", "dense.kinds:make_dense", False, "vectors of a sentence-transformers model"),
    ("hybrid", "hybrid:make_hybrid", False, "a ranking by vectors and one by words, fused"),
    ("shards", "shards:ShardsRetriever", True, "one corpus that several retrievers hold in parts"),
    ("rerank", "rerank:make_rerank", False, "what another one finds, ordered by a cross-encoder"),
)
_COMMANDS = (
    ("index", "index:index", "Build an index of a corpus, look at one, or add passages to it."),
    ("retrieve", "retrieve:retrieve", "Search a corpus or an index, and print what is found."),
    (
        "retrieve-eval",
        "retrieve_eval:retrieve_eval",
        "Measure retrievers on questions with judged passages.",
    ),
    (
        "serve-retriever",
        "serve_retriever:serve_retriever",
        "Serve a retriever over HTTP, as Search-R1's server does, and over MCP.",
    ),
)


@hookimpl
def register_retrievers(register: Register) -> None:
    """The retrievers, by name: `--retriever bm25s --set retriever.title_weight=3`."""
    for name, place, is_concurrent, text in _RETRIEVERS:
        register(name, f"searchrl_retrieval.{place}", concurrent=is_concurrent, description=text)


@hookimpl
def register_commands(register: Register) -> None:
    """The commands; each is imported when it runs."""
    for name, place, text in _COMMANDS:
        register(name, f"searchrl_retrieval.commands.{place}", description=text)
