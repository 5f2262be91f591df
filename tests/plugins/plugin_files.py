"""Plugins for the tests of loading: broken ones of one fault each, and installed distributions.

The line at fault ends in `# fault`. What a broken plugin is told is the second text. Those whose
text is empty are files in `fixtures/plugins`, because tests of other rooms use them as well.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import NamedTuple

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plugins"


class Broken(NamedTuple):
    """A plugin that cannot be loaded."""

    text: str
    message: str


def hook(kind: str, *lines: str) -> str:
    """The text of a plugin with one hook whose body is `lines`."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"from searchrl import hookimpl\n@hookimpl\ndef register_{kind}s(register):\n{body}\n"


def reward_plugin(*names: str) -> str:
    """A plugin that works and offers rewards of these names."""
    return hook("reward", *(f"register({name!r}, dict)" for name in names))


def _rewards_hook(head: str) -> str:
    return f"from searchrl import hookimpl\n@hookimpl  # fault\n{head}\n    register('x', dict)\n"


_ONE_CALL = """
tracker | register('junk', 42) | registers tracker 'junk': factory is 42: Input should be callable
tracker | register('dotted', 'my.module.Tracker') | should match pattern
tracker | register('my tracker!', dict) | registers tracker 'my tracker!': a name is made of
tracker | register(dict, 'name') | registers a tracker without a name: write
tracker | register('wandb:', dict) | registers tracker 'wandb:': only an env's name may be a scheme
tracker | register('no', lambda: None) | registers tracker 'no': the factory has signature ()
reward | register('exact-match', dict) | must be an identifier; use 'exact_match'
reward | register('brevity', lambda episode: 1.0) | missing a required argument: 'episode'
reward | register('slow', dict, concurrent=1) | reward 'slow': concurrent is 1: Input
tracker | register('slow', dict, concurrent=False) | raised in register_trackers: TypeError
reward | import sys; sys.exit(3) | raised in register_rewards: SystemExit: 3
env | register('e', lambda continent='any': None) | got an unexpected keyword argument 'protocol'
env | register('e', ENV, scripts={'a': 3}) | registers env 'e': scripts is {'a': 3}: Input
env | register('e', ENV, tools=[3]) | registers env 'e': tools is [3]: Input
env | register('e', ENV, exprt=dict) | takes no 'exprt'. Did you mean 'expert'
"""
"""Plugins of one hook with one faulty line: kind, line, what is said."""

_ENV = "lambda *, protocol, retriever: None"


def _one_call(row: str) -> Broken:
    kind, line, message = row.split(" | ")
    return Broken(hook(kind, f"{line.replace('ENV', _ENV)}  # fault"), message)


BROKEN = {
    "raises_at_import": Broken("", "raised at import: ModuleNotFoundError: No module named"),
    "bad_syntax": Broken("", "raised at import: SyntaxError"),
    "exits_at_import": Broken(
        "import sys\nsys.exit('no licence found')  # fault",
        "raised at import: SystemExit: no licence found",
    ),
    "misspelt_hook": Broken(
        _rewards_hook("def register_reward(register):"),
        "unknown hook 'register_reward'. Did you mean 'register_rewards'",
    ),
    "early_hook": Broken(
        _rewards_hook("def register_critics(register):"), "unknown hook 'register_critics'"
    ),
    "bad_argument": Broken(
        hook("env", f"register('half', {_ENV})")
        + _rewards_hook("def register_rewards(registry):").partition("\n")[2],
        "defines register_rewards(registry); expected register_rewards(register)",
    ),
    "default_argument": Broken(
        _rewards_hook("def register_rewards(register=None):"),
        "defines register_rewards(register=None); expected",
    ),
    "async_hook": Broken(
        _rewards_hook("async def register_rewards(register):"), "register_rewards as a coroutine"
    ),
    "unmarked_hook": Broken(
        "def register_rewards(register):  # fault\n    register('unseen', dict)\n",
        "does not mark register_rewards with @hookimpl",
    ),
    "no_hooks": Broken("ANSWER = 42\n", "has no hooks"),
    "hook_raises": Broken(
        "", "raised in register_rewards: ValueError: the table of capitals is empty"
    ),
    "twice": Broken(
        hook("tracker", "register('log', dict)", "register('log', list)  # fault"),
        "registers tracker 'log' twice",
    ),
    "swallows": Broken(
        hook(
            "tracker",
            "register('good', dict)",
            "try:",
            "    register('bad', 42)  # fault",
            "except Exception:",
            "    pass",
        ),
        "registers tracker 'bad': factory is 42",
    ),
    "late": Broken(
        f"KEPT = []\n{hook('env', 'KEPT.append(register)')}"
        + hook("tracker", f"KEPT[0]('late', {_ENV})  # fault").partition("\n")[2],
        "registers env 'late' after its hook returned",
    ),
    **{
        f"one_call_{number}": _one_call(row)
        for number, row in enumerate(_ONE_CALL.strip().splitlines(), 1)
    },
}


def write_broken(name: str, folder: Path) -> Path:
    """The file of a broken plugin, written to `folder` if it is not a fixture."""
    if not BROKEN[name].text:
        return FIXTURES / f"{name}.py"
    path = folder / f"{name}.py"
    path.write_text(BROKEN[name].text)
    return path


def fault_line(path: Path) -> int:
    """The number of the line at fault; 0 where the whole file is."""
    lines = path.read_text().splitlines()
    return next((i for i, line in enumerate(lines, 1) if "# fault" in line), 0)


def install(folder: Path, name: str, version: str, modules: dict[str, str], eps: str) -> None:
    """Lay out an installed distribution as pip leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    record = []
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
        record.append(f"{module}.py,sha256={hashlib.sha256(text.encode()).hexdigest()},")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("\n".join(record))
    (info / "entry_points.txt").write_text(f"[searchrl]\n{eps}\n")
    importlib.invalidate_caches()
