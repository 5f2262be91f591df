"""Files: notes of a run and folders of procedures, right and wrong, and the command."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from searchrl_memory.command import sop
from searchrl_memory.notes import Note, NoteFile
from searchrl_memory.procedures import find_procedures, load_procedures

from searchrl import ConfigError
from searchrl.retrieval import BM25Retriever

SOPS = Path(__file__).resolve().parent.parent / "examples" / "sops"
RIGHT = {"name": "n", "description": "d", "trigger": "t", "steps": [{"action": "a"}]}


ADD = """
import sys
from searchrl_memory.notes import Note, NoteFile
file = NoteFile(sys.argv[1])
print("ready", flush=True)
name = input()
for n in range(200):
    file.add(Note(text=name * 9999, task=f"{name}{n}"))  # long: so the two meet
    print(f"{name}{n}", flush=True)
"""


def adding(file):
    """A process that adds notes to a file; a letter lets it begin."""
    command, pipe = [sys.executable, "-c", ADD, str(file)], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


class TestNotes:
    def test_two_processes_add_to_one_file_and_lose_no_note(self, tmp_path):
        reader = NoteFile(str(tmp_path / "kept.jsonl"))
        with adding(reader.path) as one, adding(reader.path) as two:
            for process, name in ((one, "a"), (two, "b")):
                print(name, file=process.stdin, flush=True)
            assert one.wait() == two.wait() == 0
        tasks = [note.task for note in reader.read()]
        for name in "ab":
            assert [task for task in tasks if task[0] == name] == [f"{name}{n}" for n in range(200)]
        assert reader.path.stat().st_mode & 0o077 == 0

    def test_a_kill_loses_no_note_that_was_confirmed(self, tmp_path):
        file = tmp_path / "kept.jsonl"
        with adding(file) as process:
            print("a", file=process.stdin, flush=True)
            confirmed = [process.stdout.readline().strip() for _ in range(5)]
            os.kill(process.pid, signal.SIGKILL)
        file.write_bytes(file.read_bytes() + b'{"text": "half')  # whatever it left
        notes = NoteFile(str(file))
        assert [note.task for note in notes.read()][:5] == confirmed
        notes.add(Note(text="first\nline"))
        assert NoteFile(str(file)).read()[-1].text == "first\nline"

    def test_a_file_that_became_shorter_is_named_and_left_as_it_is(self, tmp_path):
        notes = NoteFile(str(tmp_path / "kept.jsonl"))
        notes.add(Note(text="first"))
        whole = notes.read() and notes.path.read_bytes()
        notes.path.write_bytes(whole[:-9])
        for use in (notes.read, lambda: notes.add(Note(text="third"))):
            with pytest.raises(ConfigError, match="kept.jsonl' became shorter .* back, or"):
                use()
        assert notes.path.read_bytes() == whole[:-9]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("no json", ":2: Invalid JSON"),
            ('{"text": 3}', ":2: text = 3: .*string"),
            ('{"text": " "}', ":2: text = .* at least 1 character"),
            ('{"task": "t"}', ":2: field 'text' is missing; expected a note"),
        ],
    )
    def test_a_line_that_is_no_note_is_named(self, tmp_path, line, message):
        file = tmp_path / "kept.jsonl"
        file.touch(mode=0o600)
        file.write_text(f'{{"text": "a"}}\n{line}\n', "utf-8")
        with pytest.raises(ConfigError, match=f"{re.escape(str(file))}{message}"):
            NoteFile(str(file))

    def test_a_file_that_cannot_be_used_is_named(self, tmp_path, monkeypatch):
        (tmp_path / "runs").mkdir()
        with pytest.raises(ConfigError, match=r"no folder '.*/rums'\. Did you mean '.*/runs'"):
            NoteFile(str(tmp_path / "rums" / "kept.jsonl"))
        with pytest.raises(ConfigError, match="Is a directory; name a file"):
            NoteFile(str(tmp_path))
        file = tmp_path / "its notes.jsonl"
        file.touch()
        file.chmod(0o604)
        with pytest.raises(ConfigError, match="open to other users, .*: chmod 600 '.*its notes"):
            NoteFile(str(file))
        monkeypatch.setattr(os, "getuid", lambda: -1)
        with pytest.raises(ConfigError, match="belongs to another user"):
            NoteFile(str(tmp_path / "kept.jsonl"))


class TestProcedures:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"steps": []}, "steps = ..: .*at least 1 item"),
            ({"steps": [{"action": "a", "when": "b"}]}, "field 'steps.0.when' is unknown; exp"),
            ({"priority": "high"}, "priority = 'high': .*valid integer"),
        ],
    )
    def test_a_wrong_field_is_named_with_its_file(self, tmp_path, changes, message):
        (tmp_path / "one.json").write_text(json.dumps(RIGHT | changes), "utf-8")
        with pytest.raises(ConfigError) as caught:
            load_procedures(str(tmp_path))
        assert re.search(f"one.json: {message}", str(caught.value))

    def test_every_wrong_file_is_told_and_a_name_is_used_once(self, tmp_path):
        for name, text in (("a", "{"), ("b", json.dumps(RIGHT)), ("c", json.dumps(RIGHT))):
            (tmp_path / f"{name}.json").write_text(text, "utf-8")
        with pytest.raises(ConfigError) as caught:
            load_procedures(str(tmp_path))
        one, two = str(caught.value).splitlines()
        assert "a.json: Invalid JSON" in one and "c.json: name = 'n', as in another file" in two

    def test_words_decide_and_priority_only_between_equals(self, tmp_path):
        triggers = {"calm": "a debt", "urgent": "a debt", "debug": "debug this code"}
        for name, trigger in triggers.items():
            made = RIGHT | {"name": name, "trigger": trigger, "priority": 3 * (name == "urgent")}
            (tmp_path / f"{name}.json").write_text(json.dumps(made), "utf-8")
        procedures = load_procedures(str(tmp_path))

        def names(words):
            return [one.name for one in find_procedures(procedures, BM25Retriever, words, 2)]

        assert names("I have a debt") == ["urgent", "calm"]
        assert names("debug this")[0] == "debug"
        assert names("bug") == []  # a part of a word is no word

    def test_a_retriever_of_other_passages_is_refused(self):
        def own(passages):
            return BM25Retriever([*passages, type(passages[0])("x", "words")])

        with pytest.raises(ConfigError, match="passages of its own"):
            find_procedures(load_procedures(str(SOPS)), own, "words", 1)


class TestCommand:
    def run(self, *words):
        return CliRunner().invoke(sop, [str(word) for word in words])

    def test_check_and_find(self, tmp_path):
        assert "12 procedures are valid (access, " in self.run("check", SOPS).output
        shown = self.run("find", SOPS, "the screen is dark").output
        assert shown.startswith("Procedure dark-screen: ") and "\nthen slow-network: " in shown
        assert "2. If it stays dark: lend another monitor" in shown
        assert "then" not in self.run("find", SOPS, "screen", "-k", 1).output
        assert "holds no .json file" in str(self.run("check", tmp_path).exception)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("qwertz",), "no procedure in .* fits 'qwertz'"),
            (("dark", "--set", "k=3"), "not for 'k'"),
            (("dark", "--set", "retriever.k1=-1"), "k1 = -1"),
        ],
    )
    def test_find_says_what_is_wrong(self, options, message):
        assert re.search(message, str(self.run("find", SOPS, *options).exception))
