"""Search engines for real corpora, with their indexes on disk. Only hooks: nothing is loaded."""

from searchrl import Register, RegisterTool, hookimpl

PLUGIN_API = 2


@hookimpl
def register_retrievers(register: RegisterTool) -> None:
    """The retrievers, by name: `--retriever bm25s --set retriever.title_weight=3`."""
    register(
        "bm25s",
        "searchrl_retrieval.bm25s.kind:make_bm25s",
        description="BM25 from disk for corpora of any size: stems, stop words, a title weight",
    )
    register(
        "http",
        "searchrl_retrieval.http.client:HttpRetriever",
        description="a retrieval server of Search-R1's form, such as `searchrl serve-retriever`",
    )
    register(
        "dense",
        "searchrl_retrieval.dense.kinds:make_dense",
        concurrent=False,
        description="vectors of a sentence-transformers model, in FAISS or Chroma",
    )
    register(
        "static",
        "searchrl_retrieval.dense.kinds:make_static",
        description="vectors of a static-embedding model, for laptops",
    )
    register(
        "hybrid",
        "searchrl_retrieval.hybrid:make_hybrid",
        concurrent=False,
        description="a ranking by vectors and one by words, fused",
    )
    register(
        "rerank",
        "searchrl_retrieval.rerank:make_rerank",
        concurrent=False,
        description="what another retriever finds, ordered by a cross-encoder",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """The commands; each is imported when it runs."""
    register(
        "index",
        "searchrl_retrieval.commands.index:index",
        description="Build an index of a corpus, look at one, or add passages to it.",
    )
    register(
        "retrieve",
        "searchrl_retrieval.commands.retrieve:retrieve",
        description="Search a corpus or an index, and print what is found.",
    )
    register(
        "retrieve-eval",
        "searchrl_retrieval.commands.retrieve_eval:retrieve_eval",
        description="Measure retrievers on questions with judged passages.",
    )
    register(
        "serve-retriever",
        "searchrl_retrieval.commands.serve_retriever:serve_retriever",
        description="Serve a retriever over HTTP, as Search-R1's server does, and over MCP.",
    )
