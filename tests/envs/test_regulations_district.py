"""The handbook of several schools at `hard`: its articles, amendments, neighbours and districts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from playing import mean

from searchrl.envs.regulations.world.district import (
    NUM_DISTRICTS,
    District,
    make_district,
)
from searchrl.envs.regulations.world.prose import Statement, Status
from searchrl.envs.regulations.world.wordings import load_district_words

DISTRICTS = [("test", 0), ("test", 5), ("train", 0), ("validation", 1)]


@pytest.fixture(params=DISTRICTS, ids=lambda one: f"{one[0]}-{one[1]}", scope="module")
def district(request: pytest.FixtureRequest) -> District:
    return make_district(0, *request.param)


def statements_of(district: District) -> Iterator[tuple[str, Statement]]:
    """All statements, each with the id of its article."""
    for article in district.articles:
        yield from ((article.passage.id, one) for one in article.statements)


def test_an_article_states_several_things_of_the_one_school_that_it_names(
    district: District,
) -> None:
    names = {house.place: house.name for house in district.houses}
    assert len(names) == 4
    per_school = Counter()
    for article in district.articles:
        (place,) = {one.place for one in article.statements}
        assert names[place] in article.passage.text.split(".")[0]
        per_school[place] += 1
        assert all(one.clause in article.passage.text for one in article.statements)
        clauses = [(one.value.text.casefold(), one.clause) for one in article.statements]
        assert all(text in clause.casefold() for text, clause in clauses)
    assert set(per_school.values()) == {78}
    assert mean(len(article.statements) >= 2 for article in district.articles) >= 0.9
    assert mean(len(article.statements) for article in district.articles) >= 3


def test_current_statements_never_contradict_each_other(district: District) -> None:
    values, gists = defaultdict(set), defaultdict(set)
    for _, one in statements_of(district):
        if one.status is not Status.REPLACED:
            values[one.place, one.gist, one.condition].add(one.value)
            gists[one.place, one.gist, bool(one.condition)].add(one.about)
    assert len(values) > 900
    assert all(len(stated) == 1 for stated in values.values())
    # A reader's words for a rule stand for one rule of a school, and it has one exception.
    assert all(len(abouts) == 1 for abouts in gists.values())


def test_an_amendment_overrides_a_rule_of_another_article(district: District) -> None:
    by_status: dict[Status, dict[str, tuple[str, Statement]]] = defaultdict(dict)
    for article_id, one in statements_of(district):
        assert one.about not in by_status[one.status]
        by_status[one.status][one.about] = article_id, one
    replaced, new = by_status[Status.REPLACED], by_status[Status.NEW]
    assert len(new) >= 80 and set(replaced) == set(new)
    assert set(by_status[Status.CURRENT]).isdisjoint(new)
    frames = [frame.partition("{main}") for frame in load_district_words().amendments]
    texts = {passage.id: passage.text.casefold() for passage in district.passages}
    for about, (article_id, one) in new.items():
        old_id, old = replaced[about]
        assert article_id != old_id and one.value != old.value and one.gist == old.gist
        assert district.stated[about][1].value == one.value
        told = [f"{before}{one.clause}{after}".casefold() for before, _, after in frames]
        assert any(text in texts[article_id] for text in told), one


def test_no_two_districts_share_a_school_and_no_two_splits_a_handbook() -> None:
    numbers = [(split, n) for split in NUM_DISTRICTS for n in (0, 1, NUM_DISTRICTS[split] - 1)]
    districts = [make_district(0, split, number) for split, number in numbers]
    places = [house.place for district in districts for house in district.houses]
    assert len(set(places)) == len(places) == 36
    assert len({district.key for district in districts}) == len(districts)
    texts = [{passage.text for passage in district.passages} for district in districts]
    assert sum(map(len, texts)) == len(set().union(*texts))
