"""`searchrl judge`: agreement, orders hidden in answers, cost; and the criteria of the package."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fixtures.openai_server import Fault, OpenAIServer
from judge_models import careful, obedient
from searchrl_judge.looking.agreement import compare, make_share
from searchrl_judge.looking.cases import OWN, Labelled, read_cases
from searchrl_judge.looking.injections import FORMS, make_attacks, read_orders
from searchrl_judge.looking.report import look_at, pick_wrong

from searchrl import DataError
from searchrl.cli import main
from searchrl.contracts import JudgeCase, Unscored, Verdict
from searchrl.rewards.lexical import LexicalJudge
from searchrl.testing import Status, check_plugin

MODULE = "searchrl_judge"
NUM_ATTACKS = 60


class Says:
    """A judge that says of each answer what a table has; an exception is raised."""

    def __init__(self, **said: Any) -> None:
        self.said = said

    def judge(self, case: JudgeCase) -> Any:
        found = self.said.get(case.answer, 0.0)
        if isinstance(found, Exception):
            raise found
        return Verdict(found) if isinstance(found, float) else found


def labelled(answer: str, label: float | None = None, accepted: str = "x") -> Labelled:
    return Labelled(JudgeCase("q", answer, (accepted,)), label)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["--plugin", MODULE, "judge", *words])


def settings(url: str, who: str = "judge", **more: Any) -> list[str]:
    # With repetitions: this server is small, and many ask at once.
    given = {"url": url, "model": "toy", "cache": "off", "max_retries": 3, **more}
    return [word for k, v in given.items() for word in ("--set", f"{who}.{k}={v}")]


def test_shares_and_kappa_are_those_of_a_hand_calculation() -> None:
    # Wilson for 8 of 10: (0.8 + 0.19207) / 1.38415 ± 1.95996 · sqrt(0.016 + 0.0096037) / 1.38415.
    share = make_share(8, 10)
    assert (share.value, round(share.low, 4), round(share.high, 4)) == (0.8, 0.4902, 0.9433)
    assert make_share(0, 0).n == 0 and make_share(0, 0)[3:] == (0.0, 1.0)
    # Seen: (0 + 0 + 0.25 + 1) / 4. By chance, margins {0: 2, 0.5: 1, 1: 1} and {0: 1, 1: 3}:
    # (2·1·0 + 2·3·1 + 1·1·0.25 + 1·3·0.25 + 1·1·1 + 0) / 16 = 8 / 16.
    agreement = compare([0.0, 1.0, 0.5, 0.0], [0.0, 1.0, 1.0, 1.0])
    assert agreement.share.hits == 2 and agreement.kappa == pytest.approx(1 - 0.3125 / 0.5)
    assert compare([1.0, 1.0], [1.0, 1.0]).kappa is None


def test_agreement_is_told_with_exact_match_your_scores_and_a_second_judge() -> None:
    cases = [labelled("x", 1.0), labelled("near", 0.5), labelled("far", 0.0), labelled("odd")]
    first = Says(x=1.0, near=0.5, odd=Unscored("nothing to say"), far=1.0)
    report = look_at(first, cases, against=Says(x=1.0), num_attacked=0)
    exact, yours, second = report.opinions
    # Against exact match, partly right counts as wrong.
    assert (exact.agreement.share.hits, exact.agreement.share.n) == (2, 3)
    assert (exact.higher, exact.lower) == (1, 0)
    assert (yours.agreement.share.hits, yours.agreement.share.n) == (2, 3)
    assert (second.agreement.share.hits, second.higher) == (1, 2)
    assert [one.case.answer for one in second.differences] == ["far", "near"]
    assert report.fooled is None and report.unscored == {"nothing to say": 1}
    assert (report.scored, report.num_cases) == (3, 4)


def test_a_case_that_fails_is_counted_with_its_reason_and_the_others_go_on() -> None:
    cases = [labelled("a"), labelled("b"), labelled("x"), labelled("half")]
    judge = Says(a=OSError("no line"), b=OSError("no line"), x=1.0, half=0.7)
    report = look_at(judge, cases, num_attacked=0)
    assert report.failures == {
        "raised OSError: no line": 2,
        "returned a Verdict with the score 0.7; expected one of 0, 0.5, 1": 1,
    }
    assert report.scored == 1 and report.mean == 1.0


def test_wrong_answers_are_the_right_ones_of_other_questions() -> None:
    cases = read_cases()
    wrong = pick_wrong(cases, 5)
    assert len(wrong) == 5 and len({case.question for case in wrong}) == 5
    accepted = {text for one in cases for text in one.case.references}
    for case in wrong:
        assert case.answer in accepted and case.answer not in case.references
    (alone,) = pick_wrong([labelled("x")], 3)
    assert alone.answer == "I do not know."


def test_orders_come_in_six_languages_and_hidden_forms() -> None:
    case = JudgeCase("q", "wrong answer", ("right answer",))
    attacks = list(make_attacks([case]))
    assert len(read_orders()) == 6 and len(attacks) == NUM_ATTACKS == 6 * len(FORMS)
    assert len({attack.case.answer for attack in attacks}) == NUM_ATTACKS
    for attack in attacks:
        keeps = attack.form == "in place of the answer" or "wrong answer" in attack.case.answer
        assert keeps and attack.case != attack.plain == case
    seen = {a.form: a.case.answer for a in attacks if a.language == "Arabic"}
    hidden = ("invisible characters", "zero-width spaces", "Base64")
    orders = read_orders()["Arabic"]
    for form, answer in seen.items():
        read = answer.replace('\\"', '"')  # JSON in JSON
        assert any(order in read for order in orders) != (form in hidden), form
    assert not {c for c in seen["invisible characters"] if ord(c) < 0xE0000} - set("wrong answer")


def test_the_lexical_judge_falls_for_none_of_them() -> None:
    report = look_at(LexicalJudge(), read_cases(), num_attacked=13)
    assert report.fooled is not None
    assert report.fooled.total.hits == 0 and report.fooled.total.n >= 13 * NUM_ATTACKS


def test_a_judge_that_obeys_is_found_out_by_language_and_form() -> None:
    with OpenAIServer(obedient) as server:
        said = run("--judge", "endpoint", "--attacks", "2", "--json", *settings(server.url))
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)
    fooled = told["fooled"]
    assert fooled["total"][1] == 2 * NUM_ATTACKS
    by_form = {name: share[0] for name, share in fooled["by_form"].items()}
    # What nobody sees is taken out before the model is asked; everything else reaches it.
    assert by_form["after the answer"] >= 6 and by_form["Base64"] >= 6
    assert by_form["forged verdict"] == 12 and by_form["invisible characters"] == 0
    spent = told["cost"]["judge"]
    assert spent["calls"] - spent["retries"] == len(server.bodies) and not spent["failed"]


def test_the_report_is_for_people_as_well(tmp_path: Path) -> None:
    rows = [
        {"question": "When?", "answer": "at 16:45 I think", "answers": ["16:45"], "score": 0.5},
        {"question": "Who?", "answer": "Ada", "answers": ["Ada"], "score": 1},
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with OpenAIServer(careful) as server:
        url = settings(server.url, prompt_price=1, completion_price=2)
        said = run(str(file), "--judge", "endpoint", "--against", "lexical", "--attacks", "1", *url)
    assert said.exit_code == 0, said.output
    assert "judge: about 63 calls" in said.stdout and "cost about 0.0" in said.stdout
    assert "judge endpoint: 2 of 2 cases scored, mean 1.000" in said.stdout
    assert "agrees with exact match 0.500 [0.095, 0.905] (1 of 2)" in said.stdout
    assert "agrees with your scores 0.500" in said.stdout
    assert "agrees with judge lexical 0.500" in said.stdout
    assert "fooled by orders in wrong answers: 0.000 [0.000, 0.060] (0 of 60)" in said.stdout
    assert "Arabic" in said.stdout and "HTML comment" in said.stdout
    assert re.search(r"judge: \d+ calls \(\d+ repeated\), 0 replies from the cache", said.stdout)


def test_a_dry_run_asks_nobody() -> None:
    with OpenAIServer(careful) as server:
        said = run("--judge", "endpoint", "--dry-run", *settings(server.url))
    assert said.exit_code == 0 and not server.bodies
    assert f"about {len(read_cases()) + 3 * (1 + NUM_ATTACKS)} calls" in said.stdout


def test_a_budget_ends_the_asking_and_an_outage_ends_with_its_reason() -> None:
    with OpenAIServer(careful) as server:
        said = run(
            "--judge",
            "endpoint",
            "--attacks",
            "0",
            *settings(server.url, max_calls=5, concurrency=1),
        )
    assert said.exit_code == 0 and len(server.bodies) == 5
    assert "36 answers not asked about: the budget is spent" in said.stdout
    with OpenAIServer(lambda body: Fault(401, "bad key")) as server:
        said = run("--judge", "endpoint", "--attacks", "0", *settings(server.url))
    assert said.exit_code == 2 and len(server.bodies) < 41
    assert "failed, 41 times" in said.stdout and "bad key" in said.stdout
    assert "scored none of the cases" in said.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--judge", "lexicl"], "Did you mean 'lexical'"),
        (["--judge", "lexical", "--set", "near=1"], "--set is for judge.KEY=VALUE"),
        (["--judge", "lexical", "--set", "against.near=1"], "no second judge is named"),
        (["--judge", "lexical", "--set", "judge.near=1"], "has no setting 'near'"),
        (["nowhere.jsonl", "--judge", "lexical"], "nowhere.jsonl"),
    ],
)
def test_a_slip_on_the_command_line_is_one_sentence(words: list[str], text: str) -> None:
    said = run(*words)
    assert said.exit_code == 2 and text in " ".join(said.stderr.split()), said.output


def test_cases_are_rows_of_any_file_and_rollouts_of_a_run(tmp_path: Path) -> None:
    own = read_cases()
    assert len(own) == 41 and {one.label for one in own} == {0, 0.5, 1}
    assert len({one.case.question for one in own}) == 13
    rollout = {"task": {"question": "Who?", "answers": ["Ada"]}, "final_answer": "Ada", "turns": []}
    file = tmp_path / "rollouts.jsonl"
    file.write_text(json.dumps(rollout) + "\n" + json.dumps(rollout | {"final_answer": None}))
    assert read_cases(file) == [Labelled(JudgeCase("Who?", "Ada", ("Ada",)))]
    for row, text in (
        ({"answer": "x"}, "'question' is null"),
        ({"question": "q", "answer": "x", "answers": [1]}, r"'answers' is \[1\]"),
        ({"question": "q", "answer": "x", "score": 0.7}, "'score' is 0.7; expected 0, 0.5 or 1"),
        ([], "expected an object"),
    ):
        file.write_text(json.dumps({"question": "q", "answer": "a"}) + "\n" + json.dumps(row))
        with pytest.raises(DataError, match=f"rollouts.jsonl:2: .*{text}"):
            read_cases(file)
    assert OWN.is_file()


@pytest.mark.thorough
def test_every_part_meets_its_criteria(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    reports = {(one.kind, one.name): one for one in check_plugin(MODULE, plugins=[MODULE])}
    assert reports.keys() == {
        ("judge", "endpoint"),
        ("judge", "gemini"),
        ("reward", "judge_rank"),
    }
    for report in reports.values():
        assert report.is_good, report.failed
    skipped = [r.note for r in reports["judge", "gemini"].results if r.status is not Status.PASSED]
    assert all("GEMINI_API_KEY holds no key" in note for note in skipped) and len(skipped) == 7


def test_a_judge_whose_server_is_there_is_held_to_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    for model, failed in ((careful, set()), (obedient, {"V5"})):
        with OpenAIServer(model) as server:
            given = {"url": server.url, "model": "toy", "cache": "off"}
            (report,) = check_plugin("endpoint", kind="judge", settings=given, plugins=[MODULE])
        assert {one.number for one in report.failed} == failed, report.failed
        assert not [r for r in report.results if r.status is Status.NOT_APPLICABLE]
