"""The site's hook: the reference is written from the code, the home page from the README.

A page of `docs/reference/` holds `<!-- reference: NAME -->`; the site has there what the code says
(`WRITERS`). MkDocs calls the functions `on_…`; the writers need SearchRL only.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

import click

from searchrl import hookspecs
from searchrl.cli import main
from searchrl.config.keys import ConfigKey, config_keys
from searchrl.config.sections import AlgorithmConfig
from searchrl.config.tree import TASK_KEYS
from searchrl.plugins import Entry, load_plugins
from searchrl.plugins.signatures import find_settings
from searchrl.testing.conformance import CHECKED, criteria_of

DOCS = Path(__file__).resolve().parent
METRICS = DOCS / "metrics.toml"
HOME = "https://github.com/searchrl/searchrl/blob/main/"
RAW = "https://raw.githubusercontent.com/searchrl/searchrl/main/"

KINDS = (
    "env",
    "wrapper",
    "protocol",
    "retriever",
    "judge",
    "algorithm",
    "alarm",
    "tracker",
    "generator",
    "backend",
)
"""The kinds of the page of what is built in; rewards have a page of their own."""
MODULES: Mapping[str, str] = {
    "searchrl": "the Python API, hooks, errors, helpers for settings and messages",
    "searchrl.contracts": "what objects must be able to do; episodes, tasks, actions, passages",
    "searchrl.algorithms": "algorithms",
    "searchrl.envs": "environments",
    "searchrl.data": "rows, questions and corpora of files",
    "searchrl.protocols": "tag protocols",
    "searchrl.rewards": "rewards",
    "searchrl.retrieval": "retrievers",
    "searchrl.api_client": "parts that ask a server; calls that take long",
    "searchrl.engine.sampling": "generators",
    "searchrl.testing": "tests",
}
"""The public modules: what packages may import."""
PASSED = {
    *("protocol", "retriever", "passages", "run_dir", "policy", "sampling", "name", "env"),
    *("num_slots", "max_length", "make_worker"),
}
"""What SearchRL itself gives to factories."""


# --- what docstrings hold ------------------------------------------------------------------
def as_text(words: str) -> str:
    """Text of a docstring or of a help as Markdown: its examples become code blocks."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(words.replace("\b", ""))):
        head, _, rest = part.partition("\n")
        if head == "Examples:":
            parts.append(f"```bash\n{textwrap.dedent(rest)}\n```")
        elif part.startswith(">>>"):
            parts.append(f"```pycon\n{part}\n```")
        else:
            parts.append(plain(part))
    return "\n\n".join(parts)


def plain(words: str) -> str:
    """Text in which a tag is a text, too: Markdown would take it for HTML."""
    return re.sub(r"(`[^`]*`)|<(?=[\w/])", lambda found: found[1] or "&lt;", words)


def split_docstring(words: str) -> tuple[str, dict[str, str]]:
    """What a docstring says, and what it says of each argument; errors are left out."""
    text, arguments, section = [], {}, ""
    for block in re.split(r"\n(?=\S)", inspect.cleandoc(words)):
        title, _, rest = block.partition("\n")
        section = title.strip().rstrip(":") if title.strip().endswith(":") and rest else ""
        if section in ("Args", "Attributes"):
            for entry in re.split(r"\n(?=\S)", textwrap.dedent(rest)):
                names, _, meaning = entry.partition(":")
                for name in names.split(","):
                    arguments[name.strip()] = " ".join(meaning.split())
        elif section != "Raises":
            text.append(block)
    return "\n".join(text), arguments


def origin(factory: Any) -> Any:
    """The function or class behind a factory."""
    return origin(factory.func) if isinstance(factory, functools.partial) else factory


def describe_settings(factory: Any) -> dict[str, str]:
    """The settings of a factory, each with what its docstring or that of a base says of it."""
    made = origin(factory)
    sources = [made, *getattr(made, "__mro__", ())[1:]]
    sources += (
        [one for s in sources if (one := vars(s).get("settings_type"))] if sources[1:] else []
    )
    sources += [base for s in sources if inspect.isclass(s) for base in s.__mro__]
    known: dict[str, str] = {}
    for source in sources:
        for name, meaning in split_docstring(source.__doc__ or "")[1].items():
            if not meaning.startswith("as for"):
                known.setdefault(name, meaning)
    return {name: known.get(name, "") for name in find_settings(factory) if name not in PASSED}


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, or nothing without rows."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) if rows else ""


def joined(parts: Iterator[str]) -> str:
    """Blocks with a blank line between them; empty ones are left out."""
    return "\n\n".join(filter(None, parts))


# --- the pages -----------------------------------------------------------------------------
def commands() -> dict[str, click.Command]:
    """The commands that come with SearchRL, by name."""
    context = click.Context(main)
    names = load_plugins(entry_points=False).names("command")
    found = {name: main.get_command(context, name) for name in names}
    return {name: command for name, command in found.items() if command is not None}


def write_commands() -> str:
    """Every command with its help and its flags."""
    return joined(part for name, one in commands().items() for part in _command(name, one))


def _command(name: str, command: click.Command) -> Iterator[str]:
    yield f"## `searchrl {name}`"
    yield as_text(command.help or "")
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    words = " ".join(
        [
            "searchrl",
            name,
            "[OPTIONS]",
            *(a.make_metavar(click.Context(command)) for a in arguments),
        ]
    )
    yield f"```text\n{words}\n```"
    rows = []
    for one in command.params:
        if isinstance(one, click.Option):
            key = getattr(one, "key", "")
            value = (
                f" {one.metavar}"
                if one.metavar
                else ""
                if one.is_flag
                else f" {one.type.name.upper()}"
            )
            flags = ", ".join(f"`{flag}`" for flag in (*one.opts, *one.secondary_opts))
            meaning = (one.help or "").removesuffix(f"[{key}]").strip()
            rows.append(
                [flags + value, f"[`{key}`](settings.md#{anchor(key)})" if key else "", meaning]
            )
    yield as_table(["flag", "key", "meaning"], rows)


def write_settings() -> str:
    """Every key with its type, its default and the reason for it, section by section."""
    sections: dict[str, list[ConfigKey]] = defaultdict(list)
    about = {key.key: key.why for key in config_keys() if key.type == "section"}
    for key in config_keys():
        if key.key not in about:
            sections[key.section].append(key)
    return joined(_section(name, about.get(name, ""), keys) for name, keys in sections.items())


def _section(name: str, about: str, keys: Sequence[ConfigKey]) -> str:
    rows = []
    for key in keys:
        place = f'<a id="{anchor(key.key)}"></a>`{key.key}`'
        rows.append([place, key.type, key.default, key.why])
    table = as_table(["key", "type", "default", "why"], rows)
    return joined(iter([f"## {name.replace('[]', '')}", about, table]))


def anchor(key: str) -> str:
    """Where the page of settings has a key: `optim.lr`, `tasks.env`."""
    return f"tasks.{key}" if key in TASK_KEYS else key.replace("[]", "")


def read_metrics() -> dict[str, dict[str, list[str]]]:
    """What every metric means, by group and name."""
    return tomllib.loads(METRICS.read_text("utf-8"))


def write_metrics() -> str:
    """Every metric, what it means and what it should look like."""
    head = ["metric", "meaning", "healthy", "if it is not"]
    return joined(
        f"## {group}\n\n" + as_table(head, [[f"`{name}`", *one] for name, one in rows.items()])
        for group, rows in read_metrics().items()
    )


def entries(kind: str) -> Iterator[Entry]:
    """What SearchRL itself registers of a kind."""
    registry = load_plugins(entry_points=False)
    for name in registry.names(kind):
        yield registry.get(kind, f"{name}any" if name.endswith(":") else name)


def write_kind(kind: str) -> str:
    """Everything of a kind that comes with SearchRL, with its settings."""
    return joined(_kind(kind))


def _kind(kind: str) -> Iterator[str]:
    yield _own_numbers() if kind == "algorithm" else ""
    for entry in entries(kind):
        factory = entry.load()
        name = entry.name if not entry.name.endswith("any") else entry.name.removesuffix("any")
        yield f"### `{name}`"
        yield f"*{plain(entry.description)}*"
        yield as_text(split_docstring(origin(factory).__doc__ or "")[0])
        if kind == "protocol":
            yield " ".join((inspect.getdoc(origin(factory).format_score) or "").split())
        defaults = find_settings(factory)
        rows = [
            [f"`{setting}`", f"`{_default(defaults[setting].default)}`", meaning]
            for setting, meaning in describe_settings(factory).items()
        ]
        yield as_table(["setting", "default", "meaning"], rows)
        if kind == "env" and entry.script_names:
            scripts = [(one, entry.load_script(one)) for one in entry.script_names]
            words = [[f"`{script}`", _first_line(made)] for script, made in scripts]
            yield as_table(["scripted policy", "what it does"], words)


def _own_numbers() -> str:
    """What each algorithm uses where a run sets nothing."""
    rows = []
    for entry in entries("algorithm"):
        one = entry.load()().resolve(AlgorithmConfig(name=entry.name))
        numbers = (f"{number:g}" for number in (one.clip_low, one.clip_high, one.beta))
        rows.append([f"`{entry.name}`", *numbers, f"`{one.reduction}`"])
    return as_table(["algorithm", "`clip_low`", "`clip_high`", "`beta`", "`reduction`"], rows)


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    return "null" if value is None else getattr(value, "__name__", None) or str(value)


def _first_line(made: Any) -> str:
    return " ".join((inspect.getdoc(origin(made)) or "").partition("\n\n")[0].split())


def write_rewards() -> str:
    """Every reward component that comes with SearchRL."""
    rows = []
    for entry in entries("reward"):
        made = origin(entry.load())
        component = entry.load()() if "judge" not in find_settings(made) else None
        values = ", ".join(f"{value:g}" for value in component.values) if component else "0, 0.5, 1"
        is_range = component is not None and component.is_range
        rows.append(
            [
                f"`{entry.name}`",
                values.replace(", ", " to ") if is_range else values,
                entry.description,
            ]
        )
    return as_table(["component", "values", "what it is"], rows)


def write_hooks() -> str:
    """Every hook with its docstring, and the criteria of `searchrl check`."""
    return joined(part for kind, hook in hookspecs.HOOKS.items() for part in _hook(kind, hook))


def _hook(kind: str, hook: str) -> Iterator[str]:
    yield f"## `{hook}`"
    yield as_text(getattr(hookspecs, hook).__doc__ or "")
    if kind in CHECKED:
        rows = [[one.number, one.title, one.why] for one in criteria_of(kind)]
        yield "`searchrl check` holds to these:"
        yield as_table(["", "what must hold", "why"], rows)


def write_names() -> str:
    """The modules whose names are promised, with these names."""
    rows = [
        [f"`{module}`", purpose, ", ".join(f"`{one}`" for one in import_module(module).__all__)]
        for module, purpose in MODULES.items()
    ]
    return as_table(["module", "for", "names"], rows)


WRITERS: Mapping[str, Callable[[], str]] = {
    "commands": write_commands,
    "settings": write_settings,
    "metrics": write_metrics,
    "rewards": write_rewards,
    "hooks": write_hooks,
    "names": write_names,
    **{kind: functools.partial(write_kind, kind) for kind in KINDS},
}
"""Name of a block -> what writes it."""


def fill(text: str) -> str:
    """A page with its blocks of reference written in; what stands there for GitHub goes."""
    mark = r"(?:> .*\n)*<!-- reference: ([\w-]+) -->"
    return re.sub(mark, lambda found: WRITERS[found[1]](), text)


# --- what MkDocs calls ---------------------------------------------------------------------
def on_files(files: Any, config: Any) -> Any:
    """Make the home page of the README."""
    from mkdocs.structure.files import File

    text = (DOCS.parent / "README.md").read_text("utf-8")
    for home in (HOME, RAW):
        text = text.replace(f"]({home}docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write the reference in; links that leave `docs/` lead to the repository."""
    folder = PurePosixPath(page.file.src_uri).parent

    def outside(found: re.Match[str]) -> str:
        place = normpath(f"docs/{folder}/{found[1]}")
        return f"]({HOME}{place})" if not place.startswith("docs/") or is_kept(place) else found[0]

    def is_kept(place: str) -> bool:
        return place.endswith("_run") or place.endswith(".py")

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)", outside, fill(markdown))
