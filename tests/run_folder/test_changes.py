"""Resuming: what has changed since, an epoch's end, and the rollouts of a stopped step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from reseal import reseal, unfinish

from searchrl.cli import main
from searchrl.config import build_config
from searchrl.engine.learning.checkpoint import list_checkpoints
from searchrl.errors import ChangedError
from searchrl.plugins import load_plugins
from searchrl.run_folder import Run, RunWriter
from searchrl.run_folder import changes as changes_module
from searchrl.run_folder.changes import describe_sources, ensure_unchanged, find_changes

pytestmark = pytest.mark.usefixtures("threads_restored")


class TestChanges:
    def config(self, **env: Any) -> Any:
        return build_config({"tasks": [{"env": {"name": "corpus", **env}}]})

    def find(self, config: Any, change: Any) -> list[str]:
        before = json.loads(json.dumps(describe_sources(config, {"toy/train": 48})))
        registry = load_plugins()
        assert find_changes(before, describe_sources(config, {"toy/train": 48}), registry) == []
        change()
        return find_changes(before, describe_sources(config, {"toy/train": 48}), registry)

    @pytest.mark.parametrize(
        ("part", "setting", "value", "change", "told"),
        [
            ("env", "questions", "{}/inner/a", lambda file: file.write_text("two"), ""),
            ("env", "questions", "{}/inner/a", Path.unlink, "and is not there now"),
            ("env", "corpus", "{}", lambda file: file.rename(file.parents[1] / "a"), ""),
            ("protocol", "instruction", "@{}/inner/a", lambda file: file.write_text("two"), ""),
        ],
    )
    def test_a_file_or_a_folder_of_them(
        self, tmp_path: Path, part: str, setting: str, value: str, change: Any, told: str
    ):
        (tmp_path / "inner").mkdir()
        (tmp_path / "inner" / "a").write_text("one")
        value = value.format(tmp_path)
        task = {"env": {"name": "corpus"}, "protocol": {"name": "act"}}
        task[part][setting] = value
        config = build_config({"tasks": [task]})
        (text,) = self.find(config, lambda: change(tmp_path / "inner" / "a"))
        assert text.startswith(f"the data '{value.removeprefix('@')}' was ")
        assert text.endswith(told or " now")

    def test_caches_grow_while_a_run_works(self, tmp_path: Path):
        file = tmp_path / "answers.sqlite"
        file.write_text("one")
        part = {"name": "http", "cache": str(file)}
        found = {"name": "recorded", "inner": "http", "file": str(file)}
        task = {"env": {"name": "corpus", "news": part}, "retriever": found, "judge": part}
        assert self.find(build_config({"tasks": [task]}), lambda: file.write_text("more")) == []

    def test_a_recording_that_is_replayed_is_data(self, tmp_path: Path):
        file = tmp_path / "answers.sqlite"
        file.write_text("one")
        part = {"name": "recorded", "inner": "http", "file": str(file), "replay": True}
        config = build_config({"tasks": [{"env": {"name": "corpus", "news": part}}]})
        assert len(self.find(config, lambda: file.write_text("more"))) == 1

    @pytest.mark.parametrize(("place", "size"), [(0, 5000), (-1, 5000), (2500, 5001)])
    def test_large_file_that_grew_or_changed_at_its_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, size: int
    ):
        monkeypatch.setattr(changes_module, "WHOLE_BYTES", 1000)
        monkeypatch.setattr(changes_module, "PART_BYTES", 10)
        file = tmp_path / "corpus.jsonl"
        file.write_bytes(bytes(5000))

        def change() -> None:
            data = bytearray(size)
            data[place] = size == 5000
            file.write_bytes(data)

        assert len(self.find(self.config(corpus=str(file)), change)) == 1

    def test_number_of_tasks(self):
        before = describe_sources(self.config(), {"toy/train": 48})
        now = describe_sources(self.config(), {"toy/train": 47})
        (text,) = find_changes(before, now, load_plugins())
        assert text == "the number of tasks in split 'toy/train' was 48 and is 47 now"

    def test_every_part_of_every_task_and_the_traces(self, tmp_path: Path):
        files = [tmp_path / f"{number}.txt" for number in range(6)]
        for file in files:
            file.write_text("one")
        (tmp_path / "nul").mkdir()
        names = list(map(str, files))
        tasks = [
            {"env": {"name": "corpus", "files": names[:2]}, "retriever": {"name": "bm25"}},
            {"env": "corpus", "retriever": {"name": "http", "file": names[2], "nul": "a\0b"},
             "judge": {"name": "mine", "file": names[3]}, "protocol": {"name": "act"}},
        ]  # fmt: skip
        config = build_config({"tasks": tasks, "sft": {"traces": names[4]}})
        assert [*describe_sources(config, {})["data"]] == [*names[:3], names[3], names[4]]

    def test_names_are_absolute_and_the_tiny_model_is_known_by_its_weights(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "q.jsonl").touch()
        tiny = build_config({"env": {"name": "corpus", "questions": "q.jsonl"}, "model": "tiny"})
        sources = describe_sources(tiny, {})
        assert [*sources["data"]] == [str(tmp_path / "q.jsonl")]
        assert len(sources["weights"]) == 1 and len(*sources["weights"].values()) == 64


PLUGIN = """
from searchrl import hookimpl

@hookimpl
def register_rewards(register):
    register("mine", object)
"""


def test_a_changed_run_is_refused_unless_that_is_allowed_and_then_records_it(tmp_path: Path):
    plugin, file = tmp_path / "mine.py", tmp_path / "q.jsonl"
    plugin.write_text(PLUGIN)
    file.write_text("one\n")
    env = {"name": "corpus", "questions": str(file)}
    config = build_config({"env": env, "plugins": [str(plugin)]})
    tasks, registry = {"corpus/train": 3}, load_plugins(config.plugins)
    writer = RunWriter.create(config, tmp_path / "run")
    writer.write_provenance(registry.provenance(), **describe_sources(config, tasks))
    run = Run.open(writer.path)
    assert ensure_unchanged(run, config, registry, tasks, allow=False) == {}
    for number, changed in enumerate((file, plugin), 1):
        changed.write_text(f"{changed.read_text()}# another\n")
        registry = load_plugins(config.plugins)
        with pytest.raises(ChangedError, match="the data" if changed is file else "plugin mine"):
            ensure_unchanged(run, config, registry, tasks, allow=False)
        facts = ensure_unchanged(run, config, registry, tasks, allow=True)
        assert len(facts["changes"]) == number and facts["plugins"] == registry.provenance()
        writer.update_provenance(**facts)
        assert ensure_unchanged(run, config, registry, tasks, allow=False) == {}
    (run.path / "provenance.json").write_text("{}")  # whoever reads it says so
    assert ensure_unchanged(run, config, registry, {}, allow=False) == {}


@pytest.mark.parametrize(("other", "state"), [("sft", {"step": 1}), ("train", {"demos": 2})])
def test_a_run_of_the_other_program_is_not_continued(
    micro_run: Path, tmp_path: Path, other: str, state: dict[str, int]
):
    """`sft --resume` trained the policy of a `train` run on, on demonstrations."""
    run = Path(shutil.copytree(micro_run, tmp_path / "run"))
    (list_checkpoints(run)[-1] / "state.json").write_text(json.dumps(state))
    reseal(run)
    unfinish(run)
    result = CliRunner().invoke(main, [other, "--resume", str(run)])
    way_on = {"sft": "train", "train": "sft"}[other]
    assert result.exit_code > 0
    assert f"is a run of `searchrl {way_on}`; continue it with: searchrl {way_on}" in result.output
