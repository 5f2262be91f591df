"""Making rollout drivers: from a policy and the generator a config names, scripts, or an endpoint.

Owns how the keys of a config become limits, sampling settings and a generator, and what `auto`
means for one. Only the first kind imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from searchrl.api_client import Client
from searchrl.config import RunConfig
from searchrl.config.sections import EvalConfig, RolloutConfig
from searchrl.engine.model.rendering import TextCodec
from searchrl.engine.rollout.dialogue import Limits
from searchrl.engine.rollout.rollout import RolloutDriver
from searchrl.engine.sampling.endpoint import EndpointGenerator, MessageCodec
from searchrl.engine.sampling.generator import Generator, Sampling
from searchrl.engine.sampling.scripted import ByteCodec, ScriptedGenerator
from searchrl.errors import PolicyError
from searchrl.plugins import Registry


def make_driver(
    policy: Any,
    config: RunConfig,
    registry: Registry,
    decoding: RolloutConfig | EvalConfig,
    on_note: Callable[[str], None] = lambda text: None,
) -> RolloutDriver:
    """A rollout driver on the generator that the config names.

    `decoding` is the section with the temperature and the number of dialogues decoded together.
    `on_note` is told why `auto` had to take the plain generator. PolicyError if the generator that
    was asked for cannot run this policy.
    """
    cut = config.sampling
    sampling = Sampling(decoding.temperature, cut.top_k, cut.top_p, cut.min_p)
    limits = limits_of(config)
    # Beyond its last position a model writes nonsense and raises no error.
    limits = replace(
        limits,
        max_total_tokens=min(limits.max_total_tokens, policy.max_positions),
        # All of an evaluation is waited for.
        step_timeout_s=decoding.step_timeout_s if isinstance(decoding, RolloutConfig) else None,
    )
    sizes = {"num_slots": decoding.batch_size, "max_length": limits.max_total_tokens}
    wanted = config.engine.generator
    is_auto = wanted.name == "auto"
    name = "slots" if is_auto else wanted.name
    try:
        made = registry.get("generator", name).make(policy, sampling, **sizes, **wanted.settings)
    except PolicyError as error:
        if not is_auto:
            raise
        on_note(f"generator: auto → hf ({error})")
        made = registry.get("generator", "hf").make(policy, sampling, **sizes)
    generator: Generator = made
    setting = config.engine.deterministic
    is_deterministic = policy.device.type == "cpu" if setting == "auto" else setting
    return RolloutDriver(generator, policy.renderer, limits, is_deterministic)


def make_scripted_driver(
    config: RunConfig, codec: TextCodec | None = None, limits: Limits | None = None
) -> RolloutDriver:
    """A rollout driver that replays the env's scripted policies; imports no torch.

    `limits` are by default those of the config.
    """
    codec = codec or ByteCodec()
    limits = limits or limits_of(config)
    if isinstance(codec, ByteCodec):
        # Bytes are not tokens: a script is bounded by turns, not by a token budget.
        unbounded = 1 << 30
        limits = Limits(unbounded, limits.max_observation_tokens, unbounded, limits.env_timeout_s)
    generator = ScriptedGenerator(codec)
    return RolloutDriver(generator, codec, limits)


def make_endpoint_driver(config: RunConfig, client: Client) -> RolloutDriver:
    """A rollout driver that asks an endpoint for every turn; imports no torch.

    `rollout.max_turn_tokens` bounds a turn in the server's own tokens. The server bounds the whole
    episode by its context, because nobody else can count its tokens.
    """
    unbounded = 1 << 30
    limits = replace(limits_of(config), max_total_tokens=unbounded)
    codec = MessageCodec()
    generator = EndpointGenerator(
        client, codec, temperature=config.eval.temperature, top_p=config.sampling.top_p
    )
    # Replies arrive when they arrive: nothing of an episode depends on their order.
    return RolloutDriver(generator, codec, limits, deterministic=False)


def limits_of(config: RunConfig) -> Limits:
    """The rollout limits of a config."""
    rollout = config.rollout
    return Limits(
        max_turn_tokens=rollout.max_turn_tokens,
        max_observation_tokens=rollout.max_observation_tokens,
        max_total_tokens=config.context_tokens,
        env_timeout_s=rollout.env_timeout_s,
        thinking=config.model.thinking,
    )
