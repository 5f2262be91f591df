"""What a new plugin consists of: a kind and a name become the texts of one file or of a package.

Owns which files there are and which commands come next. The texts are the templates in
`assets/scaffold/`: the template of a kind fills the blocks of a layout, which is a single file or
a package's module and tests. Writes nothing; callers are `writer` and `cli new`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.scaffold.kinds import KINDS
from searchrl.scaffold.names import ensure_name, module_name

_TEMPLATES = Path(__file__).parents[1] / "assets" / "scaffold"


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What a plugin's author gets: text by path, and the commands to go on with.

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
    module = module_name(name)
    if not is_package:
        file = f"{module}.py"
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
    files = {root / path: _render(own, kind, name, facts) for path, own in layouts.items()}
    return Scaffold(kind, name, files, setup, "pytest", commands)


def hook_of(kind: str) -> str:
    """The kind of plugin that a template registers."""
    return KINDS[kind].hook or kind


def _uses(kind: str, name: str, plugin: str) -> tuple[str, ...]:
    return tuple(text.format(plugin=plugin, name=name) for text in KINDS[kind].commands)


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
    module = module_name(name)
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
