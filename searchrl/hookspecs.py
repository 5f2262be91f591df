"""Every plugin kind, one hook each: the whole extension surface of SearchRL on one screen.

A plugin is a Python file or module with functions marked `@hookimpl` and named as below. Each
hook receives one argument, `register`, and calls it once per thing it offers. What a registered
object must be able to do is in `contracts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

import pluggy
from pydantic import Field

PLUGIN_API = 2
"""The number of this interface. A plugin may name the one it was written for in a line
`PLUGIN_API = 2`. A higher number is refused at load."""

PROJECT = "searchrl"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

HOOKS: Mapping[str, str] = {
    "env": "register_envs",
    "wrapper": "register_wrappers",
    "protocol": "register_protocols",
    "reward": "register_rewards",
    "judge": "register_judges",
    "retriever": "register_retrievers",
    "tracker": "register_trackers",
    "alarm": "register_alarms",
    "algorithm": "register_algorithms",
    "generator": "register_generators",
    "backend": "register_backends",
    "command": "register_commands",
}
"""Plugin kind -> the hook that registers it."""

Factory = Callable[..., Any] | Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
"""A callable, or the lazy string `"package.module:attribute"`, imported on first use."""

Name = Annotated[str, Field(min_length=1)]

Packaged = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*:[\w-][\w.-]*(/[\w-][\w.-]*)*$")]
"""A folder in a package: `"package:assets/tiny"`."""


class Register(Protocol):
    """The callback of every hook. Each kind takes its own options, see `OPTIONS`."""

    def __call__(
        self,
        name: str,
        factory: Factory,
        *,
        protocol: Name | None = None,
        reward: Name | None = None,
        retriever: Name | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        expert: Factory | None = None,
        scripts: Mapping[str, Factory] | None = None,
        policies: Mapping[str, Packaged] | None = None,
        is_safe: Factory | None = None,
        check: Mapping[str, Any] | None = None,
        group: bool = False,
        concurrent: bool = True,
        description: str = "",
    ) -> None:
        """Offer `factory` under `name`; `description` is one line for `searchrl plugins`."""


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "env": (
        *("protocol", "reward", "retriever", "tools"),
        *("expert", "scripts", "policies", "is_safe", "check"),
    ),
    "reward": ("group", "concurrent"),
    "retriever": ("concurrent",),
}
"""Plugin kind -> the options of `register` that it takes besides `description`."""


@hookspec
def register_envs(register: Register) -> None:
    """Offer environments.

    `register(name, factory, *, protocol, reward, retriever, tools, expert, scripts, policies,
    is_safe, check, description)`.

    `factory(*, protocol: TagProtocol, retriever: RetrieverFactory, **settings)` returns a
    `gymnasium.Env` of text. `protocol` names the tag protocol to use where a configuration names
    none (`think-search-answer` without it), `reward` the reward expression (`format+em`) and
    `retriever` the retriever (`bm25`): `--env NAME` alone then trains. `tools` are what the
    environment lets its policy call, `{"name", "description", "parameters"}` each; they are listed
    by protocols that have a setting `tools`, such as `tool-call`. Where they depend on the
    settings, the factory has a method `tools(**settings)` that returns them. `expert(env, task,
    protocol)` returns the scripted policy of one episode; `scripts` maps further names to such
    factories, for policies that are imperfect on purpose. `policies` maps protocols to small models
    that the package brings, `{"think-search-answer": "package:assets/tiny"}`: `--model tiny` means
    the one of the protocol that is played. Where the spaces are not text, the factory returns a
    `searchrl.envs.foreign.TextAdapter` around the environment. A name that ends in a colon is a
    scheme: `--env gym:FrozenLake-v1` calls the factory of `gym:` with `name="FrozenLake-v1"` added.
    `is_safe("FrozenLake-v1")` says whether such a name imports nothing but the package's own code:
    only then is it taken from somebody else's run folder. `check` are settings for
    `searchrl check`, below those of its `--set`: few tasks, if each takes long to make.
    """


@hookspec
def register_wrappers(register: Register) -> None:
    """Offer wrappers of environments: `register(name, factory)`.

    `factory(env, **settings)` returns a `gymnasium.Wrapper` of it, or another `gymnasium.Env` that
    passes on what the environment has. A configuration names it (`wrapper: NAME`, or a mapping with
    its settings). A factory may have a method `tools(**settings)`, which returns tools that the
    policy gets besides those of the environment; the wrapper answers their calls. Of a setting that
    is annotated `contracts.RetrieverFactory`, see `register_retrievers`. One that has a method
    `measure` compacts what the policy reads (`contracts.compacting`); its setting `window`, if it
    has one, is the most tokens that the policy then reads at once, at least 64, and its attribute
    `window` says the same.
    """


@hookspec
def register_protocols(register: Register) -> None:
    """Offer tag protocols: `register(name, factory)`; `factory(**settings) -> TagProtocol`."""


@hookspec
def register_rewards(register: Register) -> None:
    """Offer reward components: `register(name, factory, *, group, concurrent)`.

    `factory() -> Reward`; with `group=True` `factory() -> GroupReward`, which is called with the
    episodes of one group and returns as many scores. The name is used in reward expressions, so it
    must be a Python identifier. Components that wait (for a judge, say) are called for many
    episodes at once; `concurrent=False` forbids it. A factory with a parameter `judge` gets the
    `Judge` that the configuration names.
    """


@hookspec
def register_judges(register: Register) -> None:
    """Offer judges of answers: `register(name, factory)`; `factory(**settings) -> Judge`.

    A judge works for every reward component that takes one. A configuration names it (`judge:
    lexical`, or a mapping with its settings). Its `judge` is called by several threads at once.
    """


@hookspec
def register_retrievers(register: Register) -> None:
    """Offer retrievers: `register(name, factory, *, concurrent)`.

    `factory(passages, **settings)` returns a `Retriever`. Episodes search at the same time; with
    `concurrent=False` a retriever gets one call at a time, with all queries that wait in a batch.
    A setting that is annotated `contracts.RetrieverFactory` is another retriever: a configuration
    names it (`retriever: bm25`, or a mapping with its settings); the factory gets what makes it.
    """


@hookspec
def register_trackers(register: Register) -> None:
    """Offer trackers: `register(name, factory)`; `factory(run_dir, **settings) -> Tracker`."""


@hookspec
def register_alarms(register: Register) -> None:
    """Offer alarms: `register(name, factory)`; `factory(**settings) -> Alarm`.

    An alarm sees the metrics of every step and says when something is wrong. It watches a run that
    names it in `alarms.watch`, or with `--alarm NAME`.
    """


@hookspec
def register_algorithms(register: Register) -> None:
    """Offer algorithms: `register(name, factory)`; `factory(**settings) -> Algorithm`."""


@hookspec
def register_generators(register: Register) -> None:
    """Offer generators: what turns prompts into sampled tokens, turn by turn.

    `factory(policy, sampling, *, num_slots, max_length, **settings)` returns a
    `searchrl.engine.sampling.Generator`. It raises `PolicyError` with the reason if it
    cannot run this policy; under `engine.generator: auto` the plain one then takes its place, and
    says so.
    """


@hookspec
def register_backends(register: Register) -> None:
    """Offer backends: what has rollouts played elsewhere, such as in other processes.

    `factory(make_worker, **settings)` returns a `Backend`. `make_worker(device=None)` can be sent
    to another process. There it loads the plugins, the environments and the policy of the run, and
    returns a worker, which plays jobs. `scale.backend` names it.
    """


@hookspec
def register_commands(register: Register) -> None:
    """Offer subcommands of `searchrl`: `register(name, command)`, a `click.Command`.

    A lazy string keeps `searchrl --help` fast; `description` is then its line in the help.
    """
