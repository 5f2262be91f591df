"""Rollout workers and learners in a Ray cluster."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_backends(register: Register) -> None:
    """Rollout workers."""
    register(
        "ray",
        "searchrl_ray.backend:RayBackend",
        description="rollout workers are actors of a Ray cluster",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """Learners."""
    register(
        "ray-train",
        "searchrl_ray.learners:ray_train",
        description="Train in several processes that Ray Train starts.",
    )
