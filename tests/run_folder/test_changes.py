"""Resuming: what has changed since, an epoch's end, and the rollouts of a stopped step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from reseal import reseal, unfinish
from train_toy import TOY_PLUGIN, Crash, settings

from searchrl.cli import main
from searchrl.config import build_config
from searchrl.config.packaged import EMBEDDED
from searchrl.engine.learning.checkpoint import list_checkpoints
from searchrl.errors import ChangedError
from searchrl.plugins import load_plugins
from searchrl.programs.train import train
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

    def test_data_file(self, tmp_path: Path):
        file = tmp_path / "q.jsonl"
        file.write_text("one\n")
        (text,) = self.find(self.config(questions=str(file)), lambda: file.write_text("two\n"))
        assert text.startswith(f"the data '{file}' was ") and text.endswith(" now")

    def test_file_in_a_folder_of_data(self, tmp_path: Path):
        (tmp_path / "docs" / "inner").mkdir(parents=True)
        file = tmp_path / "docs" / "inner" / "a.txt"
        file.write_text("one")
        config = self.config(corpus=str(tmp_path / "docs"))
        (text,) = self.find(config, lambda: file.rename(tmp_path / "docs" / "a.txt"))
        assert f"the data '{tmp_path / 'docs'}'" in text

    def test_text_of_an_instruction(self, tmp_path: Path):
        file = tmp_path / "instruction.txt"
        file.write_text("Search first.")
        protocol = {"name": "think-search-answer", "instruction": f"@{file}"}
        config = build_config({"tasks": [{"env": {"name": "corpus"}, "protocol": protocol}]})
        assert len(self.find(config, lambda: file.write_text("Answer at once."))) == 1

    @pytest.mark.parametrize("part", ["judge", "retriever", "protocol", "traces"])
    def test_every_part_of_a_task_may_name_data(
        self, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.chdir(tmp_path)
        file = tmp_path / "f.txt"
        file.write_text("one")
        name = {"protocol": "act", "retriever": "bm25", "judge": "lexical"}.get(part)
        task = {"env": {"name": "corpus"}, part: {"name": name, "any": ["f.txt"]}}
        config = build_config({"tasks": [task]} if name else {"sft": {"traces": "f.txt"}})
        (text,) = self.find(config, lambda: file.write_text("two"))
        assert text.startswith(f"the data '{file}' was ")

    def test_the_embedded_policy(self):
        weights = describe_sources(build_config({"model": {"name": "tiny"}}), {})["weights"]
        (name,) = weights
        assert name == EMBEDDED and len(weights[name]) == 64
        now = {"data": {}, "tasks": {}, "weights": {name: "0" * 64}}
        (text,) = find_changes({"weights": weights}, now, load_plugins())
        assert text.startswith(f"the embedded policy '{name}' was {weights[name][:12]} and")

    def test_what_was_allowed_is_recorded_behind_what_was_allowed_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        config, registry = self.config(), load_plugins()
        writer = RunWriter.create(config, tmp_path / "run")
        sources = describe_sources(config, {"toy/train": 48})
        writer.write_provenance([], changes=["earlier"], **sources)
        run, asked = Run(writer.path), list[Any]()
        monkeypatch.setattr(
            changes_module, "read_records", lambda *args: asked.append(args) or ("record",)
        )
        with monkeypatch.context() as patch:
            patch.setattr(type(registry), "changes", property(lambda self: [*self.recorded]))
            with pytest.raises(ChangedError, match="record"):
                ensure_unchanged(run, config, registry, {"toy/train": 48}, allow=False)
        assert asked == [(run.path, config.to_dict())]
        monkeypatch.setattr(changes_module, "read_records", lambda *args: ())
        assert not ensure_unchanged(run, config, registry, {"toy/train": 48}, allow=False)
        told = ensure_unchanged(run, config, registry, {"toy/train": 47}, allow=True)
        assert told["changes"][0] == "earlier" and len(told["changes"]) == 2
        assert "was 48 and is 47 now" in told["changes"][1]["what"][0]
        assert (told["tasks"], told["plugins"]) == ({"toy/train": 47}, registry.provenance())
        (writer.path / "provenance.json").write_text("{")
        assert ensure_unchanged(run, config, registry, {}, allow=False) == {}

    def test_caches_grow_while_a_run_works(self, tmp_path: Path):
        file = tmp_path / "answers.sqlite"
        file.write_text("one")
        part = {"name": "http", "cache": str(file)}
        task = {"env": {"name": "corpus", "news": part}, "retriever": part, "judge": part}
        assert self.find(build_config({"tasks": [task]}), lambda: file.write_text("more")) == []

    def test_a_cache_that_is_replayed_is_data(self, tmp_path: Path):
        file = tmp_path / "answers.sqlite"
        file.write_text("one")
        part = {"name": "exa", "cache": str(file), "replay": True}
        config = build_config({"tasks": [{"env": {"name": "corpus", "news": part}}]})
        assert len(self.find(config, lambda: file.write_text("more"))) == 1

    def test_file_that_is_gone(self, tmp_path: Path):
        file = tmp_path / "q.jsonl"
        file.write_text("one\n")
        (text,) = self.find(self.config(questions=str(file)), file.unlink)
        assert text.endswith("and is not there now")

    @pytest.mark.parametrize("place", [0, -1, 5000])
    def test_large_file_that_grew_or_changed_at_its_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
    ):
        monkeypatch.setattr(changes_module, "WHOLE_BYTES", 1000)
        monkeypatch.setattr(changes_module, "PART_BYTES", 10)
        file = tmp_path / "corpus.jsonl"
        file.write_bytes(bytes(5000))

        def change() -> None:
            data = bytearray(5000 + (place == 5000))
            data[place] = place < 5000
            file.write_bytes(data)

        assert len(self.find(self.config(corpus=str(file)), change)) == 1

    def test_number_of_tasks(self):
        before = describe_sources(self.config(), {"toy/train": 48})
        now = describe_sources(self.config(), {"toy/train": 47})
        (text,) = find_changes(before, now, load_plugins())
        assert text == "the number of tasks in split 'toy/train' was 48 and is 47 now"

    @pytest.mark.thorough
    def test_changed_plugin_is_refused_unless_that_is_allowed(
        self, micro_model: Path, tmp_path: Path
    ):
        plugin = tmp_path / TOY_PLUGIN.name
        shutil.copy(TOY_PLUGIN, plugin)
        config = settings(micro_model, tmp_path / "run", plugins=[str(plugin)], max_steps=3)
        with pytest.raises(KeyboardInterrupt):
            train(config, observer=Crash(2, "interrupt"))
        before = {path: path.read_bytes() for path in _files(tmp_path / "run")}
        plugin.write_text(plugin.read_text() + "\n# another version\n")
        with pytest.raises(ChangedError) as caught:
            train(resume=tmp_path / "run", trust=True)
        assert "plugin toy_world was " in str(caught.value)
        assert "go on with --allow-change" in str(caught.value)
        assert before == {path: path.read_bytes() for path in _files(tmp_path / "run")}
        run = train(resume=tmp_path / "run", allow_change=True, trust=True)
        (change,) = run.provenance["changes"]
        assert "plugin toy_world" in change["what"][0] and run.summary["steps"] == 3


def _files(folder: Path) -> list[Path]:
    return [
        path for path in sorted(folder.rglob("*")) if path.is_file() and ".lock" not in str(path)
    ]


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
