"""The environments `corpus` and `multihop`: your own questions over your own texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from searchrl.contracts import RetrieverFactory, StoredRetriever, TagProtocol
from searchrl.core.episode import Passage, Task
from searchrl.data.dataset import Dataset, Paths, load_dataset
from searchrl.data.passages import CORPUS_HELP
from searchrl.data.questions import QUESTION_SHAPES
from searchrl.data.rows import FILE_KINDS
from searchrl.envs.text import SearchSettings, TextEnv
from searchrl.envs.text_space import AtLeastOne
from searchrl.envs.word_lists import ASSETS
from searchrl.errors import ConfigError

DEMO_FOLDER = ASSETS / "corpus_demo"

_QUESTIONS_HELP = f"a file ({FILE_KINDS}) of rows {QUESTION_SHAPES}"


@dataclass(frozen=True, kw_only=True)
class CorpusSettings(SearchSettings):
    """The files, besides the settings of every search environment; `world_seed` has no effect.

    Attributes:
        questions: path, or list of paths, of question files or folders, or an id on the Hub.
            Without it the demo is used.
        corpus: path of a corpus file, or of a folder of text and Markdown files. Without it, the
            paragraphs that come with the questions are the corpus, or the corpus in the folder of
            the questions, or what the retriever has of its own.
        test_questions: question files of the test split; then all of `questions` is for training.
        test_frac: share of `questions` in the test split without `test_questions`. The split of a
            question depends on its id alone: a new question does not move the others. A data set
            that has splits of its own keeps them.
    """

    questions: Paths | None = None
    corpus: str | Path | None = None
    test_questions: Paths | None = None
    test_frac: Annotated[float, Field(ge=0, le=1)] = 0.2


class CorpusEnv(TextEnv):
    """Questions about a fixed corpus; every episode searches the same passages.

    Without files, about a small invented town. `DataError` names rows that cannot be used.

    >>> import gymnasium
    >>> env = gymnasium.make("searchrl/Corpus-v0")
    """

    name: ClassVar[str] = "corpus"
    demo: ClassVar[Path] = DEMO_FOLDER
    settings_type: ClassVar[type[SearchSettings]] = CorpusSettings
    settings: CorpusSettings

    def __init__(
        self, *, protocol: TagProtocol, retriever: RetrieverFactory, **settings: Any
    ) -> None:
        super().__init__(protocol=protocol, retriever=retriever, **settings)
        self._data = self.load()
        self.splits = tuple(split for split, rows in self._data.questions.items() if rows)
        self.notes = self._data.notes
        if not self._data.passages:
            self._ensure_passages()

    def load(self) -> Dataset:
        """The data of the files, or the demo's if there are none."""
        given = self.settings
        if given.questions is not None:
            return load_dataset(
                given.questions, given.corpus, given.test_questions, given.test_frac
            )
        if lone := [
            name for name in ("corpus", "test_questions") if getattr(given, name) is not None
        ]:
            raise ConfigError(self._missing("questions", _QUESTIONS_HELP, lone[0]))
        demo = self.demo / "questions.jsonl", self.demo / "corpus.jsonl"
        return load_dataset(*demo, test_frac=given.test_frac)

    @property
    def dataset(self) -> Dataset:
        """Questions and passages as they were read."""
        return self._data

    @property
    def golds(self) -> list[tuple[str, ...]]:
        """The accepted answers of every question."""
        return [one.answers for rows in self._data.questions.values() for one in rows]

    def num_tasks(self, split: str) -> int:
        """The number of questions of `split`."""
        return len(self._data.questions[self.ensure_split(split)])

    def make_task(self, split: str, index: int) -> Task:
        """Question `index` of `split`, in the order of the files."""
        return self._data.questions[split][index].as_task(self.name, split, index)

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The whole corpus, for every task."""
        return self._data.key, self._data.passages

    def gold_passages(self, task: Task) -> Sequence[Passage]:
        """The gold passages of a task, in its order; those that nobody has are left out."""
        if self._data.passages:
            return [self._data.gold[i] for i in task.gold_ids if i in self._data.gold]
        retriever = self._indexes.get(self._data.key, ())
        assert isinstance(retriever, StoredRetriever)  # it was looked at when the env was made
        return [one for one in retriever.stored(task.gold_ids) or () if one is not None]

    def known_corpora(self) -> Sequence[tuple[str, Sequence[Passage]]]:
        """The corpus."""
        return ((self._data.key, self._data.passages),)

    def ensure_split(self, split: object) -> str:
        """Return `split` if it has questions; say how to give it some otherwise."""
        if split in self._data.questions and split not in self.splits:
            raise ConfigError(
                f"env {self.name}: no question is in split '{split}'. Change env.test_frac (it is "
                f"{self.settings.test_frac}), or set env.test_questions."
            )
        return super().ensure_split(split)

    def _ensure_passages(self) -> None:
        """Raise `ConfigError` unless the retriever has the gold passages itself."""
        retriever = self._indexes.get(self._data.key, ())
        if not isinstance(retriever, StoredRetriever):
            raise ConfigError(self._missing("corpus", CORPUS_HELP, "questions"))
        gold = {i: q for rows in self._data.questions.values() for q in rows for i in q.gold_ids}
        stored = retriever.stored(list(gold))
        lacking = [i for i, passage in zip(gold, stored or (), strict=False) if passage is None]
        if lacking:
            first = gold[lacking[0]]
            raise ConfigError(
                f"env {self.name}: {len(lacking):,} of {len(gold):,} supporting_ids name no "
                f"passage of the retriever (first {lacking[0]!r}, {first.path}:{first.line})"
            )

    def _missing(self, setting: str, expected: str, given: str) -> str:
        return (
            f"env {self.name}: '{given}' is set but '{setting}' is not. It needs {expected}. "
            f"Add --set env.{setting}=PATH, or leave both out to try the demo."
        )


@dataclass(frozen=True, kw_only=True)
class MultihopSettings(CorpusSettings):
    """Settings of `corpus`, with room for five searches and an answer."""

    max_turns: AtLeastOne = 6


class MultihopEnv(CorpusEnv):
    """Questions of two to four hops; without files, about an almanac of 214 made-up articles."""

    name: ClassVar[str] = "multihop"
    demo: ClassVar[Path] = ASSETS / "multihop_demo"
    settings_type: ClassVar[type[SearchSettings]] = MultihopSettings
