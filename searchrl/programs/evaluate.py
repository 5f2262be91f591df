"""Evaluating a policy on its own: a model, a trained run, an endpoint or a scripted policy.

Owns what `policy` may be and the Python API `evaluate`. How tasks are played and measured is
`engine/metrics/evaluation.py`. Only a model of our own needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from searchrl.api_client import Client
from searchrl.config import RunConfig, build_config
from searchrl.config.endpoint import MODEL, endpoint_address
from searchrl.config.sections import MODEL_WORDS
from searchrl.contracts import Traffic
from searchrl.engine.metrics.breakdown import measure, with_components
from searchrl.engine.metrics.evaluation import EvalResult, evaluate_both, run_episodes
from searchrl.engine.metrics.failures import FailureLimit, tell_unscored
from searchrl.engine.metrics.remarks import find_blurred_golds
from searchrl.engine.rollout.drivers import (
    make_driver,
    make_endpoint_driver,
    make_scripted_driver,
)
from searchrl.engine.rollout.rollout import RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import build_indexes, make_worlds
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.agent import run_settings
from searchrl.programs.setup.judge_cost import describe_spent, foresee_evaluation
from searchrl.programs.setup.objects import take_objects
from searchrl.retrieval.indexes import IndexCache
from searchrl.retrieval.recorded import begin_counting, count_searches, describe_searches
from searchrl.run_folder import Run, save_beside
from searchrl.screen.console import make_observer
from searchrl.screen.observer import Observer
from searchrl.trust.permission import Permission

if TYPE_CHECKING:
    from searchrl.programs.setup.planning import Plan


def script_name(policy: str) -> str | None:
    """The script a `policy` setting names: None for any other policy."""
    kind, _, name = policy.partition(":")
    return name or "expert" if kind == "scripted" else None


def needs_model(policy: str) -> bool:
    """Return True for a policy with weights here, which needs torch."""
    return script_name(policy) is None and endpoint_address(policy) is None


def resolve(
    *layers: Mapping[str, Any], run: Run | None = None, weights: str | None = None
) -> tuple[RunConfig, Plan | None]:
    """The config of a policy in settings layers, and its plan if it has weights here.

    Below the layers lie the settings of `run`, whose `weights` are a checkpoint of it.
    """
    if run is not None:
        layers = (run_settings(run, weights), *layers)
    policy = next((layer["policy"] for layer in reversed(layers) if "policy" in layer), MODEL)
    if not needs_model(str(policy)):
        return build_config(*layers), None
    from searchrl.programs.setup.planning import Plan, plan_run

    plan = plan_run(*layers) if run is None else Plan.of(build_config(*layers))
    return plan.config, plan


def evaluate(
    config: RunConfig | Mapping[str, Any] | None = None,
    *,
    observer: Observer | None = None,
    quiet: bool = False,
    registry: Registry | None = None,
) -> EvalResult:
    """Evaluate a policy on held-out tasks; the figures are those of the table of `searchrl eval`.

    Args:
        config: a resolved `RunConfig`, or settings such as `{"env": "regulations", "model":
            {"name": "tiny"}}`; `policy: scripted` and `policy: endpoint:URL` need no weights.
            Settings may hold objects, as those of `train`.
        observer: told of progress and notes; by default the display of the command.
        quiet: without an `observer`, show nothing.
        registry: loaded plugins; by default the installed ones and `config.plugins`.

    Raises:
        SearchRLError: for anything wrong with names, data or weights.
        FailureLimitError: if more than `rollout.max_failure_frac` of the episodes failed; their
            tracebacks are in the file it names.
    """
    config, registry, plan = settle(config, registry)
    begin_counting()
    with make_observer(observer, quiet=quiet) as observer:
        result = play_table(config, registry, observer.phase, plan, observer.note)
        most = config.rollout.max_failure_frac
        limit = FailureLimit("evaluation", most, save_beside, observer.note)
        limit.ensure((*result.rollouts, *result.forced), f"split '{config.eval.split}'", "eval")
    return result


def settle(
    config: RunConfig | Mapping[str, Any] | None, registry: Registry | None
) -> tuple[RunConfig, Registry, Plan | None]:
    """The config of settings, the plugins it names, and its plan if it has weights here."""
    plan = None
    config, objects = take_objects(config)
    if not isinstance(config, RunConfig):
        config, plan = resolve(config or {})
    if registry is None:
        # What it takes over from the run that `init_from` names is not what the caller wrote.
        run = config.init_from if plan else None
        registry = Permission(plan.named if plan else frozenset()).load(config, run, objects)
    if plan is not None:
        plan = plan.settled(registry)
        config = plan.config
    return config, registry, plan


@dataclass(frozen=True, slots=True)
class Player:
    """A policy that is loaded once and plays tasks of several configurations.

    Made by `open_player`. `traffic` are the requests to an endpoint so far, if one is the policy.
    """

    config: RunConfig
    registry: Registry
    driver: RolloutDriver
    script: str | None
    client: Client | None
    indexes: dict[str, IndexCache] = field(default_factory=dict, repr=False)

    def play(
        self,
        *changes: Mapping[str, Any],
        split: str,
        indices: Sequence[int] | None = None,
        **options: Any,
    ) -> EvalResult:
        """Play tasks by number, with `changes` to the settings, such as another instruction.

        `options` are those of `run_episodes`, such as `on_progress`; without numbers, `num_tasks`.
        """
        return run_episodes(
            self.make_worlds(*changes),
            self.driver,
            split=split,
            indices=indices,
            seed=self.config.seed,
            script=self.script,
            has_logps=self.client is None,
            **options,
        )

    def make_worlds(self, *changes: Mapping[str, Any]) -> list[TaskWorld]:
        """The worlds that `play` plays: their protocols, and the tasks of their splits."""
        config = with_components(build_config(self.config.to_dict(), *changes), self.registry)
        return make_worlds(config, self.registry, self.indexes)

    @property
    def traffic(self) -> Traffic | None:
        """See the class."""
        return self.client.traffic if self.client else None


@contextmanager
def open_player(
    config: RunConfig | Mapping[str, Any], registry: Registry | None = None
) -> Iterator[Player]:
    """Load the policy of a config, for as long as the context lasts; see `evaluate`."""
    config, registry, plan = settle(config, registry)
    begin_counting()
    with _open_player(config, registry, plan) as player:
        yield player


@contextmanager
def _open_player(config: RunConfig, registry: Registry, plan: Plan | None) -> Iterator[Player]:
    script, address = script_name(config.policy), endpoint_address(config.policy)
    with ExitStack() as stack:
        client = None
        if needs_model(config.policy):
            from searchrl.programs.setup.planning import Plan

            policy = (plan or Plan.of(config).settled(registry)).load_policy(trainable=False)
            driver = make_driver(policy, config, registry, config.eval)
        elif address is not None:
            client = stack.enter_context(closing(_open_client(address, config)))
            driver = make_endpoint_driver(config, client)
        else:
            driver = make_scripted_driver(config)
        driver.keeps_finished = True
        yield Player(config, registry, driver, script, client)


def play_table(
    config: RunConfig,
    registry: Registry,
    on_phase: Callable[[str, int, int], None],
    plan: Plan | None = None,
    on_note: Callable[[str], None] = lambda text: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> EvalResult:
    """Play the policy of `config`: a script, an endpoint or a model; every figure of the table.

    However many episodes fail: the caller looks at that. `plan` says where the model comes from, if
    the caller has found that out already. `on_note` hears what judges will cost, and have cost, and
    why episodes have no reward. Once `should_stop` says so, only what is finished is returned.
    """
    config = with_components(config, registry)
    settings, worlds = config.eval, make_worlds(config, registry)
    is_model = needs_model(config.policy)
    if not is_model:  # nobody can make it begin with a search
        settings = settings.model_copy(update={"forced": False})
    foreseen = foresee_evaluation(settings, worlds)
    for line in (*foreseen, *find_blurred_golds(worlds, config.normalization)):
        on_note(line)
    for world in worlds:
        wanted, there = settings.num_tasks // len(worlds), world.num_tasks(settings.split)
        if wanted > there:
            on_note(
                f"env '{world.name}' has {there} tasks in split '{settings.split}', not {wanted}"
            )
    build_indexes(worlds, on_phase)
    script = script_name(config.policy)
    if script is None and settings.num_samples > 1 and settings.temperature == 0:
        raise ConfigError(
            f"eval.num_samples = {settings.num_samples} with eval.temperature = 0: greedy "
            "episodes of one task are all the same; draw them, as with --temperature 1"
        )
    if not is_model and (served := [world.name for world in worlds if world.is_served]):
        raise ConfigError(
            f"env '{served[0]}': an agent asks a model for tokens, and '{config.policy}' has none; "
            "leave out --policy, or the agent"
        )
    with _open_player(config, registry, plan) as player:
        result = evaluate_both(
            worlds,
            player.driver,
            settings,
            seed=config.seed,
            on_phase=on_phase,
            should_stop=should_stop,
            script=script,
            has_logps=player.client is None,
            num_samples=settings.num_samples,
        )
        result = replace(result, traffic=player.traffic)
    for line in (*describe_spent(worlds), *describe_searches(count_searches({}))):
        on_note(line)
    if reasons := tell_unscored(result.rollouts):
        on_note(f"episodes without a reward:\n{reasons}")
    return replace(result, metrics=result.metrics | measure(result.rollouts))


def _open_client(address: str, config: RunConfig) -> Client:
    """The client of an endpoint. It has no forced variant: a server begins its messages itself."""
    if config.model.name in MODEL_WORDS:
        raise ConfigError(
            f"policy '{config.policy}' needs the name of a model that the server knows: "
            "--model NAME"
        )
    for key in ("top_k", "min_p"):
        if value := getattr(config.sampling, key):
            raise ConfigError(
                f"sampling.{key} = {value:g} is not sent to an endpoint, because the interface has "
                f"no such key; a server that takes it anyway: --set endpoint.extra.{key}={value:g}"
            )
    return Client(address, config.model.name, config.endpoint)
