"""Tasks for the tools of MCP servers: from files, and `searchrl mcp tasks`, which drafts some."""

import json
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BaseModel, Field, ValidationError

from searchrl import ConfigError, replace_file, show_value
from searchrl.contracts import Task, ToolCall
from searchrl.data import BadRow, Problems, Row, parse_rows
from searchrl.rewards import em

ROW = '{"question": "…", "answers": ["…"], "calls": [{"name": "…", "arguments": {…}}]}'
"""A task. `answers` may be left out if a judge scores; `calls` are for the scripted policy."""

PROMPT = """Write {count} different tasks that need these tools, as lines of JSON and nothing else:
{row}
The question can be answered in a few words, which are the answers; the calls find them.
Tools: {tools}"""
JUDGE_PROMPT = """Answer the question in a few words and nothing else, only from these results of \
tools; if they do not say it, write: unknown.
Question: {question}
Results: {results}"""


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
def load_tasks(questions: str) -> Sequence[Task]:
    """The tasks of a file."""
    problems, path = Problems(), Path(questions).expanduser()
    tasks = [*parse_rows(path, problems, parse_task, f"task; expected rows {ROW}", places={})]
    problems.ensure_none()
    return tasks


@click.group()
def mcp() -> None:
    """Work with MCP servers (`--env mcp:SERVER`)."""


@mcp.command()
@click.argument("server")
@click.option("--base-url", required=True, metavar="URL", help="An OpenAI-compatible endpoint.")
@click.option("--model", required=True, metavar="NAME", help="The model that drafts.")
@click.option("--judge", metavar="NAME", help="A model there that must confirm each answer.")
@click.option("--n", "count", default=40, show_default=True, help="Tasks to ask for.")
@click.option("--out", default="tasks.jsonl", show_default=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file.")
def tasks(
    server: str, base_url: str, model: str, judge: str | None, count: int, out: Path, force: bool
) -> None:
    """Draft tasks for the tools of SERVER, a command or an address.

    The model sees the tools, not the data: check every task, and above all its answers. With
    --judge, the calls of each draft are made, and it is kept only if that model reads one of its
    answers in their results.

    \b
    Example:
      searchrl mcp tasks "python server.py" --base-url http://localhost:8000/v1 --model NAME
    """
    from searchrl.api_client import Client, EndpointConfig, Message, Request
    from searchrl_envs.mcp_env import McpEnv
    from searchrl_envs.mcp_session import Session

    def ask(model: str, text: str, **drawn: Any) -> str:
        client = Client(base_url, model, EndpointConfig(cache="off"))  # another call, other drafts
        return client.complete(Request((Message("user", text),), 8192, **drawn)).text

    def is_confirmed(row: TaskRow) -> bool:
        with closing(Session(server, 30.0)) as session:
            results = [session.call(call.name, call.arguments) for call in row.calls]
        text = JUDGE_PROMPT.format(question=row.question, results="\n".join(results))
        return bool(em(ask(str(judge), text).rpartition("</think>")[2], row.answers))

    if out.exists() and not force:
        raise ConfigError(f"--out {out}: the file is there; choose another name, or use --force")
    tools = {tool["name"]: tool for tool in McpEnv.tools(name=server)}
    asked = PROMPT.format(count=count, row=ROW, tools=json.dumps([*tools.values()]))
    reply = ask(model, asked, temperature=1.0)
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
    kept = [one for one in drafts.values() if judge is None or is_confirmed(one)]
    replace_file(out, "".join(f"{one.model_dump_json()}\n" for one in kept).encode())
    refused = f", {len(drafts) - len(kept)} not confirmed by {judge}" if judge else ""
    told = f"{len(kept)} tasks of {count}, {num_bad} lines left out{refused}"
    click.echo(f"{out}: {told}. Check every task by hand.")
