"""What `searchrl new` writes: every kind loads, is clean and passes its tests and the criteria.

Names are short, long and with a hyphen; each file is rendered as it is and as a package.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from searchrl.errors import ConfigError
from searchrl.plugins import load_plugins
from searchrl.scaffold import KINDS, Scaffold, hook_of, make_scaffold, write_scaffold

REPO = Path(__file__).resolve().parent.parent
every_kind = pytest.mark.parametrize("kind", KINDS)


def name_for(kind: str, name: str) -> str:
    return name.replace("-", "_") if kind in ("reward", "group_reward") else name


def write(kind: str, name: str, folder: Path, *, is_package: bool = False) -> Scaffold:
    scaffold = make_scaffold(kind, name, is_package=is_package)
    write_scaffold(scaffold, folder)
    return scaffold


def run_tests(folder: Path, paths: list[str], importable: list[Path]) -> str:
    """Run pytest in `folder` as an author would; returns what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *paths],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [REPO, *importable]))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@every_kind
@pytest.mark.parametrize("name", ["my-thing", "a_".ljust(60, "n")])
def test_single_file_loads_and_registers_its_name(kind: str, name: str, tmp_path: Path) -> None:
    name = name_for(kind, name)
    (path,) = write(kind, name, tmp_path).files
    assert path == Path(f"{name.replace('-', '_')}.py")
    entry = load_plugins([str(tmp_path / path)], strict=True).get(hook_of(kind), name)
    assert entry.description and (entry.name, entry.owner.name) == (name, path.stem)


@pytest.mark.thorough
@pytest.mark.parametrize("is_package", [False, True], ids=["file", "package"])
def test_own_tests_pass(is_package: bool, tmp_path: Path) -> None:
    for kind in KINDS:
        write(kind, f"my_{kind}", tmp_path, is_package=is_package)
    roots = [f"searchrl-my_{kind}" if is_package else f"my_{kind}.py" for kind in KINDS]
    said = run_tests(tmp_path, roots, [tmp_path / root for root in roots] if is_package else [])
    for kind in KINDS:
        file = f"tests/test_my_{kind}.py" if is_package else f"my_{kind}.py"
        assert f"{file}::test_it_keeps_the_contract PASSED" in said


@every_kind
@pytest.mark.parametrize("is_package", [False, True], ids=["file", "package"])
def test_what_is_written_is_clean(kind: str, is_package: bool, tmp_path: Path) -> None:
    ruff = shutil.which("ruff") or shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed")
    for name in ("x", f"a_{kind}_".ljust(22, "n")):
        folder = tmp_path / name
        folder.mkdir()
        write(kind, name, folder, is_package=is_package)
        root = folder / f"searchrl-{name}" if is_package else folder
        rules = ["--select", "E,W,F,I,UP,B,SIM,RUF", "--ignore", "E501,SIM905"]
        for command in (
            ["check", "--isolated", *rules, "."],
            ["format", "--isolated", "--diff", "."],
            ["format", "--isolated", "--line-length", "100", "--diff", "."],
        ):
            done = subprocess.run(
                [ruff, *command, "--no-cache", "--target-version", "py311"],
                cwd=root,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        # A command to copy keeps its line, however long. The longest name is 22 letters: with a
        # longer one, single lines of the templates pass the limit, which does no harm.
        texts = (path.read_text("utf-8") for path in root.rglob("*.py"))
        lines = [line for text in texts for line in text.splitlines()]
        assert not [line for line in lines if len(line) > 100 and not line.startswith("$ ")]


@every_kind
def test_package_is_complete(kind: str, tmp_path: Path) -> None:
    name = name_for(kind, "my-thing")
    scaffold = write(kind, name, tmp_path, is_package=True)
    root = tmp_path / f"searchrl-{name}"
    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    tests = "tests/test_my_thing.py"
    assert files == {"searchrl_my_thing/__init__.py", tests, "pyproject.toml", "README.md"}
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == f"searchrl-{name}" and project["license"] == "MIT"
    assert project["dependencies"] == ["searchrl"]
    assert project["entry-points"]["searchrl"] == {"my_thing": "searchrl_my_thing"}
    code = (root / "searchrl_my_thing" / "__init__.py").read_text("utf-8")
    assert "\nPLUGIN_API = 2\n" in code and "def test_" not in code
    assert "def test_" in (root / tests).read_text("utf-8")
    readme = (root / "README.md").read_text("utf-8")
    assert all(command in readme for command in scaffold.commands)
    assert scaffold.steps[:3] == (f"cd searchrl-{name}", 'pip install -e ".[test]"', "pytest")


def test_nothing_is_replaced_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "capitals.py"
    file.write_text("mine", "utf-8")
    scaffold = make_scaffold("env", "capitals")
    with pytest.raises(ConfigError, match=r"^capitals.py: there already.* replace it with --force"):
        write_scaffold(scaffold, tmp_path)
    assert file.read_text("utf-8") == "mine"
    write_scaffold(scaffold, tmp_path, is_forced=True)
    assert file.read_text("utf-8") == scaffold.files[Path("capitals.py")]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        *(
            ("env", name, "is no name for a plugin: expected a letter")
            for name in ("", "1st", "x-", "a--b", "../a", "é", "x" * 61)
        ),
        ("reward", "was-read", "where - is minus; use 'was_read'"),
        *(("tracker", n, f"'{n}' is a word of Python's own") for n in ("class", "None", "import")),
    ],
)
def test_impossible_names_are_refused(kind: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_scaffold(kind, name)


@pytest.mark.parametrize("name", ["json", "random"])
def test_a_file_may_not_hide_a_module_but_a_package_may_have_its_name(name: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=f"{name}.py would be imported in place of the module"):
        write("env", name, tmp_path)
    assert not list(tmp_path.iterdir())
    write("env", name, tmp_path, is_package=True)
