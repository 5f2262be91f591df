"""The problems: a story, the numbers drawn for it, and the steps that solve it."""

from random import Random

from searchrl.core.episode import Task
from searchrl_gsm_tools.calculator import calculate

NUM_TASKS = {"train": 4000, "test": 400}
# Every split has people of its own: no problem of one is in the other.
NAMES = {"train": ["Ada", "Ben", "Cora", "Dov", "Elif", "Finn"], "test": ["Ines", "Jon", "Kaya"]}
KINDS = {1: "one_step", 2: "two_steps", 3: "three_steps"}

# Story; what is drawn, a range or a formula; steps, in which {r1} is the first result.
STORIES = [
    (
        "{name} carries {a} crates with {b} apples each. How many apples are that?",
        {"a": (12, 48), "b": (13, 75)},
        ["{a} * {b}"],
    ),
    (
        "{name} shares {c} stickers equally among {a} children. How many does each of them get?",
        {"a": (6, 24), "b": (13, 60), "c": "{a} * {b}"},
        ["{c} / {a}"],
    ),
    (
        "{name} buys {a} pens for {b} cents each and pays with {c} cents. How many come back?",
        {"a": (3, 19), "b": (35, 180), "d": (11, 400), "c": "{a} * {b} + {d}"},
        ["{a} * {b}", "{c} - {r1}"],
    ),
    (
        "{name} reads {a} pages a day for {b} days, then {c} pages a day for {d}. How many in all?",
        {"a": (12, 60), "b": (4, 21), "c": (12, 60), "d": (4, 21)},
        ["{a} * {b}", "{c} * {d}", "{r1} + {r2}"],
    ),
    (
        "{name} bakes {a} trays of {b} rolls. {d} burn, the rest fill bags of {c}. How many bags?",
        {"a": (8, 30), "b": (24, 48), "c": (5, 12), "d": "{a} * {b} % {c} + {c}"},
        ["{a} * {b}", "{r1} - {d}", "{r2} / {c}"],
    ),
]


def make_task(split: str, index: int, world_seed: int) -> Task:
    """Problem `index` of a split. Its steps are in `meta`, with the results left open."""
    rng = Random(f"gsm_tools/{world_seed}/{split}/{index}")
    story, drawn, steps = rng.choice(STORIES)
    values = {"name": rng.choice(NAMES[split])}
    for key, how in drawn.items():
        is_range = isinstance(how, tuple)
        values[key] = str(rng.randint(*how)) if is_range else calculate(how.format(**values))
    results = {}
    for number, step in enumerate(steps, 1):
        results[f"r{number}"] = calculate(step.format(**values, **results))
    left_open = {key: f"{{{key}}}" for key in results}
    return Task(
        id=f"gsm_tools-{world_seed}-{split}-{index}",
        split=split,
        index=index,
        question=story.format(**values),
        answers=(results[f"r{len(steps)}"],),
        kind=KINDS[len(steps)],
        env="gsm_tools",
        meta={"steps": tuple(step.format(**values, **left_open) for step in steps)},
    )
