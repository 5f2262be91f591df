"""Plan-then-search: one turn plans a graph of queries over several sources. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_protocols(register: Register) -> None:
    """`dag`: think, then search with a plan or answer."""
    register(
        "dag",
        "searchrl_dag.plans.protocol:SearchDag",
        description="plan-then-search: one turn plans a graph of queries over several sources",
    )


@hookimpl
def register_rewards(register: Register) -> None:
    """Rewards and costs of plans."""
    register("dag", "searchrl_dag.rewards:make_dag", description="1 if every plan is a valid DAG")
    register(
        "dag_judge",
        "searchrl_dag.rewards:make_dag_judge",
        description="what the judge says of the answer; 0 if the plan is not valid",
    )
    register(
        "dag_sources",
        "searchrl_dag.rewards:make_sources",
        description="share of queries put to the right source; to be seen, so with weight 0",
    )
    register(
        "dag_nodes", "searchrl_dag.rewards:make_nodes", description="queries planned, for a cost"
    )


@hookimpl
def register_envs(register: Register) -> None:
    """Questions over three sources: made up, and your own."""
    register(
        "multisource",
        "searchrl_dag.multisource.env:MultisourceEnv",
        protocol="dag",
        reward="em+0.25*dag+0.25*format-0.02*dag_nodes+0*dag_sources",
        expert="searchrl_dag.multisource.scripts:make_expert",
        scripts={
            "random": "searchrl_dag.multisource.scripts:make_random",
            "passive": "searchrl_dag.multisource.scripts:make_passive",
            "cue_plan": "searchrl_dag.multisource.heuristics:make_cue_plan",
        },
        policies={"dag": "searchrl_dag:assets/tiny"},
        description="questions over General, News and Academic; a plan searches them at once",
    )
    register(
        "multisource_questions",
        "searchrl_dag.multisource.own:OwnQuestionsEnv",
        protocol="dag",
        reward="0.5*em+0.25*dag+0.25*format",
        expert="searchrl.envs.scripts:make_expert",
        description="your own questions, planned over sources that you name, such as exa",
    )


@hookimpl
def register_retrievers(register: Register) -> None:
    """`exa`: the web as a source, or as all that an environment searches."""
    register(
        "exa",
        "searchrl_dag.exa.client:ExaRetriever",
        description="web search by Exa (EXA_API_KEY)",
    )
