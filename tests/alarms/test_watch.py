"""The watch of a run: what sounds, how often, and that a run which is resumed hears the same."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_curves import make_watch, play, read_runs, registry, steps_of

from searchrl.alarms.watch import QUIET, Watch
from searchrl.config import build_config
from searchrl.config.alarms import BUILTIN_ALARMS, AlarmSpec
from searchrl.contracts.history import History
from searchrl.errors import ConfigError, PluginError, UnknownNameError
from searchrl.plugins import load_plugins
from searchrl.rewards.expression import RewardSchedule


def bells(**watch: Any) -> Watch:
    specs = {name: AlarmSpec.model_validate(value) for name, value in watch.items()}
    return Watch(registry(), specs, History())


def ring(watch: Watch, *steps: int) -> list[int]:
    """At which of these steps something sounds."""
    heard = []
    for step in steps:
        watch.history.add(step, "train", {"reward": {"value": 1.0}})
        heard += [one["step"] for one in watch.ask(step)]
    return heard


def test_every_built_in_alarm_watches_by_default_and_no_other() -> None:
    registered = {e.name for e in load_plugins(entry_points=False).entries() if e.kind == "alarm"}
    assert registered == {*BUILTIN_ALARMS}
    assert [*build_config().alarms.watch] == [*BUILTIN_ALARMS]


def test_it_sounds_once_while_its_trouble_lasts() -> None:
    assert ring(bells(bell={"at": 2, "lasts": 50}), *range(1, 40)) == [2]


def test_it_sounds_again_only_after_a_long_silence() -> None:
    soon, late = 3 + QUIET, 3 + QUIET + 1
    assert ring(bells(bell={"at": 3, "again": soon}), *range(1, 40)) == [3]
    assert ring(bells(bell={"at": 3, "again": late}), *range(1, 40)) == [3, late]


def test_the_action_is_that_of_the_configuration() -> None:
    for chosen, action in (("auto", "rollback"), ("stop", "stop"), ("warn", "warn")):
        watch = bells(bell={"at": 1, "asks": "rollback", "action": chosen}, chime={"at": 1})
        watch.history.add(1, "train", {})
        asked = {one["alarm"]: one["action"] for one in watch.ask(1)}
        assert asked == {"bell": action, "chime": "warn"}
    assert not ring(bells(bell="off"), 1, 2, 3, 4)


def test_begun_anew_it_has_forgotten_everything() -> None:
    watch = bells(bell={"at": 2, "lasts": 50})
    assert ring(watch, 1, 2, 3) == [2]
    watch.begin_anew()
    assert watch.history.curve("reward") == []
    assert ring(watch, 4, 5) == [4]


@pytest.mark.parametrize("asked", [1, 9, 10, 30, 40])
def test_after_a_replay_it_says_what_it_would_have_said(asked: int) -> None:
    run = read_runs("broken")["form-alone"]
    whole = play(run)
    rows = [row for _, step_rows in steps_of(run) for row in step_rows]
    watch = make_watch(run)
    kept = [{"step": s, "phase": p, "metrics": m} for s, p, m in rows if s <= asked]
    watch.replay(kept, asked)
    heard = []
    for step, step_rows in steps_of(run):
        if step > asked:
            for row in step_rows:
                watch.history.add(*row)
            heard += watch.ask(step)
    assert heard == [one for one in whole if one["step"] > asked]


def test_a_replay_leaves_out_what_came_before_the_rollback() -> None:
    watch = bells(bell={"at": 99})
    rows = [
        {"step": step, "phase": phase, "metrics": {"reward": {"value": float(step)}}}
        for step in range(1, 9)
        for phase in ("train", "during")
    ]
    watch.replay(rows, 8, anew=5)
    assert [point.step for point in watch.history.curve("reward")] == [6, 7, 8]
    assert [point.step for point in watch.history.curve("reward", "during")] == [6, 7, 8]


def test_weights_are_those_of_the_stage_of_the_reward() -> None:
    stages = {0: "format+em", 5: "0.2*format+em"}
    history = History()
    watch = Watch(registry(), {}, history, {"": RewardSchedule.parse(stages)})
    watch.ask(5)
    assert history.weights == {"": {"format": 1.0, "em": 1.0}}
    watch.ask(6)
    assert history.weights[""]["format"] == 0.2


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("'low'", "str; expected an Alert, or None"),
        ("Alert('a', 0, 'b', ('c', 'd'), 'bad')", "severity='bad'.*'notice', 'warning'"),
        ("Alert('a', 0, 'b', ('c', 'd'), 'notice', 'halt')", "action='halt'.*'rollback'"),
    ],
)
def test_what_it_returns_is_looked_at(made: str, says: str, tmp_path: Any) -> None:
    path = tmp_path / "odd.py"
    path.write_text(
        "from searchrl import hookimpl\nfrom searchrl.contracts import Alert\n"
        f"class Odd:\n    def check(self, history):\n        return {made}\n"
        "@hookimpl\ndef register_alarms(register):\n    register('odd', Odd)\n"
    )
    watch = Watch(load_plugins([str(path)]), {"odd": AlarmSpec()}, History())
    with pytest.raises(PluginError, match=f"alarm 'odd' returned .*{says}"):
        watch.ask(1)


@pytest.mark.parametrize(
    ("name", "spec", "error", "says"),
    [
        ("kl_blow_ups", {}, UnknownNameError, "'kl_blow_up'"),
        ("kl_blow_up", {"max_kll": 1}, ConfigError, "kl_blow_up.*max_kll"),
        ("kl_blow_up", {"max_kl": -1}, ConfigError, "max_kl = -1"),
        ("dead_groups", {"steps": 0}, ConfigError, "steps = 0"),
    ],
)
def test_a_wrong_name_or_setting_is_refused(
    name: str, spec: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Watch(registry(), {name: AlarmSpec.model_validate(spec)}, History())


@pytest.mark.parametrize(
    ("written", "action", "settings"),
    [
        ("stop", "stop", {}),
        (False, "off", {}),
        (None, "auto", {}),
        (True, "auto", {}),
        ({"max_kl": 3}, "auto", {"max_kl": 3}),
        ({"action": False, "max_kl": 3}, "off", {"max_kl": 3}),
    ],
)
def test_the_short_forms_of_an_entry(written: Any, action: str, settings: dict[str, Any]) -> None:
    config = build_config({"alarms": {"watch": {"kl_blow_up": written}}})
    spec = config.alarms.watch["kl_blow_up"]
    assert (spec.action, spec.settings) == (action, settings)
    assert [*config.alarms.watch] == [*BUILTIN_ALARMS]
    again = build_config(config.to_dict())
    assert again == config, "what a run writes reads as the same"
    with pytest.raises(ConfigError, match="alarms.watch.kl_blow_up = 'halt'"):
        build_config({"alarms": {"watch": {"kl_blow_up": "halt"}}})
