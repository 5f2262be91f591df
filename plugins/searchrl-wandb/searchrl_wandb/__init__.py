"""Weights & Biases as a tracker of SearchRL: the plugin, which imports no `wandb` itself."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_trackers(register: Register) -> None:
    """Offer `wandb`."""
    register(
        "wandb",
        "searchrl_wandb.tracker:WandbTracker",
        description="Weights & Biases, online or offline; a resumed run continues there",
    )
