"""The text of the documentation: its links, the reference made from the code, and the site."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

import click
import pytest
from docs_runner import DOCS, PAGES, REPO, name_of

from searchrl import errors
from searchrl.config.keys import config_keys
from searchrl.core.loss import LossStats
from searchrl.engine.metrics.breakdown import GROUPED
from searchrl.hookspecs import HOOKS
from searchrl.plugins.signatures import find_settings
from searchrl.programs.evaluate import evaluate
from searchrl.testing.conformance import CHECKED, criteria_of

sys.path.insert(0, str(DOCS))

import reference

HOME = re.compile(
    r"https://(?:github\.com/searchrl/searchrl/blob|raw\.githubusercontent\.com/searchrl/searchrl)/main/"
)
"""What links of the README begin with: it is read outside of the repository, too."""
LINKED = [*PAGES, REPO / "CONTRIBUTING.md", REPO / "CHANGELOG.md", REPO / "plugins" / "README.md"]


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="pip install -e '.[docs]'")
def test_the_site_builds_and_no_link_or_anchor_of_it_is_broken(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {file.name: file.read_text("utf-8") for file in tmp_path.rglob("*.html")}
    assert "search agents" in pages["index.html"] and "optim.lr" in pages["settings.html"]
    # Opened from disk it asks nobody: neither for fonts nor for what the search needs.
    assert (tmp_path / "search/search_index.js").is_file()
    assert (tmp_path / "iframe-worker.js").is_file()
    assert not re.findall(
        r'(?:<script|<img)[^>]+src="http|<link rel="(?!canonical)[^>]+"http',
        "".join(pages.values()),
    )


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_no_link_to_a_file_is_broken(path: Path) -> None:
    """The site's own check knows the anchors, too."""
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert HOME.match(target) or path != REPO / "README.md", target
        target = HOME.sub("", target).partition("#")[0]
        if target and not re.match(r"[a-z]+:", target):
            linked = (path.parent / target).resolve()
            assert linked.exists() and linked.is_relative_to(REPO), f"{target} leads nowhere"


@pytest.mark.parametrize("path", [*LINKED, *(REPO / "examples").glob("*.*")], ids=name_of)
def test_no_half_merge_and_no_path_of_a_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.findall(r"^(?:<{7}|>{7})(?: .*)?$", text, re.MULTILINE)
    assert not re.findall(r"(?<![\w.])/(?:work|tmp|root|home|Users)/\S*", text)


def rows_of(text: str) -> dict[str, list[str]]:
    """First cell -> the other cells, of all tables."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:2] == "| "]
    return {first.strip(): [cell.strip() for cell in rest] for first, *rest in lines}


def test_every_page_of_the_reference_asks_for_its_block() -> None:
    asked = re.findall(r"<!-- reference: ([\w-]+) -->", "".join(map(page, PAGE_NAMES)))
    assert sorted(asked) == sorted(reference.WRITERS)
    assert reference.fill("> a\n<!-- reference: rewards --> b") == f"{reference.write_rewards()} b"


PAGE_NAMES = [path.relative_to(DOCS).as_posix() for path in PAGES[1:]]


def test_every_command_and_flag_is_in_the_reference_with_its_meaning() -> None:
    text = reference.write_commands()
    for name, command in reference.commands().items():
        assert command.help
        own = rows_of(text.partition(f"## `searchrl {name}`\n")[2].partition("\n## ")[0])
        flags = {
            re.findall(r"`(-[\w-]+)`", cell)[0]: rest for cell, rest in own.items() if "`" in cell
        }
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert flags.keys() == {one.opts[0] for one in options}
        assert all(rest[-1] for rest in flags.values())


def test_every_key_is_in_the_reference_with_its_reason() -> None:
    rows = rows_of(reference.write_settings())
    for key in (one for one in config_keys() if one.type != "section"):
        (row,) = (rest for cell, rest in rows.items() if cell.endswith(f"`{key.key}`"))
        assert row[0] and row[1] and len(row[2]) > 3, f"write a docstring below {key.key}"


def test_every_name_and_setting_is_in_the_reference_with_its_meaning() -> None:
    rewards = rows_of(reference.write_rewards())
    for kind in reference.KINDS:
        text = f"\n{reference.write_kind(kind)}"
        for entry in reference.entries(kind):
            name = entry.name.removesuffix("any") if ":" in entry.name else entry.name
            own = rows_of(
                text.partition(f"\n### `{name}`\n")[2].partition("\n## ")[0].partition("\n### ")[0]
            )
            settings = find_settings(entry.load()).keys() - reference.PASSED
            scripts = entry.script_names
            assert {f"`{one}`" for one in (*settings, *scripts)} <= own.keys(), name
            assert entry.description and all(rest[-1] for rest in own.values()), (name, own)
    names = {entry.name for entry in reference.entries("reward")}
    assert rewards.keys() - {"component", "---"} == {f"`{name}`" for name in names}


def test_every_hook_and_criterion_is_in_the_reference() -> None:
    text = reference.write_hooks()
    rows = rows_of(text)
    for hook in HOOKS.values():
        assert len(text.partition(f"## `{hook}`\n")[2].partition("\n## ")[0].split()) > 10
        assert f"def {hook}(register)" in page("how-to/write-a-plugin.md")
    assert {one.number for kind in CHECKED for one in criteria_of(kind)} <= rows.keys()


def _of_a_kind(name: str) -> str:
    """`em/two_hop`, `f1/hard` and `action/Stop` are documented for all names, `pass@4` as well."""
    name = re.sub(r"^((free_)?action)/.*", r"\1/NAME", name)
    plain = re.sub(r"@\d+$", "@K", re.sub(r"^(em|env|reward|success)/.*", r"\1/KIND", name))
    figure, slash, _ = plain.partition("/")
    return "FIGURE/KIND" if slash and figure in GROUPED and not plain.endswith("KIND") else plain


def ensure_documented(names: set[str]) -> None:
    known = {name for group in reference.read_metrics().values() for name in group}
    components = {entry.name for entry in reference.entries("reward")}
    components |= {"brevity", "fewest", "frugal", "rare"}
    missing = {_of_a_kind(name) for name in names} - known - components
    assert not missing, f"docs/metrics.toml does not say what {sorted(missing)} should look like"


def test_every_metric_is_in_the_reference_with_what_is_healthy() -> None:
    result = evaluate({"policy": "scripted", "eval": {"num_tasks": 20}})
    ensure_documented({*result.metrics, *LossStats().means()})
    rows = rows_of(reference.write_metrics())
    for group in reference.read_metrics().values():
        for name, (meaning, healthy, _) in group.items():
            assert rows[f"`{name}`"][:2] == [meaning, healthy] and meaning and healthy


def test_every_exit_status_of_an_error_is_documented() -> None:
    listed = re.findall(r"^- (\d+) ", page("reference/commands.md"), re.MULTILINE)
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    known = {one.exit_code for one in kinds if issubclass(one, errors.SearchRLError)}
    assert known <= set(map(int, listed)) and known >= {1, 2, 3, 4}


def test_authors_are_shown_public_modules_alone() -> None:
    files = [DOCS / "how-to" / "write-a-plugin.md"]
    files += (REPO / "searchrl/assets/scaffold").rglob("*.jinja")
    texts = "".join(file.read_text("utf-8") for file in files)
    shown = set(re.findall(r"^\s*(?:from|import) (searchrl[\w.]*)", texts, re.MULTILINE))
    # The page says that a generator needs one more, which may change.
    assert shown - reference.MODULES.keys() == {"searchrl.engine.sampling.hf_generator"}


def test_the_row_of_a_rollout_is_documented_key_by_key() -> None:
    from searchrl.engine.rollout.records import rollout_record

    rollout = evaluate({"policy": "scripted", "eval": {"num_tasks": 1}}).rollouts[0]
    text = page("reference/file-formats.md").partition("### A rollout row")[2].partition("\n##")[0]
    named = {name for cell in rows_of(text) for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(rollout_record(rollout, "eval", {}))
