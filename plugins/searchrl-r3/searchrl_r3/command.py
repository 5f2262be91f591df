"""`searchrl traces build`: questions in, a file of steps to imitate out."""

from __future__ import annotations

import json
from pathlib import Path

import click

from searchrl_r3.traces import WRITERS


@click.group()
def traces() -> None:
    """Make demonstrations of steps from questions."""


@traces.command()
@click.option("--env", "env", required=True, metavar="NAME", help="Where the questions are.")
@click.option("--writer", type=click.Choice(WRITERS), default="oracle", show_default=True)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write.")
@click.option("--num-tasks", default=1000, show_default=True, help="Training tasks to play.")
@click.option("--model", metavar="NAME", help="The model of the writers policy and endpoint.")
@click.option("--url", metavar="URL", help="Of the endpoint.")
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V",
    help="A setting, such as env.questions=FILE; may be repeated.",
)  # fmt: skip
def build(
    env: str,
    writer: str,
    out: Path,
    num_tasks: int,
    model: str | None,
    url: str | None,
    assignments: tuple[str, ...],
) -> None:
    """Play training questions and keep the traces that are right, well-formed and different.

    \b
    Examples:
      searchrl traces build --env multihop --set env.questions=hotpot.json --out traces.jsonl
      searchrl traces build --env multihop --writer endpoint --url http://localhost:8000/v1 \\
        --model NAME --out traces.jsonl
    """
    from searchrl import ConfigError, parse_sets, replace_file
    from searchrl_r3.traces import build, rows_of, yields

    given = parse_sets(assignments)
    config = {key: value for key, value in given.items() if key not in ("env", "protocol")}
    if (writer != "oracle" and not model) or (writer == "endpoint" and not url):
        needs = "--model" if writer == "policy" else "--url and --model"
        raise ConfigError(f"the writer '{writer}' needs {needs}")
    if writer == "endpoint":
        config["policy"] = f"endpoint:{url}"
    if model:
        config["model"] = {"name": model, **config.get("model", {})}
    written = build(
        {"name": env, **given.get("env", {})},
        writer,
        num_tasks,
        protocol={"name": "r3", **given.get("protocol", {})},
        config=config,
        plugins=click.get_current_context().find_root().params.get("plugin") or (),
    )
    rows = list(rows_of(written, writer))
    if not rows:
        faults = ", ".join(dict.fromkeys(one.fault for one in written)) or "no task was played"
        raise ConfigError(f"no trace is worth keeping; what was wrong: {faults}")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    replace_file(out, text.encode("utf-8", "surrogatepass"))
    rows_by_hops = yields(written)
    rest = json.dumps([one._asdict() for one in rows_by_hops], indent=1)
    replace_file(out.with_suffix(".yield.json"), rest.encode())
    for one in rows_by_hops:
        share = 100 * one.kept / one.played
        lost = ", ".join(f"{fault} {count}" for fault, count in one.faults.most_common())
        hops = "1 hop " if one.hops == 1 else f"{one.hops} hops"
        click.echo(f"{hops}  kept {one.kept} of {one.played} ({share:.0f} %)  {lost}")
    click.echo(f"{len(rows)} traces  {out}\nnow  searchrl sft --traces {out} --protocol r3")
