"""The text space and the episode mechanics of `TextEnv`, on a three-passage corpus."""

from collections.abc import Sequence
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from searchrl.contracts import TokenBudget
from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action, Passage, Task
from searchrl.envs.text import TextEnv
from searchrl.envs.text_space import TextSpace, example_turns
from searchrl.errors import ConfigError, RetrieverFailure
from searchrl.protocols import ThinkSearchAnswer
from searchrl.retrieval.indexes import IndexCache

PROTOCOL = ThinkSearchAnswer()
PASSAGES = tuple(
    Passage(f"p{i}", text) for i, text in enumerate(["red fox", "blue whale", "green frog"])
)


class WordRetriever:
    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [
            [p for p in self.passages if set(p.text.split()) & set(q.split())][:k] for q in queries
        ]


class AnimalEnv(TextEnv):
    name = "animals"

    def num_tasks(self, split: str) -> int:
        return len(PASSAGES)

    def make_task(self, split: str, index: int) -> Task:
        colour, animal = PASSAGES[index].text.split()
        return Task(
            f"{split}-{index}", split, index, f"Which animal is {colour}?", (animal,),
            gold_ids=(PASSAGES[index].id,), env=self.name, meta={},
        )  # fmt: skip

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        return "animals", PASSAGES


def make_env(**settings: Any) -> AnimalEnv:
    return AnimalEnv(**{"protocol": PROTOCOL, "retriever": WordRetriever, **settings})


def begun(index: int, **settings: Any) -> AnimalEnv:
    env = make_env(**settings)
    env.reset(options={"index": index})
    return env


def search(*queries: str) -> str:
    return PROTOCOL.render_turn(Action(SEARCH, queries), "Looking.")


def answer(text: str) -> str:
    return PROTOCOL.render_turn(Action(ANSWER, text), "Known.")


def test_space_takes_any_unicode_prose_that_gymnasium_text_rejects() -> None:
    space = TextSpace(max_length=10)
    assert all(text in space for text in ("", "a b, c!", "图书馆 ü\n", "\U0001f600" * 10))
    assert "x" * 11 not in space and b"x" not in space


def test_space_samples_are_seeded_and_shaped_like_turns() -> None:
    first, second = TextSpace(turns=example_turns(PROTOCOL)), TextSpace(turns=("drawn",))
    first.seed(5)
    drawn = [first.sample() for _ in range(60)]
    first.seed(5)
    assert drawn == [first.sample() for _ in range(60)]
    assert {PROTOCOL.parse(text).kind for text in drawn} == {SEARCH, ANSWER, INVALID}
    assert second.sample() == "drawn"
    assert first == second, "the examples are no part of the space"
    assert first != TextSpace(max_length=3)


def test_reset_by_index_is_pure_and_by_seed_is_reproducible() -> None:
    env, other = make_env(), make_env()
    prompt, info = env.reset(options={"index": 1, "split": "test"})
    assert info["task"] == other.reset(options={"index": 1, "split": "test"})[1]["task"]
    assert prompt == "Which animal is blue?"
    drawn = [env.reset(seed=9)[0]] + [env.reset()[0] for _ in range(5)]
    assert drawn == [other.reset(seed=9)[0]] + [other.reset()[0] for _ in range(5)]
    assert len(set(drawn)) > 1


@pytest.mark.parametrize("index", [3, -1, "1"])
def test_index_out_of_range_is_refused_with_the_range(index: object) -> None:
    with pytest.raises(ConfigError, match="tasks 0 to 2, got index"):
        make_env().reset(options={"index": index})


def test_unknown_split_names_the_near_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'test'"):
        make_env().reset(options={"split": "tset"})


def test_search_shows_passages_and_right_answer_is_rewarded() -> None:
    env = begun(1)
    text, reward, terminated, truncated, info = env.step(search("blue thing"))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert text == PROTOCOL.render_observation(PASSAGES[1:2])
    assert info["passages"] == PASSAGES[1:2] == env.last_passages
    assert info["action"].queries == ("blue thing",) and info["signals"] == {"gold_shown": 1.0}
    text, reward, terminated, truncated, info = env.step(answer(" Whale. "))
    assert (text, reward, terminated, truncated) == ("", 1.0, True, False)
    env.reset(options={"index": 1})
    assert env.step(answer("fox"))[1:4] == (0.0, True, False), "a wrong answer ends it too"


class RankedRetriever(WordRetriever):
    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        return [dict.fromkeys(ids, 7 if "whale" in query else None) for query in queries]


def test_ranks_of_the_gold_passages_are_told_where_the_retriever_knows_them() -> None:
    env = begun(1, retriever=RankedRetriever)
    assert env.step(search("fox", "whale"))[4]["ranks"] == ({"p1": None}, {"p1": 7})
    assert begun(1).step(search("fox"))[4]["ranks"] == ()


def test_several_queries_are_merged_in_turns_without_repeats() -> None:
    env = begun(0, topk=3)
    info = env.step(search("green blue", "blue red", "red"))[4]
    # first of each: whale, fox, (fox again); second of each: frog, (whale again)
    assert [p.id for p in info["passages"]] == ["p1", "p0", "p2"]
    assert len(begun(0, topk=2).step(search("green", "blue", "red"))[4]["passages"]) == 2


def test_shuffled_passages_are_the_same_ones_in_random_order() -> None:
    def shown(shuffle: bool) -> list[tuple[str, ...]]:
        env = make_env(topk=3, shuffle=shuffle)
        orders = []
        for index in range(2):
            env.reset(options={"index": index})
            for _ in range(3):
                passages = env.step(search("red blue green"))[4]["passages"]
                orders.append(tuple(p.id for p in passages))
        return orders

    ranked, shuffled = shown(False), shown(True)
    assert len(set(ranked)) == 1 and len(set(shuffled)) > 1
    assert {frozenset(order) for order in shuffled} == {frozenset(ranked[0])}
    assert shown(True) == shuffled, "the same for one task and turn"


def test_invalid_turn_gets_a_notice_and_uses_up_a_turn() -> None:
    env = begun(0, max_turns=2)
    text, reward, terminated, truncated, info = env.step("no tags")
    assert info["action"].kind == INVALID
    assert text == PROTOCOL.render_notice(info["action"].reason) != ""
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert env.step("again")[1:4] == (0.0, False, True)


def test_observation_budget_bounds_the_notice_and_keeps_its_closing_tag() -> None:
    """It was truncated after wrapping: the block stayed open for the rest of the episode."""
    env = make_env()
    env.budget = TokenBudget.words(5)
    env.reset(options={"index": 0})
    notice = env.step("no tags at all")[0]
    assert len(PROTOCOL.parse("no tags at all").reason.split()) > 5
    assert env.budget.count(notice) <= 5
    assert notice.strip().startswith("<information>The turn has")
    assert notice.strip().endswith("</information>")


@pytest.mark.parametrize("ending", [answer("x"), "nothing"])
def test_step_outside_an_episode_says_what_to_do(ending: str) -> None:
    env = make_env(max_turns=1)
    with pytest.raises(ResetNeeded, match="outside an episode"):
        env.step("x")
    env.reset()
    env.step(ending)
    with pytest.raises(ResetNeeded, match=r"outside an episode\. Call reset"):
        env.step("x")


def down(queries: Sequence[str]) -> Any:
    raise TimeoutError("no reply")


@pytest.mark.parametrize(
    ("search_corpus", "message"),
    [
        (down, "raised TimeoutError: no reply"),
        (lambda queries: [], "gave 0 results for 1 queries"),
        (lambda queries: [[None]], "returned for a query a list that holds NoneType"),
    ],
)
def test_a_retriever_that_fails_is_never_an_empty_result(search_corpus: Any, message: str) -> None:
    class Odd(WordRetriever):
        def search(self, queries: Sequence[str], k: int) -> Any:
            return search_corpus(queries)

    env = begun(0, retriever=Odd)
    with pytest.raises(RetrieverFailure, match=f"env animals: the retriever {message}"):
        env.step(search("red"))


class CountingFactory:
    def __init__(self) -> None:
        self.built: list[Sequence[Passage]] = []

    def __call__(self, passages: Sequence[Passage]) -> WordRetriever:
        self.built.append(passages)
        return WordRetriever(passages)


def test_an_episode_holds_its_index_however_many_are_searched_beside_it() -> None:
    factory = CountingFactory()
    indexes = IndexCache(factory, capacity=1)
    playing = [make_env(retriever=indexes) for _ in range(2)]
    for number, env in enumerate(playing):
        env.passages = lambda task, key=str(number): (key, [Passage(key, "red fox")])
        env.reset(options={"index": 0})
    for env in playing * 2:
        env.step(search("red"))
    assert len(factory.built) == 2


def test_index_cache_drops_the_least_recently_used() -> None:
    factory = CountingFactory()
    cache = IndexCache(factory, capacity=2)
    for key in ("a", "b", "a", "c", "a", "b"):
        cache.get(key, [Passage(key, "text")])
    assert [corpus[0].id for corpus in factory.built] == ["a", "b", "c", "b"]


@pytest.mark.parametrize("key", [None, "corpus"])
def test_one_corpus_never_gets_the_index_of_another(key: str | None) -> None:
    """Neither under one name nor under one hash: equal keys do not prove equal corpora."""
    first, second = (Passage("p", "text", score=score) for score in (-1.0, -2.0))
    assert hash((first,)) == hash((second,)) and first != second
    factory = CountingFactory()
    cache = IndexCache(factory)
    for passage in (first, first, second, first):
        corpus = [passage]
        found = cache(corpus) if key is None else cache.get(key, corpus)
        corpus.clear()  # the caller may change its list afterwards
        assert list(found.passages) == [passage]
    assert [list(corpus) for corpus in factory.built] == [[first], [second], [first]]


def test_a_question_of_a_user_is_a_task_without_answer() -> None:
    env = make_env()
    prompt, info = env.reset(options={"question": "What is red?", "split": "test"})
    assert prompt == "What is red?" and info["task"].answers == ()
    assert env.step(search("red"))[4]["passages"] == PASSAGES[:1]
    assert env.step(answer("fox"))[1:3] == (0.0, True)


def test_render_gives_the_transcript_only_when_asked() -> None:
    env = begun(0, render_mode="ansi")
    env.step(search("red"))
    assert "Which animal is red?" in str(env.render()) and "red fox" in str(env.render())
    assert make_env().render() is None
