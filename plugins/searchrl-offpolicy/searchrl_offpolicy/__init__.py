"""GRPO that also learns from what it did not sample now: demonstrations, replay, or both."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_algorithms(register: Register) -> None:
    """Offer `luffy`, `exgrpo` and `hybrid`."""
    register(
        "luffy",
        "searchrl_offpolicy.algorithm:make_luffy",
        description="groups with a demonstration in them (LUFFY)",
    )
    register(
        "exgrpo",
        "searchrl_offpolicy.algorithm:make_exgrpo",
        description="groups with an earlier success in them (ExGRPO)",
    )
    register(
        "hybrid",
        "searchrl_offpolicy.algorithm:make_hybrid",
        description="both: demonstrations where there are some, and earlier successes",
    )
