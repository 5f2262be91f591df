"""`searchrl judge`: how far a judge agrees with exact match and with the scores of people.

Owns the command: what a row of cases means, the asking and the table. No model, no torch. Whether
orders in an answer fool a judge is criterion V5 of `searchrl check`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl import ConfigError, SearchRLError

if TYPE_CHECKING:
    from searchrl.contracts import JudgeCase
    from searchrl.data import Row

OWN = Path(__file__).resolve().parent / "assets" / "cases.jsonl"
"""41 answers to 13 questions in six languages, each with the score that a person gave."""
THREADS = 64
"""Cases that are asked about at the same time; a judge may let fewer through."""
_SHOWN = 3
_ROW = (
    'such as {"question": "…", "answer": "…", "answers": ["accepted", …], "score": 0 to 1}, or a '
    "row of a run's rollouts"
)


@click.command("judge")
@click.argument("cases", required=False, type=click.Path(path_type=Path))
@click.option("--judge", "name", required=True, metavar="NAME", help="The judge to look at.")
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V",
    help="A setting, such as judge.model=NAME; may be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what it would cost, and stop.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE",
    help="A plugin file or module; may be repeated.",
)  # fmt: skip
def judge(
    cases: Path | None,
    name: str,
    assignments: tuple[str, ...],
    dry_run: bool,
    plugins: tuple[str, ...],
) -> None:
    """Report how far a judge agrees with exact match and with you, and what it costs.

    CASES is a file of rows with question, answer, answers (those that are accepted) and, if you
    like, score (0, 0.5 or 1), or a file of a run's rollouts; also as .gz. Without it, 41 cases in
    six languages that come with the package are asked.

    \b
    Examples:
      searchrl judge --judge lexical
      searchrl judge answers.jsonl --judge endpoint --set judge.url=http://localhost:8000/v1
    """
    from searchrl import load_plugins, make_judge, parse_sets
    from searchrl.contracts import PaidJudge, Unscored, Verdict
    from searchrl.rewards import em

    settings = parse_sets(assignments)
    if unknown := settings.keys() - {"judge"}:
        raise ConfigError(f"--set is for judge.KEY=VALUE, not for '{min(unknown)}'")
    before = click.get_current_context().find_root().params.get("plugin") or ()
    registry = load_plugins([*before, *plugins], must_load=True)
    made = make_judge(registry, name, settings.get("judge", {}))
    listed = read_cases(cases)
    if isinstance(made, PaidJudge):
        click.echo(f"{name}: {made.estimate(len(listed), 1).describe_estimate()}")
    if dry_run:
        return
    with ThreadPoolExecutor(THREADS) as pool:
        said = list(pool.map(lambda one: _ask(made, one[0]), listed))
    scored = [
        (case, one.score, label)
        for (case, label), one in zip(listed, said, strict=True)
        if isinstance(one, Verdict)
    ]
    click.echo(f"judge {name}: {len(scored)} of {len(listed)} cases scored")
    # Exact match knows no halves: partly right counts as wrong.
    exact = [(c, float(s == 1), em(c.answer, c.references)) for c, s, _ in scored if c.references]
    _show_agreement("exact match", exact)
    _show_agreement("your scores", [(c, s, label) for c, s, label in scored if label is not None])
    reasons = [one.reason if isinstance(one, Unscored) else one for one in said]
    for reason, count in Counter(one for one in reasons if isinstance(one, str)).items():
        click.echo(f"not scored, {count} times: {reason}")
    if isinstance(made, PaidJudge):
        click.echo(f"{name}: {made.traffic.describe()}")
    if not scored:
        raise SearchRLError("the judge scored none of the cases; the reasons are above")


def read_cases(path: Path | None = None) -> list[tuple[JudgeCase, float | None]]:
    """The cases of a file with the scores that people gave; without one, those of the package.

    Rollouts without a final answer are left out: there is nothing to judge.

    Raises:
        DataError: with the first rows that cannot be used.
    """
    from searchrl.data import Problems, parse_rows

    problems = Problems()
    file = OWN if path is None else path
    made = parse_rows(file, problems, _read_case, f"case; expected rows {_ROW}")
    found = [one for one in made if one is not None]
    problems.ensure_none()
    return found


def _read_case(given: Row) -> tuple[JudgeCase, float | None] | None:
    from searchrl import show_value
    from searchrl.contracts import JUDGE_SCALE, JudgeCase
    from searchrl.data import BadRow

    row = given.value
    if "final_answer" in row and isinstance(row.get("task"), Mapping):
        if row["final_answer"] is None:
            return None
        row = {**row["task"], "answer": row["final_answer"]}
    for key in ("question", "answer"):
        if not isinstance(row.get(key), str):
            raise BadRow(f"'{key}' is {show_value(row.get(key))}; expected text, in a row {_ROW}")
    accepted = row.get("answers") or []
    accepted = [accepted] if isinstance(accepted, str) else accepted
    if not isinstance(accepted, list | tuple) or not all(isinstance(a, str) for a in accepted):
        raise BadRow(f"'answers' is {show_value(accepted)}; expected a list of texts")
    label = row.get("score")
    if label is not None and (isinstance(label, bool) or label not in JUDGE_SCALE):
        raise BadRow(f"'score' is {show_value(label)}; expected 0, 0.5 or 1")
    return JudgeCase(row["question"], row["answer"], tuple(accepted)), label


def _ask(made: Any, case: JudgeCase) -> Any:
    """A `Verdict`, `Unscored`, or why there is neither."""
    from searchrl.contracts import find_verdict_problem

    try:
        said = made.judge(case)
    except SearchRLError as error:
        return str(error)
    except Exception as error:  # of a plugin
        return f"raised {type(error).__name__}: {error}"
    problem = find_verdict_problem(said)
    return f"returned {problem}" if problem else said


def _show_agreement(other: str, rows: list[tuple[JudgeCase, float, float]]) -> None:
    """The share of equal scores with its 95 % interval, and the cases that differ most."""
    from searchrl import estimate

    if not rows:
        return
    same = {str(place): float(one == two) for place, (_, one, two) in enumerate(rows)}
    share = estimate({"same": same})["same"]
    higher = sum(one > two for _, one, two in rows)
    lower = sum(one < two for _, one, two in rows)
    click.echo(
        f"agrees with {other} {share['value']:.3f} [{share['low']:.3f}, {share['high']:.3f}] "
        f"({sum(same.values()):.0f} of {len(rows)}); higher {higher} times, lower {lower} times"
    )
    differing = [row for row in rows if row[1] != row[2]]
    for case, one, two in sorted(differing, key=lambda row: -abs(row[1] - row[2]))[:_SHOWN]:
        click.echo(f"  {one:g}, not {two:g}: {case.answer[:80]!r} to {case.question[:80]!r}")
