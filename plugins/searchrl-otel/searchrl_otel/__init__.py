"""OpenTelemetry spans of a run, sent or written: the plugin, which imports no SDK itself."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_trackers(register: Register) -> None:
    """Offer `otel`."""
    register(
        "otel",
        "searchrl_otel.tracker:OtelTracker",
        description="OpenTelemetry spans of steps, episodes, turns, calls and rewards",
    )
