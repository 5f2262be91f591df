"""Judges that ask a model, a reward that ranks groups, and a report on judges. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_judges(register: Register) -> None:
    """Models behind an address, and Google's."""
    register(
        "endpoint",
        "searchrl_judge.judge:make_endpoint",
        description="a model behind an OpenAI-compatible address, with a rubric of yours",
    )
    register(
        "gemini",
        "searchrl_judge.judge:make_gemini",
        description="a Gemini model; the key is in GEMINI_API_KEY",
    )


@hookimpl
def register_rewards(register: Register) -> None:
    """The answers of a group, compared with each other."""
    register(
        "judge_rank",
        "searchrl_judge.ranking:make_ranked",
        group=True,
        description="where the judge ranks an answer among those of its group, 0 to 1",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """A report on a judge."""
    register(
        "judge",
        "searchrl_judge.command:judge",
        description="Report how far a judge agrees with exact match, can be fooled, and costs.",
    )
