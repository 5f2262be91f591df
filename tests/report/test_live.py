"""The page of a run that is still going: what it takes in, and whom it is served to."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import browser
import pytest
from browser import Browser
from command_line import call, complaint
from stored_run import make_rows, write_run
from test_folder import read_data

from searchrl.report.live import LiveReport, serving
from searchrl.run_folder import Run
from searchrl.run_folder.rollouts import write_rollouts

ROWS = make_rows()


def write_step(run: Path, step: int) -> None:
    rows = [row | {"step": step} for row in ROWS["step_000001"]]
    write_rollouts(run / "rollouts" / f"step_{step:06d}.jsonl.gz", rows)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", {"eval_before": ROWS["eval_before"]})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_what_a_run_adds_appears_and_the_run_folder_stays_as_it_is(run: Path, out: Path):
    report = LiveReport(Run.open(run), out)
    write_step(run, 1)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 3, "phase": "tr')  # a row that is being written
    before = sorted(path for path in run.rglob("*"))
    report.refresh()
    assert read_data(out, "index")["columns"]["step"] == [0, 0, 1, 1, 1, 1]
    assert len(read_data(out, "rollouts_0001")) == 6
    (described,) = read_data(out, "run")["runs"]
    assert described["faults"] == [] and described["curves"]["reward"]["train"][-1][0] == 2
    assert sorted(path for path in run.rglob("*")) == before


def test_a_refresh_without_news_writes_nothing(run: Path, out: Path):
    report = LiveReport(Run.open(run), out)
    before = {path: path.stat().st_ino for path in out.rglob("*")}
    report.refresh()
    assert {path: path.stat().st_ino for path in out.rglob("*")} == before


def test_steps_that_a_resumed_run_takes_again_replace_the_old_ones(run: Path, out: Path):
    write_step(run, 1)
    write_step(run, 2)
    report = LiveReport(Run.open(run), out)
    versions = read_data(out, "live")["versions"]
    (run / "rollouts" / "step_000002.jsonl.gz").unlink()
    report.refresh()
    assert read_data(out, "live")["versions"] == versions  # they stay until they come again
    write_step(run, 2)
    report.refresh()
    assert read_data(out, "index")["columns"]["step"] == [0, 0, *[1] * 4, *[2] * 4]
    assert read_data(out, "live")["versions"]["rollouts_0001"] > versions["rollouts_0001"]


def test_a_file_that_cannot_be_read_is_named_and_read_once_it_is_whole(run: Path, out: Path):
    torn = run / "rollouts" / "step_000001.jsonl.gz"
    torn.write_bytes(b"\x1f\x8b")
    report = LiveReport(Run.open(run), out)
    assert [str(torn) in text for text in read_data(out, "run")["runs"][0]["faults"]] == [True]
    write_step(run, 1)
    report.refresh()
    assert read_data(out, "run")["runs"][0]["faults"] == []
    assert read_data(out, "index")["size"] == 6


@pytest.fixture
def address(run: Path, out: Path) -> Iterator[str]:
    (out.parent / "secret.js").write_text("no")
    LiveReport(Run.open(run), out)
    with serving(out) as page:
        yield page


def ask(address: str, name: str = "", method: str = "GET") -> int:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    connection.request(method, f"{parts.path}{name}")
    return connection.getresponse().status


def test_the_report_is_served_and_nothing_else(address: str):
    assert [ask(address, name) for name in ("", "page/core.js", "data/live.js")] == [200] * 3
    for name in (
        "../secret.js",
        "data/../../secret.js",
        "%2e%2e/secret.js",
        "data/",
        "/etc/passwd",
    ):
        assert ask(address, name) == 404, name
    assert ask(f"{address[:-33]}/") == ask(f"{address[:-3]}0/") == 404
    assert ask(address, method="POST") == 501


def test_the_command_says_where_the_page_is_and_ends_with_ctrl_c(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    told = call("inspect", run, "--watch")
    assert told.exit_code == 130
    page = told.stdout.partition("open ")[2].split()[0]
    port = urlsplit(page).port
    assert f"ssh -L {port}:127.0.0.1:{port}" in told.stdout


def test_a_folder_for_the_page_or_a_comparison_does_not_go_with_watch(run: Path):
    for option in ("--out", "--compare"):
        assert f"{option} does not go with --watch" in complaint(
            "inspect", run, "--watch", option, run
        )


@pytest.mark.thorough
@pytest.mark.skipif(browser.find() is None, reason="no Chromium with chromedriver")
def test_an_opened_rollout_stays_open_and_figures_move(run: Path, out: Path):
    write_step(run, 1)
    report = LiveReport(Run.open(run), out)
    with serving(out) as page, Browser() as window:
        window.open(page)
        window.wait("document.querySelector('#live').textContent.startsWith('Step 2 · 6')")
        window.run("window.scrollTo(0, 600); document.querySelector('details').open = false")
        write_step(run, 2)
        report.refresh()
        window.wait("document.querySelector('#live').textContent.startsWith('Step 2 · 10')")
        assert window.run("return [scrollY, document.querySelector('details').open]")[1] is False
        window.go("#/rollout/train.1/step0/p0/0")
        window.run("document.querySelectorAll('main details').forEach((one) => one.open = true)")
        text = window.text()
        write_step(run, 3)
        report.refresh()
        window.wait("document.querySelector('#live').textContent.startsWith('Step 2 · 14')")
        assert window.text() == text
        window.go("#/")
        assert "+1.40" in window.text("#last")
        assert window.console() == []
