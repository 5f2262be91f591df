"""Task sets of verifiers as environments, on modules that are written here."""

from pathlib import Path
from typing import Any

import pytest

import searchrl
from searchrl.contracts import ANSWER, TOOL, Action, ToolCall

pytest.importorskip("verifiers.v1", reason="verifiers is not installed")

PLUGIN = "searchrl_envs"
MODULE = """
import verifiers.v1 as vf

__all__ = ["Prices"]


class Visits(vf.State):
    num_calls: int = 0


class Shop(vf.Toolset[vf.ToolsetConfig, Visits]):
    @vf.tool
    async def price(self, item: str) -> int:
        "The price of an item."
        self.state.num_calls += 1
        return {"lamp": 7}[item]


class Row(vf.TaskData):
    answer: str = "7"


class Price(vf.Task[Row, Visits]):
    @classmethod
    def toolsets(cls, config):
        return [Shop(vf.ToolsetConfig())]

    @vf.reward(weight=2.0)
    async def right(self, trace):
        return float(trace.last_reply == self.data.answer and trace.num_turns < 5)

    @vf.metric
    async def calls(self, trace):
        return trace.state.num_calls


class Config(vf.TasksetConfig):
    num_rows: int = 10


class Prices(vf.Taskset[Price, Config]):
    def load(self):
        for number in range(self.config.num_rows):
            yield Price(Row(prompt=f"{number}: the price of a lamp?", system_prompt="Be brief."))
"""
CALL = Action(TOOL, ToolCall("shop_price", {"item": "lamp"}))


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write an importable module: the one above, with a text replaced."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, old: str = "", new: str = "") -> str:
        (tmp_path / f"{name}.py").write_text(MODULE.replace(old, new), "utf-8")
        return f"verifiers:{name}"

    return write


def test_tools_state_and_rewards_are_those_of_the_task_set(write: Any) -> None:
    env = searchrl.make_env(write("vf_prices"), plugins=[PLUGIN]).unwrapped
    assert (env.num_tasks("train"), env.num_tasks("test")) == (8, 2)
    prompt, info = env.reset(options={"split": "test", "index": 1})
    assert prompt == "Be brief.\n\n9: the price of a lamp?" and info["task"].answers == ("7",)
    assert [tool["name"] for tool in env.protocol.tools] == ["shop_price"]
    rug, sell = ToolCall("shop_price", {"item": "rug"}), ToolCall("sell")
    refusal = "sell failed: 'sell'. The tools are shop_price."
    for call, text in (CALL, "7"), (Action(TOOL, rug), "'rug'"), (Action(TOOL, sell), refusal):
        shown, reward, is_over, *_ = env.step(env.protocol.render_turn(call))
        assert text in shown and not reward and not is_over
    _, reward, is_over, _, info = env.step(env.protocol.render_turn(Action(ANSWER, "7")))
    assert (reward, is_over) == (2.0, True) and info["signals"] == {"calls": 2.0, "right": 1.0}
    env.reset(options={"split": "test", "index": 1})  # with a state of its own
    assert env.step(env.protocol.render_turn(Action(ANSWER, "8")))[4]["signals"]["calls"] == 0


def test_the_last_turn_of_a_long_episode_is_scored(write: Any) -> None:
    env = searchrl.make_env(write("vf_cut"), plugins=[PLUGIN], max_turns=2).unwrapped
    env.reset(options={"split": "train", "index": 0})
    env.step(env.protocol.render_turn(CALL))
    _, reward, is_over, is_cut, info = env.step("no turn that can be read")
    assert (reward, is_over, is_cut, info["signals"]["calls"]) == (0.0, False, True, 1.0)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("toolsets(cls, config)", "others(cls)", "no tools; use --protocol think-answer"),
        ("num_rows: int = 10", "num_rows: int = 4", "has 4 tasks, and no fifth one"),
        ("    @vf.metric", "    NEEDS_CONTAINER = True\n    @vf.metric", "needs a container"),
        ("calls(self, trace)", "calls(self, trace, runtime)", "has calls(), which needs a runtime"),
        ("    @vf.metric", "    async def setup(self, runtime): ...\n", "has setup(), which"),
        ("prompt=f", "name=f", "has prompts that are no text"),
        ("@vf.metric", "@vf.stop", "by @stop or @intercept"),
        ('"Prices"]', '"Prices", "User"]\nclass User(vf.Env): ...', "has a loop of its own, User"),
        ("def load", "def list", "not loaded: TypeError"),
    ],
)
def test_what_cannot_be_played_is_refused(
    write: Any, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    name = write(f"vf_{tmp_path.name}", old, new)
    with pytest.raises(searchrl.ConfigError) as caught:
        searchrl.make_env(name, plugins=[PLUGIN])
    assert name in str(caught.value) and problem in str(caught.value)
