"""Files that `searchrl new` writes: short plugins that work, have tests and teach.

The texts are the templates in `assets/scaffold/`: the template of a kind fills the blocks of a
layout, which is a single file or a package's module and tests.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl import ConfigError
from searchrl.core.encoding import encode_text

MAX_NAME_LENGTH = 60

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*")
_TEMPLATES = Path(__file__).parent / "assets" / "scaffold"


@dataclass(frozen=True, slots=True)
class Kind:
    """A template: what it is about, the `commands` that use the result, and what it registers.

    `hook` is the kind that it registers, where its own name is another one. A command is a verb and
    its flags; `_ENDS` are the other flags with which it is quick.
    """

    summary: str
    commands: tuple[str, ...]
    hook: str = ""


_ENDS = {"play": "", "eval": " --policy scripted", "train": " --model tiny --max-steps 3"}

KINDS: Mapping[str, Kind] = {
    "env": Kind(
        "an environment, the capitals of invented countries",
        ("play --env {name}", "eval --env {name}", 'train --env {name} --reward "0.2*format+em"'),
    ),
    "tool_env": Kind(
        "an environment with a tool, the stock of an invented shop",
        ("play --env {name}", "eval --env {name}", "train --env {name}"),
        hook="env",
    ),
    "foreign_env": Kind(
        "an environment of another library, with its own way to play it",
        ("play --env {name}", "eval --env {name}", "train --env {name}"),
        hook="env",
    ),
    "reward": Kind(
        "a reward, was the answer read or only guessed",
        ("eval --reward em+{name}", "train --reward format+em+0.1*{name}"),
    ),
    "group_reward": Kind(
        "a reward of a group, do its rollouts look for different things",
        ("eval --reward em+{name}", "train --reward format+em+0.1*{name}"),
        hook="reward",
    ),
    "judge": Kind(
        "a judge of answers, numbers that are nearly right are partly right",
        (
            "eval --reward judge --set judge={name}",
            "train --reward format+judge --set judge={name}",
        ),
    ),
    "protocol": Kind(
        "a tag protocol, every action is a call in JSON",
        ("play --protocol {name}", "eval --protocol {name}"),
    ),
    "retriever": Kind(
        "a retriever, it compares pieces of words and so forgives typos",
        ("play --retriever {name}", "eval --retriever {name}"),
    ),
    "tracker": Kind(
        "a tracker, every metric is a row of a CSV file", ("train --set log.trackers=[{name}]",)
    ),
    "alarm": Kind("an alarm, episodes take more and more turns", ("train --alarm {name}",)),
    "algorithm": Kind(
        "an algorithm, GRPO in which no lucky rollout counts too much",
        ("train --algorithm {name}",),
    ),
}
"""Templates by name."""


@dataclass(frozen=True, slots=True)
class Scaffold:
    """A new plugin: text by path, and the commands to go on with.

    `files` are relative to the current folder, the one to read first first. `tests` runs its
    tests; `commands` check it and use it. `steps` are all of them in order.
    """

    kind: str
    name: str
    files: Mapping[Path, str]
    setup: tuple[str, ...]
    tests: str
    commands: tuple[str, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """Every command, in the order in which one would type them."""
        return (*self.setup, self.tests, *self.commands)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values, without the texts."""
        return {
            "kind": self.kind,
            "name": self.name,
            "files": [path.as_posix() for path in self.files],
            "next": list(self.steps),
        }


def make_scaffold(kind: str, name: str, *, is_package: bool = False) -> Scaffold:
    """Make the texts of a plugin of `kind` (one of `KINDS`) that registers `name`.

    `-` becomes `_` where Python wants an identifier. With `is_package` it is a folder
    `searchrl-NAME` that can be installed, otherwise one file. Raises `ConfigError` for a name that
    cannot be registered or imported.
    """
    ensure_name(hook_of(kind), name)
    module = name.replace("-", "_")
    if not is_package:
        file = f"{module}.py"
        if module in sys.stdlib_module_names:
            raise ConfigError(
                f"{file} would be imported in place of the module '{module}'; choose another name, "
                "or add --package"
            )
        commands = (f"searchrl check {file}", *_uses(kind, name, f"--plugin {file} "))
        facts = {"commands": commands[:3], "source": "__file__", "is_single": True}
        text = _render("single.py", kind, name, facts)
        return Scaffold(kind, name, {Path(file): text}, (), f"pytest {file}", commands)
    root, package = Path(f"searchrl-{name}"), f"searchrl_{module}"
    setup = (f"cd {root}", 'pip install -e ".[test]"')
    commands = (f"searchrl check {name}", *_uses(kind, name, ""))
    facts = {
        "commands": (setup[1], "pytest", commands[0]),
        "source": "PLUGIN",
        "is_single": False,
        "package": package,
        "uses": commands[1:],
    }
    layouts = {
        f"{package}/__init__.py": "package/module.py",
        f"tests/test_{module}.py": "package/test_module.py",
        "pyproject.toml": "package/pyproject.toml",
        "README.md": "package/README.md",
    }
    files = {root / path: _render(layout, kind, name, facts) for path, layout in layouts.items()}
    return Scaffold(kind, name, files, setup, "pytest", commands)


def hook_of(kind: str) -> str:
    """The kind of plugin that a template registers."""
    return KINDS[kind].hook or kind


def _uses(kind: str, name: str, plugin: str) -> tuple[str, ...]:
    words = (text.format(name=name).split(" ", 1) for text in KINDS[kind].commands)
    return tuple(f"searchrl {verb} {plugin}{flags}{_ENDS[verb]}" for verb, flags in words)


def _render(layout: str, kind: str, name: str, facts: Mapping[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    is_python = layout.endswith(".py")
    template = environment.get_template(f"{kind}.py.jinja" if is_python else f"{layout}.jinja")
    module = name.replace("-", "_")
    stem = "".join(part[0].upper() + part[1:] for part in module.split("_"))
    kind_class = "".join(part.capitalize() for part in kind.split("_"))
    stem = stem.removesuffix(kind_class)
    return template.render(
        **facts,
        layout=f"{layout}.jinja",
        kind=hook_of(kind),
        name=name,
        module=module,
        stem=stem,
        class_name=f"{stem}{kind_class}",
        summary=KINDS[kind].summary,
    )


def write_scaffold(scaffold: Scaffold, folder: Path, *, is_forced: bool = False) -> None:
    """Write the files of a scaffold below `folder`.

    Raises `ConfigError` if one of them is there already and `is_forced` is not set (nothing is
    written then), if a module of its name could no longer be imported beside it, or if the folder
    cannot be written.
    """
    there = [str(path) for path in scaffold.files if (folder / path).exists()]
    if there and not is_forced:
        raise ConfigError(
            f"{', '.join(there)}: there already. Choose another name, or replace "
            f"{'it' if len(there) == 1 else 'them'} with --force."
        )
    try:
        for path, text in scaffold.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(encode_text(text))
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from error


def ensure_name(kind: str, name: str) -> None:
    """Raise `ConfigError` unless `name` can be registered as a `kind` and imported."""
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise ConfigError(
            f"{name!r} is no name for a plugin: expected a letter, then letters and digits, with "
            f"single - or _ between them, at most {MAX_NAME_LENGTH} in all, such as 'my-env'"
        )
    if kind == "reward" and not name.isidentifier():
        raise ConfigError(
            f"{kind} '{name}': the name is used in expressions such as 'format+em', where - is "
            f"minus; use '{module}'"
        )
    if keyword.iskeyword(module):
        raise ConfigError(f"'{name}' is a word of Python's own; choose another name")
