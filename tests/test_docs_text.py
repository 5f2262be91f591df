"""The text of the documentation: links, anchors and paths, and what the front page shows first."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from docs_runner import DOCS, PAGES, REPO, name_of, read_blocks

from searchrl import errors

HOME = re.compile(
    r"https://(?:github\.com/searchrl/searchrl/blob|raw\.githubusercontent\.com/searchrl/searchrl)/main/"
)
"""What links of the README begin with: it is read outside of the repository, too."""
LINKED = [*PAGES, REPO / "CONTRIBUTING.md", REPO / "CHANGELOG.md", REPO / "plugins" / "README.md"]
TEXTS = [*LINKED, *sorted((REPO / "examples").iterdir())]


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    inside, found = False, set()
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("```"):
            inside = not inside
        elif not inside and (heading := re.match(r"#{1,6} (.*)", line)):
            plain = re.sub(r"[^\w\- ]", "", heading[1].lower())
            found.add(plain.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_no_internal_link_is_broken(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert HOME.match(target) or path.name != "README.md" or path.parent != REPO, target
        target = HOME.sub("", target)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} leads nowhere"
        assert linked.is_relative_to(REPO), f"{target} leaves the repository"
        if anchor:
            assert anchor in anchors(linked), f"{target}: known are {sorted(anchors(linked))}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    text = (REPO / "README.md").read_text("utf-8")
    others = [p for p in DOCS.glob("*.md") if f"/docs/{p.name})" not in text]
    assert not others


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_no_merge_was_left_half_done(path: Path) -> None:
    assert not re.findall(r"^(?:<{7}|>{7})(?: .*)?$", path.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_no_path_of_somebodys_machine(path: Path) -> None:
    if path.is_file():
        found = re.findall(r"(?<![\w.])/(?:work|tmp|root|home|Users)/\S*", path.read_text("utf-8"))
        assert not found


def test_no_measured_figure_is_still_missing() -> None:
    missing = [
        f"{name_of(path)}: {mark}"
        for path in PAGES
        for mark in re.findall(r"<!-- figures: .*? -->", path.read_text("utf-8"))
    ]
    assert not missing


def test_the_tree_of_the_readme_is_the_tree_of_the_repository() -> None:
    tree = next(b.text for b in read_blocks(REPO / "README.md") if b.text.startswith("searchrl/"))
    inner = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    package = REPO / "searchrl"
    real = {p.name for p in package.iterdir() if p.is_dir() and any(p.glob("[a-z]*"))}
    assert inner == real - {"__pycache__"}
    outer = set(re.findall(r"^(\w+)/", tree, re.MULTILINE))
    assert all((REPO / name).is_dir() for name in outer)


def test_readme_shows_install_and_main_command_first() -> None:
    first = read_blocks(REPO / "README.md")[0]
    assert first.text.splitlines() == [
        "pip install -c constraints.txt -e .",
        "searchrl train --env regulations --reward format+em",
    ]
    assert first.line < 12


def test_every_exit_status_of_an_error_is_documented() -> None:
    listed = re.findall(r"^- (\d+) ", (DOCS / "cli.md").read_text("utf-8"), re.MULTILINE)
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    known = {one.exit_code for one in kinds if issubclass(one, errors.SearchRLError)}
    assert known <= set(map(int, listed)) and known >= {1, 2, 3, 4}


AUTHORS_PAGES = ("hooks", "write-a-plugin", "test-a-plugin")


def test_every_module_that_authors_are_shown_is_on_the_list_of_those_promised() -> None:
    whole = (DOCS / "write-a-plugin.md").read_text("utf-8")
    text = whole.partition("## What you may rely on")[2].partition("\n## ")[0]
    promised = set(re.findall(r"`(searchrl[\w.]*)`", text))
    pages = [DOCS / f"{name}.md" for name in AUTHORS_PAGES]
    pages += (REPO / "searchrl" / "assets" / "scaffold").rglob("*.jinja")
    shown = {
        module
        for page in pages
        for module in re.findall(
            r"^\s*(?:from|import) (searchrl[\w.]*)", page.read_text("utf-8"), re.MULTILINE
        )
    }
    may_change = ("searchrl.core.", "searchrl.engine.sampling.")  # the page says so
    assert {name for name in shown - promised if not name.startswith(may_change)} == set()
    assert all(importlib.util.find_spec(module) for module in promised)
