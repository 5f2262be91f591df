"""Step-format agents: analysis and query, step by step, with process rewards. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_protocols(register: Register) -> None:
    """`r3`: a turn is a step."""
    register(
        "r3",
        "searchrl_r3.protocol:StepProtocol",
        description="steps of an analysis and a query, or the final answer (R3-RAG)",
    )


@hookimpl
def register_envs(register: Register) -> None:
    """Made-up facts, two and three of them apart."""
    register(
        "facts",
        "searchrl_r3.facts:FactsEnv",
        protocol="r3",
        reward="r3",
        expert="searchrl_r3.traces:Oracle",
        policies={"r3": "searchrl_r3:assets/tiny"},
        scripts={
            "chain_regex": "searchrl_r3.solver:ChainSolver",
            "no_search": "searchrl.envs.scripts:make_no_search",
            "one_search": "searchrl.envs.scripts:make_one_search",
        },
        description="chains of two and three made-up facts, each in a passage of its own",
    )


@hookimpl
def register_rewards(register: Register) -> None:
    """Rewards of steps."""
    register("r3", "searchrl_r3.rewards:make_r3", description="the published table, per step")
    register(
        "relevance",
        "searchrl_r3.rewards:make_relevance",
        description="share of the missing gold passages that each step brought",
    )
    register(
        "rationality",
        "searchrl_r3.rewards:make_rationality",
        description="what the judge says of each query",
    )
    register(
        "coherence",
        "searchrl_r3.rewards:make_coherence",
        description="what the judge says of each analysis",
    )
    register(
        "reasoning",
        "searchrl_r3.rewards:make_reasoning",
        description="share of analyses that the judge accepts; its metric bears the judge's name",
    )
    register(
        "step_format",
        "searchrl_r3.rewards:make_step_format",
        description="share of turns that are well-formed steps",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """Demonstrations from questions."""
    register(
        "traces",
        "searchrl_r3.command:traces",
        description="Make demonstrations of steps from questions.",
    )
