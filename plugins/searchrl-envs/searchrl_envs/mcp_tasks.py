"""Tasks for the tools of MCP servers: from files, and `searchrl mcp tasks`, which drafts some."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import click
from pydantic import BaseModel, Field, ValidationError

from searchrl import ConfigError, replace_file, show_value
from searchrl.contracts import Task, ToolCall
from searchrl.data import BadRow, Problems, Row, parse_rows

ROW = '{"question": "…", "answers": ["…"], "calls": [{"name": "…", "arguments": {…}}]}'
"""A task. `answers` may be left out if a judge scores; `calls` are for the scripted policy."""

PROMPT = """Write {count} different tasks that need these tools, as lines of JSON and nothing else:
{row}
The question can be answered in a few words, which are the answers; the calls find them.
Tools: {tools}"""


class TaskRow(BaseModel, coerce_numbers_to_str=True, extra="forbid"):
    """A row of a file of tasks."""

    question: Annotated[str, Field(pattern=r"\S")]
    answers: list[str] = []
    calls: list[ToolCall] = []


def parse_task(row: Row) -> Task:
    """The task of a row; `BadRow` says why there is none."""
    try:
        one = TaskRow.model_validate(row.value)
    except ValidationError as error:
        first = error.errors()[0]
        told = f"'{first['loc'][0]}' is {show_value(first['input'])}: {first['msg']}"
        raise BadRow(f"{told}; expected {ROW}") from None
    key = sha256(one.question.encode()).hexdigest()[:16]
    return Task(f"mcp-{key}", "", 0, one.question, (*one.answers,), meta={"calls": one.calls})


@lru_cache(maxsize=4)  # each rollout of a group makes its own environment
def load_tasks(questions: str) -> Mapping[str, Sequence[Task]]:
    """The tasks of each split that has some, chosen and ordered by a hash of the question."""
    problems, path = Problems(), Path(questions).expanduser()
    rows = parse_rows(path, problems, parse_task, f"task; expected rows {ROW}", places={})
    tasks = sorted(rows, key=lambda task: task.id)
    problems.ensure_none()
    held = max(1, len(tasks) // 10) if len(tasks) > 2 else 0
    parts = {"train": tasks[2 * held :], "validation": tasks[held : 2 * held]}
    return {name: part for name, part in {**parts, "test": tasks[:held]}.items() if part}


@click.group()
def mcp() -> None:
    """Work with MCP servers (`--env mcp:SERVER`)."""


@mcp.command()
@click.argument("server")
@click.option("--base-url", required=True, metavar="URL", help="An OpenAI-compatible endpoint.")
@click.option("--model", required=True, metavar="NAME", help="The model that drafts.")
@click.option("--n", "count", default=40, show_default=True, help="Tasks to ask for.")
@click.option("--out", default="tasks.jsonl", show_default=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file.")
def tasks(server: str, base_url: str, model: str, count: int, out: Path, force: bool) -> None:
    """Draft tasks for the tools of SERVER, a command or an address.

    The model sees the tools, not the data: check every task, and above all its answers.

    \b
    Example:
      searchrl mcp tasks "python server.py" --base-url http://localhost:8000/v1 --model NAME
    """
    from searchrl.api_client import Client, EndpointConfig, Message, Request
    from searchrl_envs.mcp_env import McpEnv

    if out.exists() and not force:
        raise ConfigError(f"--out {out}: the file is there; choose another name, or use --force")
    tools = {tool["name"]: tool for tool in McpEnv.tools(name=server)}
    asked = PROMPT.format(count=count, row=ROW, tools=json.dumps([*tools.values()]))
    client = Client(base_url, model, EndpointConfig(cache="off"))  # another call, other drafts
    reply = client.complete(Request((Message("user", asked),), 8192, temperature=1.0)).text
    drafts, num_bad = dict[str, TaskRow](), 0
    for line in filter(lambda line: "{" in line, reply.split("\n")):
        try:
            row = TaskRow.model_validate_json(line)
            if unknown := {call.name for call in row.calls} - tools.keys():
                raise ValueError(unknown)
            drafts[row.question] = row
        except ValueError:  # of pydantic as well
            num_bad += 1
    if not drafts:
        raise ConfigError(f"no task in the reply of {model}, which begins: {show_value(reply)}")
    replace_file(out, "".join(f"{one.model_dump_json()}\n" for one in drafts.values()).encode())
    told = f"{len(drafts)} tasks of {count}, {num_bad} lines left out"
    click.echo(f"{out}: {told}. Check every task by hand.")
