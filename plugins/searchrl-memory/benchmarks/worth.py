"""Exact match with memory and procedures, without them, and with shuffled ones.

    python plugins/searchrl-memory/benchmarks/worth.py            # scripted, by task
    python plugins/searchrl-memory/benchmarks/worth.py trained    # five seeds of a small model

Files go to runs/told. The test tasks are 128 lockers of a world (`told`; 64 for a model) and 36
reports (`desk`).
"""

import statistics
import subprocess
import sys
from pathlib import Path

from searchrl import compare, evaluate, over_seeds

PACKAGE = Path(__file__).resolve().parent.parent
PLUGINS = [str(PACKAGE / "examples" / "made_up.py")]
ABLATIONS = ("none", "shuffled")


def memory(world):
    """The wrapper with a memory in which all codes of a world were kept, by the script."""
    file = Path(f"runs/told/{world}.jsonl")
    wrapper = {"name": "memory", "span": "run", "file": str(file)}
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        told = {"name": "told", "part": "tell", "world_seed": world}
        play(told, wrapper, "scripted:keeper", split="train")
    return wrapper


def play(env, wrapper, policy, *, split="test", num_tasks=256, **more):
    """Exact match by task."""
    settings = {"plugins": PLUGINS, "env": env, "wrapper": wrapper, "policy": policy, **more}
    settings["eval"] = {"split": split, "num_tasks": num_tasks, "forced": False}
    played = evaluate(settings).rollouts
    return {one.task.id: one.scored.scores["em"] for one in played}


def show(what, played):
    """Lines of a table: exact match, and the paired difference from the first, over tasks."""
    first = played.pop("found")
    print(f"{what:10} found     {statistics.mean(first.values()):.3f}")
    for name, figures in played.items():
        paired = compare({"em": first}, {"em": figures})["em"]
        print(
            f"{what:10} {name:9} {statistics.mean(figures.values()):.3f}  found minus it "
            f"{paired['value']:+.3f} [{paired['low']:+.3f}, {paired['high']:+.3f}] n {paired['n']}"
        )


def each_way(env, wrapper, policy, num_tasks, **more):
    """Exact match with what is found, and under each ablation."""
    ways = {"found": {}} | {name: {"ablation": name} for name in ABLATIONS}
    return {
        name: play(env, wrapper | changes, policy, num_tasks=num_tasks, **more)
        for name, changes in ways.items()
    }


def main(is_trained):
    """Play and show everything, of the script or of the trained models."""
    if not is_trained:
        show("told", each_way("told", memory(0), "scripted:keeper", 128))
        sops = {"name": "memory", "span": "none", "sops": str(PACKAGE / "examples" / "sops")}
        for name in ("bm25", "bm25s"):  # the second is in searchrl-retrieval
            wrapper = sops | {"retriever": name}
            show(f"desk {name}", each_way("desk", wrapper, "scripted:keeper", 36))
        return
    for world in (1, 2, 3, 4):
        memory(world)
    means = []
    for seed in range(5):
        run, config = f"runs/told/seed-{seed}", str(PACKAGE / "benchmarks" / "cold_start.yaml")
        if not Path(run).exists():
            command = ["searchrl", "sft", "--config", config, "--seed", str(seed), "--run-dir", run]
            subprocess.run(command, check=True)
        world = 10 + seed
        model = {"model": {"name": run, "instructions": False}, "num_threads": 1}
        told = {"name": "told", "world_seed": world}
        played = each_way(told, memory(world), "model", 64, **model)
        means.append({name: statistics.mean(one.values()) for name, one in played.items()})
        show(f"seed {seed}", played)
    for name in ABLATIONS:
        gain = over_seeds([one["found"] - one[name] for one in means])
        print("found minus", name, *(f"{key} {value:+.3f}" for key, value in gain.items()))


if __name__ == "__main__":
    main("trained" in sys.argv)
