"""A person as the policy: plays one episode of an environment through the rollout driver.

Owns the generator whose turns are typed in, and the shortcuts that save typing tags. What the
person meets is exactly what a model meets: the same prompt, observations, limits and scores. No
torch. `searchrl play` supplies the reading and the writing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from searchrl.config import RunConfig
from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Action
from searchrl.core.trajectory import TurnStop
from searchrl.engine.generator import FinishedTurn, Handle, mix_key
from searchrl.engine.rollout import Interrupted, Rollout, RolloutDriver, RolloutRequest
from searchrl.engine.scripted import ByteCodec
from searchrl.engine.world import TaskWorld
from searchrl.evaluate import make_scripted_driver

SHORTCUTS = {"s": SEARCH, "a": ANSWER}
"""`s words` searches, `a words` answers; `t words` is the thought of the next of these."""

ReadLine = Callable[[], str | None]
"""Reads one line without its end; None when there is no more input."""


def read_turn(
    protocol: TagProtocol, read_line: ReadLine, complain: Callable[[str], None]
) -> str | None:
    """Read one turn: a shortcut, or raw lines up to a stop string or an empty line.

    Returns None at the end of input. `complain` is told of a shortcut the protocol cannot write.
    """
    lines: list[str] = []
    thought = ""
    while (line := read_line()) is not None:
        head, _, rest = line.partition(" ")
        if not lines and rest.strip() and head == "t":
            thought = rest.strip()
            continue
        if not lines and rest.strip() and head in SHORTCUTS:
            text = rest.strip()
            payload = (text,) if SHORTCUTS[head] == SEARCH else text
            try:
                return protocol.render_turn(Action(SHORTCUTS[head], payload), thought)
            except ValueError as error:
                complain(str(error))
                continue
        if not line.strip() and not lines:
            continue
        lines.append(line)
        if not line.strip() or any(stop in line for stop in protocol.stops):
            return "\n".join(lines).rstrip()
    return "\n".join(lines) or None


class PersonGenerator:
    """The generation contract with a person behind it; nothing is sampled."""

    def __init__(
        self, codec: ByteCodec, show: Callable[[str], None], read: Callable[[], str | None]
    ) -> None:
        self.is_left = False
        self._codec = codec
        self._show = show
        self._read = read
        self._waiting: list[Handle] = []

    def open(
        self,
        prompt_ids: Sequence[int],
        n: int,
        rng_keys: Sequence[int],
        experts: Sequence[Expert] | None = None,
    ) -> list[Handle]:
        """Show the prompt; one person plays one dialogue."""
        self._show(self._codec.decode(prompt_ids))
        return [Handle(0)]

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """Show the observation."""
        if append_ids:
            self._show(self._codec.decode(append_ids))
        self._waiting.append(handle)

    def poll(self) -> list[FinishedTurn]:
        """Read the next turn; at the end of input the person has left."""
        turns = []
        while self._waiting:
            handle = self._waiting.pop()
            text = self._read()
            self.is_left = text is None
            reason = TurnStop.EOS if text is None else TurnStop.STOP_STRING
            ids = () if text is None else tuple(self._codec.encode_plain(text))
            turns.append(FinishedTurn(handle, ids, None, reason, version=0))
        return turns

    def close(self, handle: Handle) -> None:
        """Nothing to free."""

    def sync(self, policy: object) -> int:
        """A person has no weights."""
        return 0


def play_episode(
    world: TaskWorld,
    config: RunConfig,
    *,
    index: int | None,
    show: Callable[[str], None],
    read: Callable[[], str | None],
) -> Rollout | None:
    """Play one task of `config.eval.split`; returns None if the person left before its end.

    Args:
        world: where the task comes from.
        config: limits, split and seed.
        index: number of the task; drawn from the seed if None.
        show: receives the prompt and every observation.
        read: returns the next turn, None at the end of input.
    """
    split = config.eval.split
    if index is None:
        index = random.Random(config.seed).randrange(world.num_tasks(split))
    codec = ByteCodec()
    generator = PersonGenerator(codec, show, read)
    # The limits of a script: a person, too, writes no tokens.
    driver = RolloutDriver(generator, codec, make_scripted_driver(config, codec).limits)
    request = RolloutRequest(
        group_id=f"play/{index}",
        world=world,
        split=split,
        index=index,
        rng_keys=(mix_key(config.seed, index),),
    )
    try:
        groups = driver.run([request], should_stop=lambda: generator.is_left)
    except Interrupted:
        return None
    rollout = groups[0].rollouts[0]
    return None if generator.is_left else rollout
