"""What a wheel and an sdist carry: every file the programs read at run time, and its declaration.

Hatchling packs the folder `searchrl` whole, apart from what git ignores. So two mistakes can lose a
file: a declaration that names less than the folder, and an ignore pattern that matches an asset.
"""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "searchrl"

_FOLDERS = {
    "": "py.typed",
    "assets": "criteria.toml games.json model_card.md.jinja probe_texts.toml reward_cases.toml",
    "assets/corpus_demo": "corpus.jsonl questions.jsonl",
    "assets/multihop_demo": "corpus.jsonl questions.jsonl",
    "assets/presets": ("qwen3_4b_lora.yaml qwen3_4b_qlora.yaml qwen_small_4gb.yaml tiny.yaml"),
    "assets/scaffold": (
        "alarm.py.jinja algorithm.py.jinja env.py.jinja group_reward.py.jinja "
        "judge.py.jinja protocol.py.jinja retriever.py.jinja reward.py.jinja single.py.jinja "
        "tool_env.py.jinja tracker.py.jinja"
    ),
    "assets/scaffold/package": (
        "README.md.jinja module.py.jinja pyproject.toml.jinja test_module.py.jinja"
    ),
    "assets/instructions": "act.txt search_tool.json think-search-answer.txt tool-call.txt",
    "assets/regulations": (
        "chains.json daily.json demo_handbook.md demo_questions.json district.json drills.json "
        "names.json office.json phrases.json things.json"
    ),
    "report/page": (
        "compare.js core.js drawings.js group.js help.js index.html.jinja "
        "lists.js main.js page.css retrieval.js rollout.js rollouts.js run.js "
        "theme.js tokens.js"
    ),
    "assets/shapes": "Qwen--Qwen3-0.6B.json Qwen--Qwen3-4B.json",
    "assets/tiny": (
        "README.md chat_template.jinja config.json generation_config.json model.safetensors "
        "tokenizer.json tokenizer_config.json"
    ),
}
NEEDED = tuple(
    f"{folder}/{name}".removeprefix("/")
    for folder, names in _FOLDERS.items()
    for name in names.split()
)
"""What the main job, the demos and the presets read; one that is gone is named here."""


def data_files() -> list[Path]:
    """Every file of the package that is no module: what a packer could leave behind."""
    return sorted(
        path
        for path in PACKAGE.rglob("*")
        if path.is_file()
        and path.suffix not in (".py", ".pyi", ".pyc", ".pyo")
        and not path.name.startswith(".")
    )


@pytest.fixture(scope="module")
def build_settings() -> dict[str, Any]:
    text = (REPO / "pyproject.toml").read_text("utf-8")
    return dict(tomllib.loads(text)["tool"]["hatch"]["build"])


def test_files_read_at_run_time_are_there_and_not_empty() -> None:
    missing = [name for name in NEEDED if not (PACKAGE / name).is_file()]
    assert not missing, f"searchrl/ lacks {missing}"
    assert all((PACKAGE / name).stat().st_size for name in NEEDED if name != "py.typed")


def test_declaration_takes_the_package_whole(build_settings: dict[str, Any]) -> None:
    wheel, sdist = (build_settings["targets"][name] for name in ("wheel", "sdist"))
    assert wheel["packages"] == ["searchrl"] and "/searchrl" in sdist["include"]
    for settings in (build_settings, wheel, sdist):
        # Any of these could take a file away again.
        assert not {"exclude", "only-include", "only-packages", "sources"} & set(settings)


def test_no_data_file_is_ignored_by_git_and_so_by_the_packer() -> None:
    git = shutil.which("git")
    if git is None or not (REPO / ".git").exists():
        pytest.skip("no git checkout: what is packed was decided elsewhere")
    names = [path.relative_to(REPO).as_posix() for path in data_files()]
    # Exit status 1: none is ignored. `--no-index`: tracked files are asked about too.
    done = subprocess.run(
        [git, "check-ignore", "--no-index", "--stdin"],
        input="\n".join(names),
        capture_output=True,
        text=True,
        cwd=REPO,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
