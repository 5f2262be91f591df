"""Instructions, the journal, editors and the search, without a policy."""

from __future__ import annotations

from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from features import GOOD, SENTENCES, chance, make_start
from searchrl_apo.editors import ModelEditor, OfflineEditor
from searchrl_apo.evaluation import TRAIN, VALIDATION, Evaluator, OutOfEpisodes
from searchrl_apo.instructions import find_problem, join, mask, split
from searchrl_apo.journal import Journal
from searchrl_apo.search import Plan, race, search

from searchrl import BudgetSpent, DamagedError, SearchRLError
from searchrl.contracts import Task

FIRST = "Think in <think> and </think>.\n<tools>\n{tools}\n</tools>\nBe brief. Search twice!"


class FakePlayer:
    """Plays without SearchRL: `reward` makes a reward of an instruction, a split and a task."""

    def __init__(self, reward: Any) -> None:
        self.reward = reward
        self.played: list[tuple[str, int]] = []
        self.config = SimpleNamespace(rollout=SimpleNamespace(max_failure_frac=0.5))

    def play(self, change: Any, *, split: str, indices: Any) -> Any:
        self.played += [(split, index) for index in indices]
        text = change["protocol"]["instruction"]
        return SimpleNamespace(rollouts=[self._make(text, split, index) for index in indices])

    def _make(self, text: str, split: str, index: int) -> Any:
        turns = [SimpleNamespace(text="<answer>", observation="seen")]
        episode = SimpleNamespace(task=Task("t", split, index, "Who?"), turns=turns, failure=None)
        scored = SimpleNamespace(failure=None, unscored="nobody judged it")
        reward = self.reward(text, split, index)
        return SimpleNamespace(episode=episode, scored=scored, reward=reward)


def make_evaluator(folder: Path, reward: Any, first: str = FIRST, budget: int = 1000) -> Evaluator:
    return Evaluator(first, FakePlayer(reward), Journal(folder), budget)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FIRST + " Search once more.", ""),
        (FIRST.replace("{tools}", ""), "lost a tag or placeholder"),
        (FIRST.replace("</think>", "the end"), "lost a tag or placeholder"),
        (FIRST.replace("Be brief.", "be  BRIEF"), "near-copy"),
        ("@/etc/passwd <think></think><tools></tools>{tools}", "begins with @, which names a file"),
    ],
)
def test_an_edit_that_would_break_the_parser_or_is_nothing_new_is_dropped(
    text: str, reason: str
) -> None:
    assert find_problem(text, FIRST, [FIRST]) == reason
    assert find_problem("\n", "Be brief.", ["Be brief."]) == "empty"


def test_sentences_are_split_without_loss() -> None:
    assert join(split(FIRST)) == FIRST
    assert split(FIRST)[-2:] == ["Be brief. ", "Search twice!"]


def test_the_journal_forgets_a_torn_row_and_refuses_a_damaged_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.put({"a": 1, "b": [2]})
    file = tmp_path / "journal.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"key": "c", "val')
    assert Journal(tmp_path) == {"a": 1, "b": [2]} and file.read_bytes() == whole
    file.write_bytes(b"no row\n" + whole)
    with pytest.raises(DamagedError, match=r"journal.jsonl' is damaged: line 1 is no row"):
        Journal(tmp_path)


def test_an_episode_is_played_and_paid_once_and_the_budget_is_hard(tmp_path: Path) -> None:
    evaluator = make_evaluator(tmp_path, lambda text, split, index: float(index), budget=4)
    first = evaluator.candidates[0]
    assert evaluator.score(first, VALIDATION, [1, 3]) == 2.0
    assert evaluator.score(first, VALIDATION, [1, 3, 5]) == 3.0
    assert evaluator.num_episodes == 3
    with pytest.raises(OutOfEpisodes):
        evaluator.score(first, TRAIN, [0, 1])
    again = make_evaluator(tmp_path, lambda *of: pytest.fail("it was played before"))
    assert again.score(again.candidates[0], VALIDATION, [1, 3, 5]) == 3.0
    assert again.num_episodes == 3


def test_episodes_without_a_reward_are_left_out_and_too_many_end_it(tmp_path: Path) -> None:
    evaluator = make_evaluator(tmp_path, lambda text, split, index: [None, 1.0][index % 2])
    assert evaluator.score(evaluator.candidates[0], VALIDATION, range(4)) == 1.0
    with pytest.raises(SearchRLError, match="2 of 2 episodes have no reward; .*: nobody judged it"):
        evaluator.score(evaluator.candidates[0], VALIDATION, [4, 6])
    assert evaluator.num_episodes == 4


def test_a_race_spends_less_on_bad_candidates(tmp_path: Path) -> None:
    evaluator = make_evaluator(tmp_path, lambda text, split, index: float(len(text) % 1000))
    parent = evaluator.candidates[0]
    made = [evaluator.add(parent, f"{FIRST} {'more ' * n}", "") for n in range(2, 17)]
    field = [one for one in made if one]
    best = race(evaluator, field, range(16))
    assert [one.id for one in best] == [one.id for one in field[:-5:-1]]
    assert evaluator.num_episodes == 15 * 4 + 7 * 4 + 4 * 8
    assert len(field[0].rewards) == 4


def test_better_means_on_the_tasks_of_both(tmp_path: Path) -> None:
    evaluator = make_evaluator(tmp_path, lambda *of: 1.0)
    one, other = evaluator.candidates[0], evaluator.add(evaluator.candidates[0], FIRST * 2, "")
    assert other is not None
    one.rewards = {(VALIDATION, 0): 1.0, (VALIDATION, 1): None, (TRAIN, 2): 1.0}
    other.rewards = {(VALIDATION, 0): 1.0, (VALIDATION, 1): 0.0, (TRAIN, 2): 0.0}
    assert not one.is_better(other) and not other.is_better(one)


def test_the_offline_editor_adds_rephrases_drops_joins_and_moves(tmp_path: Path) -> None:
    """Sentences that rewards speak for are added; those that cost something go."""
    first = "Use <answer> and </answer>. Be friendly. Guess at once. Search a lot."

    def reward(text: str, split: str, index: int) -> float:
        return 0.3 * sum(one in text for one in ("Search well.", "Be exact.")) - ("Guess" in text)

    evaluator = make_evaluator(tmp_path, reward, first)
    lines = [["Search a lot.", "Search well."], ["Guess at once."], ["Be exact."]]
    editor = OfflineEditor(lines, evaluator)
    parent, rng, told = evaluator.candidates[0], Random(0), ""
    for _ in range(6):
        evaluator.score(parent, VALIDATION, range(30))
        for text, critique in editor.edit(parent, 4, rng):
            told += f"{critique}; "
            if made := evaluator.add(parent, text, critique):
                evaluator.score(made, VALIDATION, range(8))
        parent = max(evaluator.candidates, key=lambda one: reward(one.text, "", 0))
    assert parent.text.count("Search") == 1 and reward(parent.text, "", 0) == 0.6
    for kind in ("add 'Be exact.'", "drop 'Guess at once.'", "rephrase 'Search well.'"):
        assert kind in told
    apart = "Use <answer>. Keep it short. Be exact."
    joined = make_evaluator(tmp_path, lambda text, *of: -float("exact" in text), apart)
    made = joined.add(joined.candidates[0], "Use <answer>. Keep it short, and be exact.", "")
    made.rewards = {(TRAIN, 0): 0.0}
    told = OfflineEditor([["Be kind."]], joined).edit(made, 40, rng)
    assert all("Keep it short, and be exact." in text for text, _ in told)
    alone = make_evaluator(tmp_path / "none", reward, "Use <answer>. Be kind. Be quick.")
    (tmp_path / "none").mkdir()
    alone.score(alone.candidates[0], VALIDATION, range(4))
    edits = dict(
        reversed(one) for one in OfflineEditor([], alone).edit(alone.candidates[0], 40, rng)
    )
    assert edits["join two sentences"] == "Use <answer>. Be kind, and be quick."
    assert edits["move a sentence"] == "Use <answer>. Be quick. Be kind."


def test_a_model_is_asked_once_for_a_fault_and_a_text_without_it(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(text: str) -> str | None:
        asked.append(text)
        return f"Fault {len(asked)}.\n{mask(FIRST)} Look {len(asked)} times." if text else None

    evaluator = make_evaluator(tmp_path, lambda text, split, index: 0.0)
    edits = ModelEditor(ask, evaluator, 50).edit(evaluator.candidates[0], 2, Random(0))
    assert edits == [(f"{FIRST} Look {n} times.", f"Fault {n}.") for n in (1, 2)]
    assert "‹think›" in asked[0] and "Who?" in asked[0] and "Fault 1." in asked[1]
    assert "<think>" not in asked[0] and evaluator.num_episodes == 4
    again = make_evaluator(tmp_path, lambda *of: pytest.fail("it was played before"))
    kept = ModelEditor(lambda text: pytest.fail("it was asked before"), again, 50)
    assert kept.edit(again.candidates[0], 2, Random(0)) == edits


@pytest.mark.parametrize("name", ["search", "gepa_bridge"])
def test_an_editor_that_fails_ends_the_search(tmp_path: Path, name: str) -> None:
    """GEPA itself would write it to its log and go on."""
    module = pytest.importorskip(f"searchrl_apo.{name}")
    evaluator = make_evaluator(tmp_path, lambda *of: 0.5)
    editor = SimpleNamespace(edit=lambda *of: (_ for _ in ()).throw(BudgetSpent("spent")))
    with pytest.raises(BudgetSpent):
        module.search(evaluator, editor, Plan(FIRST, 0, 500, None, 40, 8, 0), lambda *of: None)
    assert evaluator.num_episodes < 20


def test_rounds_without_an_edit_are_passed_over_and_three_in_a_row_end_it(tmp_path: Path) -> None:
    evaluator, told = make_evaluator(tmp_path, lambda *of: 0.5, budget=2000), list[str]()
    replies = iter(["", "", f"{FIRST} Look it up.", *[""] * 6])
    editor = SimpleNamespace(edit=lambda *of: [(next(replies), "")])
    plan = Plan(FIRST, 0, 2000, None, 40, 8, 0)
    search(evaluator, editor, plan, lambda leader, best: told.append(leader.id))
    assert len(told) == 6 and len(evaluator.candidates) == 2


def test_gepa_spends_the_budget_though_edits_are_dropped(tmp_path: Path) -> None:
    module = pytest.importorskip("searchrl_apo.gepa_bridge")
    evaluator = make_evaluator(tmp_path, lambda *of: 0.5)
    editor = SimpleNamespace(edit=lambda *of: [("", "")])
    module.search(evaluator, editor, Plan(FIRST, 0, 1000, None, 999, 8, 0), lambda *of: None)
    assert evaluator.num_episodes > 990


@pytest.mark.parametrize("name", ["search", "gepa_bridge"])
def test_a_search_finds_most_of_what_can_be_gained(tmp_path: Path, name: str) -> None:
    module, gains, kept = pytest.importorskip(f"searchrl_apo.{name}"), list[float](), list[int]()
    for start in range(3):  # the last bits of a regression decide single edits: one run says little
        first, seeds = make_start(start), dict[tuple[str, int], float]()

        def reward(text: str, split: str, index: int, seeds: Any = seeds) -> float:
            drawn = seeds.setdefault((split, index), Random(f"{split}{index}").random())
            return float(drawn < chance(text))

        (folder := tmp_path / str(start)).mkdir()
        evaluator = make_evaluator(folder, reward, first, 1200)
        lines = [[line] for line in SENTENCES.splitlines()]
        plan = Plan(first, 0, 1200, None, 40, 32, 0)
        best = module.search(evaluator, OfflineEditor(lines, evaluator), plan, lambda *of: None)
        gains.append((chance(best.text) - chance(first)) / (1 - chance(first)))
        kept.append(sum(one in best.text for one in GOOD))
        assert evaluator.num_episodes <= 1200
    assert median(gains) >= 0.9 - 1e-9 and median(kept) >= 8, (gains, kept)
