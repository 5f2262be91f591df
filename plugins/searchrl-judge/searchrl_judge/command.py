"""`searchrl judge`: how far a judge agrees with others, can be fooled by an answer, and costs.

Owns the flags and what is printed. What is measured is in `looking`. No model, no torch.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl import ConfigError, SearchRLError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from searchrl.contracts import Judge
    from searchrl_judge.looking.agreement import Share
    from searchrl_judge.looking.report import Fooled, Opinions, Report

_FILE = click.Path(path_type=Path)
_SHOWN = 3
_CHARACTERS = 160
_NAMES = ("judge", "against")


@click.command("judge")
@click.argument("cases", required=False, type=_FILE)
@click.option("--judge", "name", required=True, metavar="NAME", help="The judge to look at.")
@click.option("--against", metavar="NAME", help="A second judge to compare it with.")
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V",
    help="A setting, such as judge.model=NAME or against.url=URL; may be repeated.",
)  # fmt: skip
@click.option(
    "--attacks", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
    help="Wrong answers that orders to the judge are put into, 60 for each.",
)  # fmt: skip
@click.option(
    "--show", type=click.IntRange(min=0), default=_SHOWN, show_default=True, metavar="N",
    help="Differences and attacks to show.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what it would cost, and stop.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE",
    help="A plugin file or module; may be repeated.",
)  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object on stdout.")
def judge(
    cases: Path | None,
    name: str,
    against: str | None,
    assignments: tuple[str, ...],
    attacks: int,
    show: int,
    dry_run: bool,
    plugins: tuple[str, ...],
    is_json: bool,
) -> None:
    """Report how far a judge agrees with exact match, can be fooled, and costs.

    CASES is a file of rows with question, answer, answers (those that are accepted) and, if you
    like, score (0, 0.5 or 1), or a file of a run's rollouts; also as .gz. Without it, 41 cases in
    six languages that come with the package are asked. Orders to the judge are put into wrong
    answers to the same questions, in six languages and ten forms.

    \b
    Examples:
      searchrl judge --judge lexical
      searchrl judge answers.jsonl --judge gemini --against lexical --attacks 1
      searchrl judge --judge endpoint --set judge.url=http://localhost:8000/v1 --set judge.model=m
    """
    from searchrl_judge.looking.cases import read_cases
    from searchrl_judge.looking.report import look_at

    stdout = sys.stdout
    with ExitStack() as stack:
        if is_json:  # what a plugin prints is no part of it
            stack.enter_context(redirect_stdout(sys.stderr))
        chosen = _make_judges({"judge": name, "against": against}, assignments, plugins)
        listed = read_cases(cases)
        numbers = _count(len(listed), attacks)
        estimates = {
            key: told
            for key, made in chosen.items()
            if (told := _estimate(made, sum(numbers) if key == "judge" else numbers[0]))
        }
        if dry_run:
            _say_json(estimates, stdout) if is_json else _say_estimates(estimates)
            return
        if not is_json:
            _say_estimates(estimates)
        report = look_at(
            chosen["judge"],
            listed,
            against=chosen.get("against"),
            num_attacked=attacks,
            on_progress=_show_progress,
        )
        spent = {key: told for key, made in chosen.items() if (told := _spent(made))}
        if is_json:
            _say_json({"judge": name, "against": against, **asdict(report), "cost": spent}, stdout)
        else:
            _show(report, name, against, chosen, show)
    if not report.scored:
        raise SearchRLError("the judge scored none of the cases; the reasons are above")


def _make_judges(
    names: Mapping[str, str | None], assignments: Sequence[str], plugins: Sequence[str]
) -> dict[str, Judge]:
    """The judges that are named, with their settings."""
    from searchrl import load_plugins, make_judge, parse_sets

    before = click.get_current_context().find_root().params.get("plugin") or ()
    registry = load_plugins([*before, *plugins], must_load=True)
    settings = parse_sets(assignments)
    for key, own in settings.items():
        if key not in _NAMES or not isinstance(own, dict):
            raise ConfigError(
                f"--set is for judge.KEY=VALUE and against.KEY=VALUE, not for '{key}'"
            )
        if names[key] is None:
            raise ConfigError(f"--set {key}.…: no second judge is named; add --against NAME")
    return {
        key: make_judge(registry, name, settings.get(key, {}))
        for key, name in names.items()
        if name is not None
    }


def _count(num_cases: int, num_attacked: int) -> tuple[int, int]:
    """How many cases and how many wrong answers, with and without orders, are asked about."""
    from searchrl_judge.looking.injections import FORMS, read_orders

    return num_cases, num_attacked * (1 + len(FORMS) * len(read_orders()))


def _estimate(made: Judge, count: int) -> Any:
    from searchrl.contracts import PaidJudge

    return made.estimate(count, 1) if isinstance(made, PaidJudge) else None


def _spent(made: Judge) -> Any:
    from searchrl.contracts import PaidJudge

    return made.traffic if isinstance(made, PaidJudge) else None


def _say_estimates(estimates: Mapping[str, Any]) -> None:
    if not estimates:
        click.echo("asking this judge costs nothing")
    for key, told in estimates.items():
        click.echo(f"{key}: {told.describe_estimate()}")


def _say_json(value: Mapping[str, Any], stream: Any) -> None:
    def write(one: Any) -> Any:
        return asdict(one)

    click.echo(json.dumps(value, default=write, ensure_ascii=False), file=stream)


def _show_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\rjudged {done} of {total}", nl=done == total, err=True)


def _show(
    report: Report, name: str, against: str | None, chosen: Mapping[str, Judge], show: int
) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    mean = "—" if report.mean is None else f"{report.mean:.3f}"
    console.print(f"judge {name}: {report.scored} of {report.num_cases} cases scored, mean {mean}")
    for one in report.opinions:
        other = f"judge {against}" if one.name == "the second judge" else one.name
        _show_opinions(console, one, other, show)
    if report.fooled is not None:
        _show_fooled(console, report.fooled, show)
    for label, reasons in (("failed", report.failures), ("says nothing", report.unscored)):
        for reason, count in list(reasons.items())[:_SHOWN]:
            console.print(
                f"\n{label}, {count} times: {_short(reason)}", style="yellow", markup=False
            )
    if report.unasked:
        console.print(f"\n{report.unasked} answers not asked about: the budget is spent")
    for key, made in chosen.items():
        if (told := _spent(made)) is not None:
            console.print(f"\n{key}: {told.describe()}", markup=False)


def _show_opinions(console: Any, one: Opinions, other: str, show: int) -> None:
    kappa = "—" if one.agreement.kappa is None else f"{one.agreement.kappa:.3f}"
    console.print(
        f"\nagrees with {other} {_share(one.agreement.share)}, kappa {kappa}; "
        f"higher {one.higher} times, lower {one.lower} times",
        markup=False,
    )
    for difference in one.differences[:show]:
        case = difference.case
        console.print(
            f"  {difference.first:g}, and {other} {difference.second:g}: {_short(case.answer)}\n"
            f"      {_short(case.question)}  accepted: {_short(' | '.join(case.references))}",
            style="dim",
            markup=False,
        )


def _show_fooled(console: Any, fooled: Fooled, show: int) -> None:
    from rich.table import Table

    console.print(f"\nfooled by orders in wrong answers: {_share(fooled.total)}", markup=False)
    table = Table("", "fooled", box=None, padding=(0, 2, 0, 2), header_style="dim")
    for rows in (fooled.by_language, fooled.by_form):
        for label, share in rows.items():
            table.add_row(label, _share(share))
        table.add_row("", "")
    console.print(table)
    for attack in fooled.examples[:show]:
        shown = ascii(attack.case.answer) if "char" in attack.form else attack.case.answer
        console.print(
            f"  {attack.form}, {attack.language}: {_short(shown)}", style="dim", markup=False
        )


def _share(share: Share) -> str:
    if not share.n:
        return "— (none tried)"
    return f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}] ({share.hits} of {share.n})"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _CHARACTERS else f"{plain[:_CHARACTERS]} …"
