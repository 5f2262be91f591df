"""The package on its own: the calculator, the problems, the episode, and its place in SearchRL."""

import re

import pytest
from gymnasium.error import ResetNeeded
from searchrl_gsm_tools.calculator import CALCULATOR, MAX_CHARS, calculate
from searchrl_gsm_tools.env import GsmTools
from searchrl_gsm_tools.problems import NUM_TASKS, make_task

from searchrl import ConfigError, evaluate, load_plugins, train
from searchrl.contracts import ANSWER, SEARCH, TOOL, Action, ToolCall
from searchrl.core.drawing import find_drawings_problem
from searchrl.protocols import ThinkSearchAnswer
from searchrl.protocols.tool_call import ToolCallProtocol

PROTOCOL = ToolCallProtocol(tools=[CALCULATOR])


class TestCalculator:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("17 * 24", "408"),
            (" -(2 + 3) * 4 ", "-20"),
            ("1 / 3", "0.333333"),
            ("0.1 + 0.2", "0.3"),
            ("10 / 4", "2.5"),
            ("4 / 0.0000001", "40000000"),
            ("7 % 2 + 3", "4"),
            ("9" * 99, "9" * 99),
            ("1 / 10000000", "0"),
        ],
    )
    def test_values_are_exact(self, expression, value):
        assert calculate(expression) == value

    @pytest.mark.parametrize(
        ("expression", "error"),
        [
            ("1 / 0", "division by zero"),
            ("5 % (2 - 2)", "division by zero"),
            ("2 ** 3", "no arithmetic expression"),
            ("2 +", "no arithmetic expression"),
            ("", "write numbers"),
            (" ", "no arithmetic expression"),
            ("1 2", "no arithmetic expression"),
            ("007", "no arithmetic expression"),
            ("()", "no arithmetic expression"),
            ("7 // 2", "no arithmetic expression"),
            ("(" * 50 + "1" + ")" * 49, "no arithmetic expression"),
            ("1" * (MAX_CHARS + 1), "characters at most"),
            ("__import__('os')", "write numbers"),
            ("1e999", "write numbers"),
            ("٣ + 1", "write numbers"),
            ("1\x00", "write numbers"),
            ("1,000 + 1", "write numbers"),
        ],
    )
    def test_what_it_cannot_do_comes_back_as_text(self, expression, error):
        assert calculate(expression).startswith("Error: ") and error in calculate(expression)


class TestProblems:
    def test_a_problem_is_a_function_of_split_index_and_seed_and_in_one_split_alone(self):
        assert make_task("test", 3, 0) == make_task("test", 3, 0)
        assert make_task("test", 3, 0).question != make_task("test", 3, 1).question
        questions = {
            s: {make_task(s, i, 0).question for i in range(n)} for s, n in NUM_TASKS.items()
        }
        assert not questions["train"] & questions["test"]
        assert len(questions["train"]) > 0.9 * NUM_TASKS["train"]

    def test_every_answer_is_a_whole_positive_number_and_every_kind_occurs(self):
        tasks = [make_task("train", i, 0) for i in range(600)]
        assert all(re.fullmatch(r"[1-9]\d*", task.answers[0]) for task in tasks)
        assert {task.kind for task in tasks} == {"steps_1", "steps_2", "steps_3"}
        assert all(task.kind == f"steps_{len(task.meta['steps'])}" for task in tasks)
        assert not any("{" in task.question for task in tasks)


def call(name, **arguments):
    return PROTOCOL.render_turn(Action(TOOL, ToolCall(name, arguments)))


class TestEpisode:
    def play(self, *turns, **settings):
        env = GsmTools(protocol=PROTOCOL, **settings)
        env.reset(options={"split": "test", "index": 0})
        return [env.step(turn) for turn in turns]

    @pytest.mark.parametrize(
        ("turn", "reply"),
        [
            (call("calculator", expression="17 * 24"), "408"),
            (call("calculator", expression="1 / 0"), "division by zero"),
            (call("calculator", expression=3), "the only tool is calculator"),
            (call("calculator", expression="1", digits=2), "the only tool is calculator"),
            (call("weather"), "the only tool is calculator"),
            (PROTOCOL.render_turn(Action(SEARCH, ("apples",))), "the only tool is calculator"),
            ("forty-two", "The turn has no action"),
        ],
    )
    def test_every_turn_gets_a_reply(self, turn, reply):
        observation, reward, terminated, truncated, _ = self.play(turn)[0]
        assert reply in observation and observation.startswith("\n<tool_response>\n")
        assert (reward, terminated, truncated) == (0.0, False, False)

    def test_only_the_right_number_is_rewarded_and_turns_run_out(self):
        gold = make_task("test", 0, 0).answers[0]
        for answer, reward in ((gold, 1.0), ("17", 0.0)):
            turn = PROTOCOL.render_turn(Action(ANSWER, answer))
            assert self.play(turn)[0][1:4] == (reward, True, False)
            with pytest.raises(ResetNeeded, match="call reset"):
                self.play(turn, "more")
        assert [s[3] for s in self.play("a", "b", max_turns=2)] == [False, True]
        with pytest.raises(ResetNeeded, match="call reset"):
            self.play("a", "b", "c", max_turns=2)

    def test_mistakes_are_named(self):
        env = GsmTools(protocol=PROTOCOL)
        with pytest.raises(ConfigError, match="no split 'dev'"):
            env.reset(options={"split": "dev"})
        with pytest.raises(ConfigError, match="tasks 0 to 399, got index 400"):
            env.reset(options={"split": "test", "index": 400})
        with pytest.raises(ConfigError, match="needs --protocol tool-call"):
            GsmTools(protocol=ThinkSearchAnswer())


SETTINGS = {"env": "gsm_tools", "eval": {"num_tasks": 60}}


def test_the_script_solves_every_problem_and_calculations_are_drawn():
    registry = load_plugins(["searchrl_gsm_tools"], entry_points=False)
    result = evaluate({**SETTINGS, "policy": "scripted", "reward": "env"}, registry=registry)
    values = {name: metric["value"] for name, metric in result.metrics.items()}
    assert values["em"] == values["reward"] == values["format"] == 1.0
    assert values["passive"] == 0.0 and 1 < values["tool_calls"] < 3
    # Nothing is searched, so nothing is said about searches.
    assert not {"searched", "searches", "support_recall", "em_forced"} & set(values)
    turn = result.rollouts[0].episode.turns[0]
    assert "<tool_call>" in turn.text and "<tool_response>" in turn.observation
    assert set(turn.action.payload.arguments) == {"expression"}
    episode = next(r.episode for r in result.rollouts if len(r.episode.turns) == 3)
    (table,) = GsmTools(protocol=PROTOCOL).draw_episode(episode)
    assert find_drawings_problem([table]) == ""
    assert [row[0] for row in table.rows] == [1, 2]
    assert table.rows[-1][2] == episode.final_answer == episode.task.answers[0]
    assert [calculate(row[1]) for row in table.rows] == [row[2] for row in table.rows]


def test_a_model_is_trained_in_it(tmp_path):
    more = {
        "plugins": ["searchrl_gsm_tools"],
        "reward": "0.2*format+em",
        "model": "tiny",
        "max_steps": 2,
        "rollout": {"prompts_per_step": 2, "group_size": 2, "max_turn_tokens": 16},
        "eval": {"num_tasks": 2, "num_tasks_during": 1},
        "run_dir": str(tmp_path / "run"),
        "device": "cpu",
    }
    run = train({**SETTINGS, **more})
    assert [row["step"] for row in run.metrics if row["phase"] == "train"] == [1, 2]
    assert "passive" in run.summary["after"] and "em_forced" not in run.summary["after"]
