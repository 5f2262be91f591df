"""Which turn earned the reward: the answers of six papers, as algorithms. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2

ALGORITHMS = {
    "tree_grpo": ("trees:make_tree_grpo", "Tree-GRPO (2509.21240): branches at random turns"),
    "arpo": ("trees:make_arpo", "ARPO (2507.19849): branches where a turn begins uncertain"),
    "at2po": (
        "surprise:make_at2po",
        "AT2PO (2601.04767): branches at surprising turns, and values",
    ),
    "igpo": ("gain:make_igpo", "IGPO (2510.14967): gain in the probability of the gold answer"),
    "gigpo": ("groups:make_gigpo", "GiGPO (2505.10978): turns that saw the same are compared"),
    "gdpo": ("groups:make_gdpo", "GDPO (2601.05242): each reward component normalised by itself"),
}


@hookimpl
def register_algorithms(register: Register) -> None:
    """Offer the algorithms by the names of their papers."""
    for name, (place, description) in ALGORITHMS.items():
        register(name, f"searchrl_credit.{place}", description=description)


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a world in which one turn decides."""
    register(
        "credit",
        "searchrl_credit.world:CreditEnv",
        expert="searchrl_credit.world:Clerk",
        scripts={"habit": "searchrl_credit.world:make_habit"},
        description="letters of an archive: five turns, of which the second decides",
    )
