"""What training does about alarms: it records, shows, stops, and returns to the best checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from train_toy import TOY_PLUGIN, Crash, PowerCut, assert_same_run, assert_same_weights, settings

from searchrl.cli import main
from searchrl.config.alarms import BUILTIN_ALARMS
from searchrl.engine.learning import checkpoint as checkpoint_module
from searchrl.engine.learning.checkpoint import list_checkpoints, read_state
from searchrl.engine.model.optimizers import learning_rate
from searchrl.errors import AlarmStop, PluginError
from searchrl.programs import training_run
from searchrl.programs.alarms import AlarmDesk
from searchrl.programs.train import train
from searchrl.run_folder import Run, RunWriter

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("threads_restored")]

BELLS = Path(__file__).resolve().parents[1] / "fixtures" / "bells.py"


class Heard(Crash):
    """Keeps the rows of alarms too, each with the step that was finished last."""

    def __init__(self, step: int = -1, how: str = "power") -> None:
        super().__init__(step, how)
        self.alarms: list[str] = []

    def alarm(self, row: Mapping[str, Any]) -> None:
        self.alarms.append(f"{row['alarm']}@{row['step']}")


def config(micro_model: Path, run_dir: Path, **watch: Any) -> dict[str, Any]:
    """The toy run with all built-in alarms off, and these on."""
    more = watch.pop("more", {})
    made = settings(
        micro_model,
        run_dir,
        plugins=[str(TOY_PLUGIN), str(BELLS)],
        **{key: value for key, value in more.items() if key != "alarms"},
    )
    return made | {"alarms": {"watch": QUIET | watch} | more.get("alarms", {})}


QUIET = dict.fromkeys(BUILTIN_ALARMS, "off")


def rows(run: Run) -> list[str]:
    return [f"{row['alarm']}@{row['step']}" for row in run.alarms]


class TestWarning:
    def test_it_is_recorded_shown_at_once_and_in_the_summary(self, micro_model, tmp_path):
        heard = Heard()
        run = train(config(micro_model, tmp_path / "run", bell={"at": 2}), observer=heard)
        assert heard.alarms == rows(run) == ["bell@2"]
        (row,) = run.alarms
        assert row == {
            "step": 2, "alarm": "bell", "severity": "notice", "action": "warn", "since": 2,
            "what": "the bell rings", "why": "it is a test", "tries": ["listen", "listen again"],
        }  # fmt: skip
        assert run.summary["alarms"] == [row]

    @pytest.mark.parametrize(("chime", "crash", "again"), [(4, 5, []), (5, 6, ["chime@5"])])
    def test_a_resumed_run_does_not_repeat_it(
        self, chime: int, crash: int, again: list[str], micro_model, tmp_path
    ):
        """It goes on from step 2 or 4; in the last case the chime was recorded after that."""
        watch = {"bell": {"at": 2, "lasts": 5}, "chime": {"at": chime}}
        with pytest.raises(PowerCut):
            train(config(micro_model, tmp_path / "run", **watch), observer=Heard(crash))
        if crash > chime:
            assert rows(Run.open(tmp_path / "run")) == ["bell@2", f"chime@{chime}"]
        heard = Heard()
        run = train(resume=tmp_path / "run", observer=heard)
        assert rows(run) == ["bell@2", f"chime@{chime}"]
        assert heard.alarms == again

    def test_an_alarm_that_raises_names_its_plugin(self, micro_model, tmp_path):
        with pytest.raises(PluginError, match=r"alarm 'broken' failed in check\(\) at step 2") as e:
            train(config(micro_model, tmp_path / "run", broken="auto"))
        assert "--set alarms.watch.broken=off" in str(e.value)
        assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] == 2


class TestStop:
    def test_it_keeps_a_checkpoint_and_its_last_line_says_how_to_continue(
        self, whole_run: Run, micro_model, tmp_path
    ):
        made = config(micro_model, tmp_path / "run", bell={"asks": "stop", "at": 3})
        heard = Heard()
        with pytest.raises(AlarmStop) as caught:
            train(made, observer=heard)
        assert heard.alarms == ["bell@3"]
        assert heard.notes[-1] == str(caught.value)
        assert (
            "alarm 'bell'" in heard.notes[-1] and f"--resume {tmp_path / 'run'}" in heard.notes[-1]
        )
        assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] == 3
        again = Heard()
        run = train(resume=tmp_path / "run", observer=again)
        assert again.alarms == [] and rows(run) == ["bell@3"]
        assert_same_run(whole_run, run)


def test_on_the_command_line_a_stop_is_no_error_and_the_last_line_is_the_way_on(
    micro_model, tmp_path
):
    made = config(micro_model, tmp_path / "run", bell={"asks": "warn", "at": 2})
    (tmp_path / "made.yaml").write_text(yaml.safe_dump(made))
    flags = ["--config", str(tmp_path / "made.yaml"), "--alarm", "bell=stop"]
    done = CliRunner().invoke(main, ["train", *flags])
    assert done.exit_code == 4, done.output
    assert "Error" not in done.output and "Traceback" not in done.output
    last = done.output.strip().splitlines()[-1]
    assert last.endswith(f"searchrl train --resume {tmp_path / 'run'}") and "alarm 'bell'" in last


def rolled(micro_model: Path, run_dir: Path, **more: Any) -> dict[str, Any]:
    """A run that returns to its best checkpoint after step 5; the best one is that of step 3."""
    bell = {"asks": "rollback", "at": 5} | more.pop("bell", {})
    more = {"max_steps": 8, "optim": {"schedule": "constant"}, **more}
    return config(micro_model, run_dir, bell=bell, more=more)


@pytest.fixture
def best_at_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward of an evaluation depends on its step alone: 3 is the best."""
    real = training_run.evaluate_both

    def evaluate(*args: Any, **more: Any) -> Any:
        result = real(*args, **more)
        value = {3: 0.9}.get(more["step"], 0.1)
        result.metrics["reward"] = result.metrics["reward"] | {"value": value}
        return result

    monkeypatch.setattr(training_run, "evaluate_both", evaluate)


@pytest.mark.usefixtures("best_at_3")
class TestRollback:
    def test_it_returns_to_the_best_checkpoint_with_a_lower_rate(
        self, micro_model, tmp_path, monkeypatch: pytest.MonkeyPatch
    ):
        saved: dict[int, Path] = {}
        real = checkpoint_module.save_checkpoint

        def save(run_dir: Path, policy: Any, learner: Any, state: Any, **how: Any) -> Path:
            folder = real(run_dir, policy, learner, state, **how)
            copy = tmp_path / f"saved_{state['step']}"
            if not copy.exists():
                policy.save(copy)
            saved[state["step"]] = copy
            return folder

        monkeypatch.setattr(training_run, "save_checkpoint", save)
        made = rolled(micro_model, tmp_path / "run", optim={"schedule": "cosine"})
        run = train(made)
        assert_same_weights(saved[3], saved[5])
        lrs = {r["step"]: r["lr"] for r in run.metrics if r["phase"] == "train"}
        assert [*lrs] == [1, 2, 3, 4, 5, 6, 7, 8], "steps go on; none is done twice"
        schedule = [learning_rate(1e-2, n, run.config.optim, 8) for n in range(8)]
        scales = [lr / usual for lr, usual in zip(lrs.values(), schedule, strict=True)]
        assert scales == pytest.approx([1.0] * 5 + [0.5] * 3), "so does the schedule"
        versions = [r["policy_version"] for r in run.rollouts("train")]
        assert versions == sorted(versions) and len({*versions}) == 8
        counts = [r.get("rollbacks") for r in run.metrics if r["phase"] == "train"]
        assert counts == [None] * 5 + [1.0] * 3
        done = [{"step": 5, "to": 3, "alarm": "bell", "lr_scale": 0.5}]
        assert run.provenance["rollbacks"] == done
        assert read_state(list_checkpoints(run.path)[-1])["rollbacks"] == done
        assert [row["action"] for row in run.alarms] == ["rollback"]

    @pytest.mark.parametrize("where", ["load", "anew", "checkpoint", "later"])
    def test_a_kill_at_any_point_of_it_is_safe(
        self, where: str, micro_model, tmp_path, monkeypatch: pytest.MonkeyPatch
    ):
        whole = train(rolled(micro_model, tmp_path / "whole"))
        real_update, real_heed = RunWriter.update_provenance, AlarmDesk.heed

        def load(*args: Any, **more: Any) -> Any:
            raise PowerCut

        def anew(writer: RunWriter, **facts: Any) -> None:
            if "rollbacks" in facts:
                raise PowerCut
            real_update(writer, **facts)

        def checkpoint(desk: AlarmDesk, *args: Any) -> bool:
            if real_heed(desk, *args):
                raise PowerCut
            return False

        places = {
            "load": ("searchrl.programs.alarms.load_checkpoint", load),
            "anew": ("searchrl.run_folder.RunWriter.update_provenance", anew),
            "checkpoint": ("searchrl.programs.alarms.AlarmDesk.heed", checkpoint),
        }
        with monkeypatch.context() as patch, pytest.raises(PowerCut):
            if where in places:
                patch.setattr(*places[where])
            observer = Heard(6 if where == "later" else -1)
            train(rolled(micro_model, tmp_path / "run"), observer=observer)
        run = train(resume=tmp_path / "run")
        assert_same_run(whole, run)
        assert run.alarms == whole.alarms
        assert run.provenance["rollbacks"] == whole.provenance["rollbacks"]

    def test_it_is_done_so_many_times_and_then_stops(self, micro_model, tmp_path):
        made = rolled(
            micro_model,
            tmp_path / "run",
            bell={"at": 4, "again": 6},
            alarms={"max_rollbacks": 1, "rollback_lr": 0.1},
        )
        with pytest.raises(
            AlarmStop, match=r"has returned once already \(alarms.max_rollbacks=1\)"
        ):
            train(made)
        run = Run.open(tmp_path / "run")
        assert rows(run) == ["bell@4", "bell@6"]
        assert [one["lr_scale"] for one in run.provenance["rollbacks"]] == [0.1]
