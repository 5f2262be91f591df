"""A plugin in one file: an environment with its scripted expert, and a reward component.

    searchrl eval  --plugin examples/03_my_plugin.py --env capitals --policy scripted
    searchrl train --plugin examples/03_my_plugin.py --env capitals --reward format+em+0.1*frugal

Or let it play itself: python examples/03_my_plugin.py
"""

from searchrl import hookimpl
from searchrl.contracts import ANSWER, SEARCH, Action, Passage, Task
from searchrl.envs import TextEnv
from searchrl.rewards import FunctionReward

CAPITALS = """
Auvelia: Tessamor. Brinland: Ostrey. Cavor: Lindasund. Dramovia: Halvet. Elland: Norrick.
Farosia: Quillmere. Gretonia: Vasht. Holmark: Yarrow Bay. Istria Minor: Pellan. Jorvin: Kesten.
"""
PAIRS = [entry.strip().split(": ") for entry in CAPITALS.replace("\n", " ").split(".")[:-1]]


class Capitals(TextEnv):
    """Which town is the capital of an invented country? Only a search can tell."""

    name = "capitals"

    def num_tasks(self, split):
        return len(PAIRS) // 2

    def make_task(self, split, index):
        number = 2 * index + (split == "test")  # no country is in both splits
        country, capital = PAIRS[number]
        return Task(
            id=f"capitals-{number}",
            split=split,
            index=index,
            question=f"What is the capital of {country}?",
            answers=(capital,),
            gold_ids=(country,),
            env=self.name,
        )

    def passages(self, task):
        return "capitals", [
            Passage(id=country, title=country, text=f"The government of {country} sits in {town}.")
            for country, town in PAIRS
        ]


class Expert:
    """The scripted policy of one episode: search once, then answer."""

    def __init__(self, env, task, protocol):
        self.task, self.protocol = task, protocol
        self.has_searched = False

    def act(self, observation):
        if self.has_searched:
            return self.protocol.render_turn(Action(ANSWER, self.task.answers[0]), "Found it.")
        self.has_searched = True
        return self.protocol.render_turn(Action(SEARCH, (self.task.gold_ids[0],)), "I look it up.")


def frugal(episode):
    """1 if the agent searched once and no more."""
    return float(episode.num_searches == 1)


@hookimpl
def register_envs(register):
    register("capitals", Capitals, expert=Expert, description="capitals of invented countries")


@hookimpl
def register_rewards(register):
    register("frugal", lambda: FunctionReward("frugal", frugal, values=(0.0, 1.0)))


if __name__ == "__main__":
    import searchrl

    result = searchrl.evaluate(
        {
            "plugins": [__file__],
            "env": "capitals",
            "reward": "format+em+0.1*frugal",
            "policy": "scripted",
        }
    )
    for turn in result.rollouts[0].episode.turns:
        print(turn.text, turn.observation, sep="")
    for name in ("reward", "format", "em", "frugal", "passive"):
        metric = result.metrics[name]
        print(f"{name:>8} {metric['value']:.2f}  [{metric['low']:.2f}, {metric['high']:.2f}]")
