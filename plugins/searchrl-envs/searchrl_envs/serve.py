"""`searchrl serve-env`: any registered environment as a server of OpenEnv, played in raw turns."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from searchrl import ConfigError, parse_sets
from searchrl.api_client import HttpServer, Raised, call_together, read_key
from searchrl_envs.base import close_later, need


def make_app(name: str, make: Callable[[], Any], max_sessions: int, timeout_s: float) -> Any:
    """The application of openenv; each session has an environment of its own from `make`."""
    from openenv.core import env_server

    class Turn(env_server.Action):  # type: ignore[misc]
        text: str

    class Reply(env_server.Observation):  # type: ignore[misc]
        text: str

    class Served(env_server.Environment):  # type: ignore[misc]
        SUPPORTS_CONCURRENT_SESSIONS = True
        state: Any = env_server.State()

        def __init__(self) -> None:
            super().__init__()
            self.env = make()

        def reset(self, seed: int | None = None, episode_id: Any = None, **options: Any) -> Reply:
            prompt, info = self._call("reset", seed=seed, options=options)
            protocol = self.env.get_wrapper_attr("protocol")
            about = {"stops": list(protocol.stops), "task": getattr(info.get("task"), "id", None)}
            return Reply(text=f"{protocol.instruction}\n\n{prompt}".strip(), metadata=about)

        def step(self, action: Turn, timeout_s: float | None = None, **given: Any) -> Reply:
            text, reward, is_over, is_cut, info = self._call("step", action.text)
            about = {"truncated": is_cut, **info.get("signals", {})}
            return Reply(text=text, reward=float(reward), done=is_over or is_cut, metadata=about)

        def close(self) -> None:
            self.env.close()

        def _call(self, method: str, *args: Any, **more: Any) -> Any:
            fn = partial(getattr(self.env, method), *args, **more)
            (outcome,) = call_together([(fn, f"env {name}")], timeout_s=timeout_s)
            if isinstance(outcome, Raised):
                close_later(self.env)
                self.env = make()
                raise outcome.error
            return outcome.value

    return env_server.create_fastapi_app(Served, Turn, Reply, max_sessions, env_name=name)


@click.command("serve-env")
@click.argument("name")
@click.option(
    "--set", "sets", multiple=True, metavar="K=V",
    help="A setting, such as env.max_turns=6; may be repeated.",
)  # fmt: skip
@click.option("--plugin", "plugins", multiple=True, metavar="FILE", help="A plugin file or module.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="0: a free one."
)
@click.option("--key-env", metavar="NAME", help="Ask clients for the key in this variable.")
@click.option(
    "--max-sessions", type=click.IntRange(min=1), default=256, show_default=True,
    help="Sessions at the same time; more are refused.",
)  # fmt: skip
@click.option(
    "--timeout-s", type=click.FloatRange(min=0.001), default=60.0, show_default=True,
    help="Seconds until a step counts as failed.",
)  # fmt: skip
def serve_env(
    name: str, sets: tuple[str, ...], plugins: tuple[str, ...], host: str, port: int,
    key_env: str | None, max_sessions: int, timeout_s: float,
) -> None:  # fmt: skip
    """Serve an environment to programs that speak OpenEnv.

    reset(split="train", index=0) begins a task; its text is the whole prompt. An action is {"text":
    a turn of the model}, and gets a text and the environment's own reward. Settings are those of
    env, protocol and retriever. Only this machine is answered unless --host says otherwise.

    \b
    Example:
      searchrl serve-env regulations --set env.max_turns=6 --port 8000
    """
    need("serve-env", "openenv")
    for one in sets:
        if not one.startswith(("env.", "protocol.", "retriever.")):
            raise ConfigError(f"--set {one}: expected a key such as env.max_turns or protocol.name")
    key = read_key(key_env) if key_env else None
    if key_env and key is None:
        raise ConfigError(f"--key-env {key_env}: this environment variable is not set")
    from searchrl_envs.outside import open_world

    given = parse_sets(sets)
    env = {"name": name, **given.get("env", {})}
    world, _ = open_world({**given, "env": env, "plugins": plugins})
    world.make_env().close()  # a wrong setting is said now
    http = HttpServer(host, port, key=key)
    if not http.is_local:
        click.echo(f"warning: {host} can be reached from other machines, unencrypted", err=True)
    click.echo(f"serving {name} at {http.address} (health: {http.address}/health; Ctrl-C ends it)")
    app = make_app(name, world.make_env, max_sessions, timeout_s)
    http.make(app, ws="auto").run([http.socket])
