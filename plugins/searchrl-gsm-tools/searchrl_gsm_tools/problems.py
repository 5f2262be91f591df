"""The problems: a story, its numbers, the steps that solve it. Nobody is in both splits."""

from random import Random

from searchrl.contracts import Task
from searchrl_gsm_tools.calculator import calculate

NUM_TASKS = {"train": 4000, "test": 400}
NAMES = {"train": ["Ada", "Ben", "Cora", "Dov", "Elif", "Finn"], "test": ["Ines", "Jon", "Kaya"]}

# Story; what is drawn, a range or a formula; steps, in which {r1} is the first result.
STORIES = [
    (
        "{name} carries {a} crates with {b} apples each. How many apples are that?",
        {"a": (12, 48), "b": (13, 75)},
        ["{a} * {b}"],
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
        values[key] = rng.randint(*how) if type(how) is tuple else calculate(how.format(**values))
    left_open = {f"r{number}": f"{{r{number}}}" for number in range(1, len(steps) + 1)}
    plan = [step.format(**values, **left_open) for step in steps]
    results = {}
    for key, step in zip(left_open, plan, strict=True):
        results[key] = calculate(step.format(**results))
    return Task(
        id=f"gsm_tools-{world_seed}-{split}-{index}",
        split=split,
        index=index,
        question=story.format(**values),
        answers=(results[f"r{len(steps)}"],),
        kind=f"steps_{len(steps)}",
        env="gsm_tools",
        meta={"steps": tuple(plan)},
    )
