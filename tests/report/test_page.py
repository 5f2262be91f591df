"""The page in a real browser: a newcomer's questions, keyboard, names, sizes, and no network.

Skipped where Chromium and its driver are not installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from browser import Browser
from stored_run import CHESS, HOSTILE, answer, make_row, search, write_run

from searchrl.report.folder import write_report
from searchrl.run_folder import Run

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(browser.find() is None, reason="no Chromium with chromedriver"),
]

RIGHT = "#/rollout/train.1/step0/p0/0"
VIEWS = (
    "#/",
    "#/rollouts",
    RIGHT,
    RIGHT.replace("rollout", "group"),
    "#/compare",
    "#/help",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    run = Run.open(write_run(folder / "run"))
    figures = {"validation": {"value": 0.25, "low": 0.1, "high": 0.5, "n": 16}}
    nodes = [
        {"id": name, "parent": parent, "label": name, "text": "Be brief. " * 40, "figures": figures}
        for name, parent in (("first", None), ("second", "first"), ("third", "second"))
    ]
    (run.path / "candidates.json").write_text(json.dumps({"nodes": nodes}), "utf-8")
    return write_report([run], folder / "report").page


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture
def opened(window: Browser, page: Path) -> Browser:
    window.resize(1280, 900)
    window.open(page)
    return window


Click = tuple[str, str]
"""What is clicked: a selector, and a part of its text."""

NEGATIVE = [("a", "get a negative advantage"), ("a.rollout", "Who")]

QUESTIONS: dict[str, tuple[list[Click], str, list[str]]] = {
    "Did training help, and by how much?": (
        [], "main", ["reward\t1.50 [1.40, 1.60] n=2\t1.80 [1.70, 1.90] n=2\t+0.300"],
    ),
    "What went wrong in the run, and what can I try?": (
        [], "main", ["The agent stopped searching.", "lower the learning rate"],
    ),
    "Which tokens were trained?": (
        [("a", "Which tokens were trained"), ("a.rollout", "Who")],
        ".legend", ["What was trained is underlined", "token trained"],
    ),
    "Why did a rollout get a negative advantage?": (
        NEGATIVE, "main",
        ["It earned 1, less than the mean of its group of 4, which is 1.33",
         "What sets it apart: em 0.", "So the update pushes its tokens down."],
    ),
    "Where did retrieval fail?": (
        NEGATIVE, ".retrieval", ["hop 1: art-1\tshown, rank 1", "hop 2: art-2\tnot shown, rank 9"],
    ),
    "When did it stop searching?": (
        NEGATIVE, ".retrieval",
        ["It searched in 1 of 2 turns, the last time in turn 1. Then: answer."],
    ),
    "When did the agent begin or stop to search?": (
        [("a", "begin or stop to search")], "#curves", ["without search 0.200"],
    ),
    "How unsure was the model of each token?": (
        [("a", "How unsure was the model"), ("a.rollout", "Who")], "aside", ["entropy\n0.900 nats"],
    ),
    "What did the model read?": (
        [*NEGATIVE, ("summary", "What it read")], ".retrieval", ["Doc 1: art-1 says so."],
    ),
    "What did the rollouts of one group do differently?": (
        [("nav a", "Rollouts"), ("td a", "+1.40")], "main",
        ["advantage +1.40", "advantage −0.700", "Answer: Nora Fell", "Answer: I do not know"],
    ),
    "Which tasks got better, which got worse?": (
        [("nav a", "Compare")], "main",
        ["2 tasks on both sides: 1 better (50.0 %), 1 worse (50.0 %)",
         "When does the hall close?\ttwo_hop\t2\t1\t−1"],
    ),
    "What failed, and who failed?": (
        [("a", "What failed"), ("a.rollout", "Who")], "main",
        ["retriever 'web' (shop) failed (retriever): it is down"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_with_three_clicks_at_most(opened: Browser, question: str):
    clicks, place, answers = QUESTIONS[question]
    assert len(clicks) <= 3
    for selector, text in clicks:
        opened.wait(f"document.querySelector({selector!r})")
        opened.click(selector, text)
        opened.settle()
    text = opened.text(place)
    for told in answers:
        assert told in text, text


def test_the_underlined_tokens_are_those_that_were_trained(opened: Browser):
    opened.go(RIGHT)
    script = """
        return [...document.querySelectorAll(".tokens .trained")]
            .map((one) => [one.dataset.place, one.textContent]);
    """
    trained = opened.run(script)
    turns = "<search>room of the chess club</search><search>who looks after room B12</search>"
    assert "".join(text for _, text in trained) == f"{turns}<answer>Nora Fell</answer>"
    opened.go("#/rollout/after.1/eval/0/0/0")  # the same turns, played to measure
    assert opened.run(script) == []


def test_every_figure_of_a_token_is_shown(opened: Browser):
    opened.go(RIGHT)
    opened.click(".by-M [data-place]")
    facts = opened.text("aside")
    for line in (
        "author\nmodel, turn 1", "trained\nyes", "log-prob\n−0.500 (60.7 %)", "ratio\n1",
        "clipped\nno", "advantage\n+1.40", "entropy\n0.900 nats",
    ):  # fmt: skip
        assert line in facts, facts
    rows = [row for row in opened.run("return SEARCHRL.given.get('rollouts_0001')")[2:4]]
    assert rows[0]["clipped"] == []
    assert "of its step" in facts
    for overlay in ("logp", "ratio", "clipped", "advantage", "entropy", "share", "trained"):
        opened.choose("#overlay", overlay)
        marked = opened.run("return document.querySelectorAll('.by-M .t:not(.none)').length")
        assert marked > 20, overlay


def test_the_list_is_filtered_sorted_and_grouped(opened: Browser):
    opened.go("#/rollouts")
    assert "8 of 8 rollouts" in opened.text()
    row = "return document.querySelector('tbody tr').innerText"
    assert "train 1" in opened.run(row)  # the last step of training comes first
    opened.click(".patterns button", "no search, wrong")
    opened.settle()
    assert "3 of 8 rollouts" in opened.text("#list")
    assert "pattern=no+search" in opened.run("return location.hash")
    opened.open(opened.page, opened.run("return location.hash"))  # a link to what is shown
    assert "3 of 8 rollouts" in opened.text("#list")
    opened.go("#/rollouts?phase=train&sort=-advantage")
    column = "return [...document.querySelectorAll('tbody tr')].map((row) => row.innerText)"
    first, *_, last = opened.run(column)
    assert "+1.40" in first and "retriever: retriever 'web' (shop)" in last
    opened.go("#/rollouts?stop=failed")
    assert "1 of 8 rollouts" in opened.text("#list")
    opened.go("#/rollouts?score=em&value=1")
    assert "3 of 8 rollouts" in opened.text("#list")


def test_text_of_a_run_stays_text(opened: Browser):
    for place in (*VIEWS, "#/rollouts?text=%3Cscript", "#/rollout/after.1/eval/0/1/0"):
        opened.go(place)
        assert opened.run("return document.title") not in ("taken", "1")
        assert not opened.run("return document.querySelectorAll('main script, main img').length")
    assert HOSTILE in opened.text()
    opened.go(RIGHT)
    drawings = opened.text("main")
    assert drawings.count(HOSTILE) == 3 and "the plan drawn by reward 'plan'" in drawings


def test_no_view_asks_a_network_or_complains(opened: Browser):
    for place in VIEWS:
        opened.go(place)
    assert opened.console() == []
    asked = [one for one in opened.requests() if not one.startswith(("file:", "data:"))]
    assert asked == []


def test_all_of_it_with_the_keyboard(opened: Browser):
    opened.press("2")
    opened.settle()
    assert opened.run("return document.activeElement.tagName") == "H1"
    opened.press("/")
    opened.press(*"hall")
    assert "2 of 8 rollouts" in opened.text("#list")
    assert opened.run("return document.activeElement.id") == "search"
    for _ in range(40):
        opened.press("Tab")
        if opened.run("return document.activeElement.className") == "rollout":
            break
    opened.press("Enter")
    opened.settle()
    assert "When does the hall close?" in opened.text("h1")
    opened.press("j")
    opened.settle()
    assert "after, 1 step done" in opened.text(".where")
    for _ in range(40):
        opened.press("Tab")
        if opened.run("return document.activeElement.dataset.place"):
            break
    before = opened.run("return document.activeElement.dataset.place")
    opened.press("ArrowRight")
    assert opened.run("return document.activeElement.dataset.place") == str(int(before) + 1)
    assert f"token={int(before) + 1}" in opened.run("return location.hash")
    opened.press("g")
    opened.settle()
    assert "#/group/" in opened.run("return location.hash")


def test_candidates_stand_below_their_parents(opened: Browser):
    deepest = "#tree li li li > details > summary"
    assert opened.run(f"return document.querySelector('{deepest}').textContent") == (
        "third validation 0.250 [0.100, 0.500] n=16"
    )


def test_a_link_to_a_token_opens_it(opened: Browser, page: Path):
    opened.open(page, f"{RIGHT}?token=3")  # of the prompt, which is folded
    assert opened.run("return document.activeElement.dataset.place") == "3"
    assert "author\nprompt" in opened.text("aside")


@pytest.mark.parametrize("place", VIEWS)
def test_nothing_is_wider_than_a_phone(opened: Browser, place: str):
    opened.resize(390, 800)
    opened.go(place)
    assert opened.run("return document.documentElement.scrollWidth") <= 390


def test_two_runs_are_compared_on_the_tasks_of_both(
    opened: Browser, page: Path, tmp_path: Path
) -> None:
    runs = [Run.open(page.parents[1] / "run"), Run.open(write_run(tmp_path / "other"))]
    report = write_report(runs, tmp_path / "report")
    both = report.page
    assert not any("no task in common" in note for note in report.notes)
    opened.open(both)
    loaded = "return [...document.querySelectorAll('#together img')].map((one) => one.naturalWidth)"
    assert all(opened.run(loaded)) and len(opened.run(loaded)) == 2, "reward, without search"
    opened.open(both, "#/compare?a=0.before.0&b=1.after.1")
    assert "2 tasks on both sides: 1 better" in opened.text()
    opened.click("tbody th a", "Who looks")
    opened.settle()
    assert "other run, after, 1 step done" in opened.text()


@pytest.mark.parametrize(("reason", "lost"), [("drop", 2), ("summary", 1)])
def test_what_the_next_segment_lacks_is_marked(
    window: Browser, tmp_path: Path, reason: str, lost: int
):
    row = make_row("s/p/0", CHESS, [search("q", []), answer("so"), answer("x")])
    row |= {"segments": [0, row["turn"].index(2)], "segment_reasons": ["first", reason]}
    run = Run.open(write_run(tmp_path / "run", {"step_000001": [row]}))
    window.open(write_report([run], tmp_path / "report").page, "#/rollout/train.1/s/p/0")
    assert window.text(".tokens").count("not in segment 2") == lost
