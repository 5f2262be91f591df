"""The level `hard` of `regulations`: one long handbook a district, and harder questions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from playing import INDEXES, PROTOCOL, Played, make_env, mean, play

from searchrl.core.episode import SEARCH, Task
from searchrl.envs.regulations import TASK_KINDS, RegulationsEnv, make_expert
from searchrl.envs.regulations.questions import DRILL, PLAIN_KINDS
from searchrl.envs.regulations.world.district import (
    NUM_DISTRICTS,
    SCHOOLS_PER_DISTRICT,
    District,
    make_district,
)
from searchrl.envs.regulations.world.names import date_from, magnitude, spell
from searchrl.envs.regulations.world.prose import Statement, Status
from searchrl.envs.regulations.world.wordings import load_district_words
from searchrl.errors import ConfigError

pytestmark = pytest.mark.thorough

HARD_KINDS = set(TASK_KINDS) - {DRILL}
NUM_SCHOOLS = 32
# Some tasks of each of the first schools: few handbooks have to be written.
INDICES = [
    slot * NUM_DISTRICTS["test"] * SCHOOLS_PER_DISTRICT + number
    for slot in range(8)
    for number in range(NUM_SCHOOLS)
]
MONTHS = (
    "January February March April May June July August September October November December".split()
)


@pytest.fixture(scope="module")
def env() -> RegulationsEnv:
    return make_env(difficulty="hard", retriever=INDEXES)


@pytest.fixture(scope="module")
def games(env: RegulationsEnv) -> list[Played]:
    return [play(env, make_expert, split="test", index=index) for index in INDICES]


@pytest.fixture(scope="module")
def tasks(games: list[Played]) -> list[Task]:
    return [game.task for game in games]


def district_of(env: RegulationsEnv, task: Task) -> District:
    return env.district(task.split, task.meta["school_number"])


def of_kind(tasks: list[Task], kind: str) -> list[Task]:
    chosen = [task for task in tasks if task.kind == kind]
    assert len(chosen) >= 15, kind
    return chosen


def test_all_kinds_have_their_shares(env: RegulationsEnv) -> None:
    kinds = Counter(env.kind_of("train", index) for index in range(700, 1700))
    shares = dict.fromkeys(("lookup", "not_regulated", "two_hop", "relative_date"), 150)
    shares |= {"three_hop": 200, "comparison": 100, "counting": 100}
    assert set(kinds) == HARD_KINDS
    assert all(kinds[kind] == pytest.approx(count, abs=6) for kind, count in shares.items())


def test_mix_names_the_level_of_a_kind_that_others_lack() -> None:
    only = make_env(difficulty="hard", mix={"counting": 1})
    assert {only.make_task("train", index).kind for index in range(4)} == {"counting"}
    for kind in HARD_KINDS - set(PLAIN_KINDS):
        with pytest.raises(ConfigError, match=f"'easy' has no tasks of kind '{kind}'.*to hard"):
            make_env(difficulty="easy", mix={kind: 0.5, "lookup": 0.5})
    assert make_env(mix={"lookup": 1, "counting": 0}).mix == (("lookup", 1.0),)


def test_answers_are_those_of_the_statements(env: RegulationsEnv, tasks: list[Task]) -> None:
    plain = [task for task in tasks if task.kind in ("lookup", "two_hop", "three_hop")]
    amended = 0
    for task in plain:
        stated = district_of(env, task).stated
        article, last = stated[task.meta["abouts"][-1]]
        assert task.answers == last.value.answers and last.place == task.meta["place"]
        assert bool(last.condition) == bool(task.meta["condition"])
        if task.meta["condition"]:
            assert task.meta["condition"] in task.question[0].lower() + task.question[1:] or (
                task.meta["condition"].capitalize() in task.question
            )
        assert article.passage.id == task.gold_ids[-1]
        amended += last.status is Status.NEW
    assert len({task.answers for task in plain}) > 0.9 * len(plain)
    assert amended >= 8


@pytest.mark.parametrize(("kind", "num_hops"), [("two_hop", 2), ("three_hop", 3)])
def test_each_hop_needs_the_name_that_the_one_before_finds(
    env: RegulationsEnv, tasks: list[Task], kind: str, num_hops: int
) -> None:
    families = Counter()
    for task in of_kind(tasks, kind):
        assert len(task.gold_ids) == len(set(task.gold_ids)) == num_hops
        stated = district_of(env, task).stated
        entities = [stated[about][1].value.bare for about in task.meta["abouts"][:-1]]
        for entity, query in zip(entities, task.meta["queries"][1:], strict=True):
            assert entity in query and entity not in task.question
        assert task.meta["bridge"] == entities[0]
        families[task.meta["abouts"][0].split("/")[1].split(":")[0]] += 1
    assert set(families) == {"club", "venue", "form", "fund"}


def size(bare: str) -> datetime | float:
    """A value as something to compare, without the package's help."""
    if ":" in bare:
        return datetime.strptime(bare, "%H:%M")
    return datetime.strptime(f"{bare} 2023", "%d %B %Y") if " " in bare else float(bare.strip("£"))


def test_comparisons_are_right(env: RegulationsEnv, tasks: list[Task]) -> None:
    least = re.compile(r"\b(less|cheaper|lower|earlier|first|fewer)\b")
    greatest = re.compile(r"\b(more|dearer|higher|later|last|longer)\b")
    for task in of_kind(tasks, "comparison"):
        stated = [district_of(env, task).stated[about][1] for about in task.meta["abouts"]]
        names = [about.split(":", 1)[1] for about in task.meta["abouts"]]
        assert all(f"the {name}" in task.question for name in names)
        asked = re.sub(r"One more (thing|question)", "", task.question)
        for name in names:
            asked = asked.replace(name, "")
        wants_least = bool(least.search(asked))
        assert wants_least != bool(greatest.search(asked)), task.question
        pairs = sorted(
            zip((size(one.value.bare) for one in stated), names, strict=True),
            key=lambda pair: pair[0],
        )
        assert pairs[0][0] != pairs[1][0]
        right = pairs[0 if wants_least else -1][1]
        assert task.answers[:2] == (right, f"the {right}")
        if " " in stated[0].value.bare:
            # The same order in a calendar year and in a school year.
            in_autumn = {one.value.bare.split()[1] in MONTHS[8:] for one in stated}
            assert len(in_autumn) == 1


def test_counts_are_right(env: RegulationsEnv, tasks: list[Task]) -> None:
    right = Counter()
    for task in of_kind(tasks, "counting"):
        stated = [district_of(env, task).stated[about][1] for about in task.meta["abouts"]]
        assert all(
            f"the {about.split(':', 1)[1]}" in task.question for about in task.meta["abouts"]
        )
        limit = re.search(r"(?:than|below|above|before|after|at) (£?\d+(?::\d\d)?)", task.question)
        assert limit is not None and len(stated) == 3
        is_below = re.search(r"less than|below|before|earlier than", task.question)
        sizes = [size(one.value.bare) for one in stated]
        edge = size(limit.group(1))
        assert edge not in sizes
        count = sum(one < edge if is_below else one > edge for one in sizes)
        assert task.answers[:2] == (str(count), spell(count))
        right[count] += 1
    assert set(right) == {0, 1, 2, 3}


def test_relative_dates_are_right_in_every_year(env: RegulationsEnv, tasks: list[Task]) -> None:
    signs = Counter()
    for task in of_kind(tasks, "relative_date"):
        district = district_of(env, task)
        texts = {passage.id: passage.text for passage in district.passages}
        relative, event = [district.stated[about][1] for about in task.meta["abouts"]]
        assert (
            relative.clause in texts[task.gold_ids[0]] and event.clause in texts[task.gold_ids[1]]
        )
        span = re.search(r"(\d+) days (before|after) (sports day|the \w+ \w+)", relative.clause)
        day = re.search(rf"\d+ (?:{'|'.join(MONTHS)})", event.clause)
        assert span is not None and day is not None
        sign = -1 if span.group(2) == "before" else 1
        for year in (2023, 2024):
            start = datetime.strptime(f"{day.group()} {year}", "%d %B %Y")
            end = start + timedelta(sign * int(span.group(1)))
            assert task.answers[0] == f"{end.day} {MONTHS[end.month - 1]}" and end.year == year
        assert re.search(r"\b(date|day and the month)\b", task.question)
        signs[sign] += 1
    assert set(signs) == {-1, 1}


def test_a_date_that_depends_on_the_year_is_no_answer() -> None:
    assert date_from("14 May", -12) == "2 May" and date_from("30 April", 1) == "1 May"
    assert date_from("3 March", -5) == date_from("27 February", 3) == ""
    assert date_from("28 December", 10) == date_from("3 January", -4) == ""
    assert magnitude("9 June") > magnitude("30 May") and magnitude("09:05") < magnitude("10:00")
    assert magnitude("£9") < magnitude("£10")


def test_what_is_not_regulated_is_stated_nowhere_for_this_school(
    env: RegulationsEnv, tasks: list[Task]
) -> None:
    elsewhere, partly = [], []
    for task in of_kind(tasks, "not_regulated"):
        assert task.answers == ("not regulated",) and not task.gold_ids
        stated = district_of(env, task).stated
        *before, missing = task.meta["abouts"]
        assert missing not in stated and all(about in stated for about in before)
        gists = {one.gist for _, one in stated.values() if one.place == task.meta["place"]}
        assert task.meta["gists"][-1] not in gists
        key = missing.partition("/")[2]
        elsewhere.append(any(about.partition("/")[2] == key for about in stated))
        partly.append(bool(before))
    assert mean(elsewhere) >= 0.5, "mostly another school has the rule"
    assert mean(partly) >= 0.1, "now and then only the last hop is missing"


def test_training_never_shows_a_wording_of_the_test_split(env: RegulationsEnv) -> None:
    words = load_district_words()
    for split in ("train", "validation"):
        district = make_district(0, split, 0)
        assert not district.unseen and not district.has_unseen
        texts = " ".join(passage.text for passage in district.passages)
        for frame in words.amendments.test:
            longest = max(re.split(r"\{\w+\}", frame), key=len).strip()
            assert longest not in texts, frame
        tasks = [env.make_task(split, index) for index in range(12)]
        assert not any(task.slices for task in tasks)


# The scripted policies.
def test_expert_solves_every_kind_within_the_default_turns(games: list[Played]) -> None:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for game in games:
        by_kind[game.task.kind].append(game.reward)
        assert PROTOCOL.format_score(game.turns) == 1.0 and game.is_answered
        searches = [action for action in game.actions if action.kind == SEARCH]
        assert len(searches) <= len(game.task.meta["queries"]) <= 3
    assert mean(game.reward for game in games) >= 0.98
    assert set(by_kind) == HARD_KINDS
    assert all(mean(rewards) >= 0.95 for rewards in by_kind.values()), by_kind


DISTRICTS = [("test", 0), ("test", 5), ("train", 0), ("validation", 1)]


@pytest.fixture(params=DISTRICTS, ids=lambda one: f"{one[0]}-{one[1]}", scope="module")
def district(request: pytest.FixtureRequest) -> District:
    return make_district(0, *request.param)


def all_statements(district: District) -> Iterator[tuple[str, Statement]]:
    """All statements, each with the id of its article."""
    for article in district.articles:
        yield from ((article.passage.id, one) for one in article.statements)


def test_current_statements_never_contradict_each_other(district: District) -> None:
    values, gists = defaultdict(set), defaultdict(set)
    for _, one in all_statements(district):
        if one.status is not Status.REPLACED:
            values[one.place, one.gist, one.condition].add(one.value)
            gists[one.place, one.gist, bool(one.condition)].add(one.about)
    assert len(values) > 900
    assert all(len(stated) == 1 for stated in values.values())
    # A reader's words for a rule stand for one rule of a school, and it has one exception.
    assert all(len(abouts) == 1 for abouts in gists.values())


def test_an_amendment_overrides_a_rule_of_another_article(district: District) -> None:
    by_status: dict[Status, dict[str, tuple[str, Statement]]] = defaultdict(dict)
    for article_id, one in all_statements(district):
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
