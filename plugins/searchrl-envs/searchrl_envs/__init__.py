"""Environments of other libraries here, and ours there. Only hooks; libraries are imported late."""

from typing import Any

from searchrl import Register, hookimpl

PLUGIN_API = 2

__all__ = ["SearchRLTaskset"]  # verifiers takes the task set of `vf-eval searchrl-envs` from here


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from searchrl_envs.verifiers_adapter import SearchRLTaskset

    return SearchRLTaskset


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a scheme for each library."""
    register(
        "verifiers:",
        "searchrl_envs.verifiers_env:VerifiersEnv",
        protocol="tool-call",
        reward="env",
        description="a task set of the library verifiers: verifiers:my_taskset",
    )
