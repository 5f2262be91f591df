"""One episode of `regulations`, token by token: who wrote each one, and which are trained.

A script plays the part of the model, so this needs no GPU and no weights. Tokens are those of the
embedded tiny model if it is there, UTF-8 bytes otherwise; the trajectory is the same either way.

Run: python examples/01_scripted_episode.py [NUMBER OF THE TASK]
"""

import sys
from itertools import groupby

from searchrl import load_plugins
from searchrl.config import build_config
from searchrl.core.trajectory import Author, Trajectory
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_scripted_driver
from searchrl.engine.rollout.rollout import TextCodec
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.scripted import ByteCodec

COLOURS = {Author.PROMPT: "\033[2m", Author.MODEL: "\033[32m", Author.ENV: "\033[33m"}
RESET = "\033[0m"


def load_codec() -> TextCodec:
    """The embedded model's tokenizer, or bytes where there is none."""
    from importlib import resources

    folder = resources.files("searchrl") / "assets" / "tiny"
    if not (folder / "tokenizer.json").is_file():
        return ByteCodec()
    from transformers import AutoTokenizer

    from searchrl.engine.model.rendering import Renderer

    return Renderer(AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False))


def show(trajectory: Trajectory, codec: TextCodec, is_colour: bool) -> None:
    """Print the trajectory: a block per author, `·` between tokens, and the mask."""
    between = "" if isinstance(codec, ByteCodec) else "·"
    position = 0
    for (turn, author), steps in groupby(trajectory, key=lambda step: (step.turn, step.author)):
        ids = [step.id for step in steps]
        mask = int(author is Author.MODEL)
        where = f"tokens {position}-{position + len(ids) - 1}"
        print(f"{author.name:<6} turn {turn:>2}  {where:<18} mask {mask} × {len(ids)}")
        position += len(ids)
        text = between.join(codec.decode([i]) for i in ids) if between else codec.decode(ids)
        for line in text.strip("\n").split("\n"):
            print(f"  {COLOURS[author]}{line}{RESET}" if is_colour else f"  {line}")


def main() -> None:
    index = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    config = build_config({"env": "regulations", "protocol": {"instruction": ""}})
    world = make_worlds(config, load_plugins())[0]
    codec = load_codec()
    request = RolloutRequest(
        group_id="example",
        world=world,
        split="test",
        index=index,
        rng_keys=(0,),
        script=world.script("expert"),
    )
    rollout = make_scripted_driver(config, codec).run([request])[0].rollouts[0]
    trajectory, episode = rollout.trajectory, rollout.episode

    show(trajectory, codec, sys.stdout.isatty())
    print()
    print(f"{len(trajectory)} tokens, {trajectory.num_model_tokens} of them written by the model.")
    print("Only these have mask 1: the prompt and what the search engine said get no gradient.")
    print(f"answer {episode.final_answer!r}, expected {episode.task.answers[0]!r}")
    print(f"scores {dict(rollout.scored.scores)}, reward {rollout.scored.reward}")
    # A script samples nothing, so there are no log-probs: absent, not 0.
    assert set(trajectory.sampler_logps) == {None}
    # What was encoded is what is stored; text is derived from ids, never the other way round.
    assert trajectory.generated_text == codec.decode(trajectory.ids[trajectory.num_prompt_tokens :])


if __name__ == "__main__":
    main()
