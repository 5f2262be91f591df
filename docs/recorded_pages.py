"""The recorded run as the pages show it: text blocks, the terminal's picture, the learning curve.

Owns what stands between `<!-- recorded: NAME -->` and `<!-- end -->` in README.md and
quickstart.md. Reads docs/recorded_run/ and nothing else; the same files give the same bytes.
`record_run.py` measures and writes; `tests/test_recorded_run.py` holds the pages to the files.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from learning_curve import Curve, Point, draw_curve
from recorded import DOCS, Recorded
from rich.console import Console

from searchrl.contracts import Metric
from searchrl.envs.regulations.questions import IN_OTHER_WORDS
from searchrl.screen.console import ConsoleObserver
from searchrl.screen.figures import format_metric, label

PAGES = (DOCS.parent / "README.md", DOCS / "start" / "quickstart.md")
CURVE, SCREEN = DOCS / "learning_curve.svg", DOCS / "screen.svg"

COMMAND = "searchrl train --env regulations --reward format+em"
MODEL_NOTE = (
    "model: auto → the embedded tiny model (no GPU, and no local weights of Qwen/Qwen3-4B); "
    "choose another with --model"
)
"""The first line that the command prints on a machine without a GPU."""
RUN_DIR = "runs/first"
"""What the pages call the recorded run."""
COLUMNS = 100
"""Width of the terminal that is shown."""


_BLOCK = re.compile(r"(<!-- recorded: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


# --- pictures ------------------------------------------------------------------------------
class Shown(NamedTuple):
    """What the command prints: its steps, the sentence at its end, the table, a picture of it."""

    steps: list[str]
    sentence: str
    table: list[str]
    picture: str


def show_run(run: Recorded) -> Shown:
    """Let the command's own display show the run once more."""
    console = Console(
        file=io.StringIO(), record=True, width=COLUMNS, highlight=False, markup=False, emoji=False
    )
    observer = ConsoleObserver(console)
    observer.started -= run.record["wall_s"]
    observer.evaluation("before", 0, run.before)
    console.export_text(clear=True)
    for step, metrics in run.of_phase("train").items():
        observer.step(step, run.max_steps, metrics)
    printed = console.export_text(clear=True, styles=False).splitlines()
    # A step is one line; the terminal breaks it.
    joined = re.sub(r"\n(?!step )", "", "\n".join(printed))
    steps = [line for line in joined.splitlines() if line.startswith("step ")]
    observer.evaluation("after", run.max_steps, run.after)
    observer.compare(run.episodes[:1], run.episodes[1:2])
    console.export_text(clear=True)
    observer.done(Path(RUN_DIR), run.summary)
    picture = console.export_svg(
        title=f"{COMMAND} --run-dir {RUN_DIR}",
        clear=False,
        code_format=_SCREEN_FORMAT,
        unique_id="screen",
    )
    shown = console.export_text(styles=False).splitlines()
    blocks = [part.splitlines() for part in "\n".join(map(str.rstrip, shown)).split("\n\n")]
    sentence, table = [block for block in blocks if block][:2]
    return Shown(steps, "\n".join(sentence).strip(), table, picture)


# As rich's own, without the fonts that it would load from another site.
_SCREEN_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>The end of the recorded run in a terminal</title>
<style>
.{unique_id}-matrix {{ font-size: {char_height}px; line-height: {line_height}px;
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font-size: 18px; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def make_curve(run: Recorded) -> Curve:
    """What the picture of the learning curve shows."""
    points = {0: run.before, **run.between, run.max_steps: run.after}
    return Curve(
        "Learning curve of the recorded run: exact match before, with a forced first search, and "
        "after, beside the scripted policies",
        run.max_steps,
        [Point(step, metrics) for step, metrics in points.items()],
        [Point(step, metrics) for step, metrics in run.of_phase("train").items()],
        {
            "before": run.before["em"]["value"],
            "search first": run.before["em_forced"]["value"],
            "after": run.after["em"]["value"],
        },
        {name: one["metrics"]["em"]["value"] for name, one in run.heuristics.items()},
    )


# --- text ----------------------------------------------------------------------------------
def fence(lines: Sequence[str]) -> str:
    """Lines as a block of text."""
    return "\n".join(["```text", *lines, "```"])


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def as_prose(*sentences: str) -> str:
    """A paragraph; sentences that say nothing are left out."""
    text = " ".join(filter(None, sentences))
    return textwrap.fill(text, 116, break_long_words=False, break_on_hyphens=False)


def bare(metrics: Mapping[str, Metric], key: str) -> str:
    """A figure without its interval."""
    return format_metric(key, metrics, is_bare=True)


def listed(words: Iterable[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = [str(word) for word in words]
    return f"{', '.join(most)} and {last}" if most else last


def how_long(run: Recorded) -> str:
    """`5 min 2 s on 2 CPU cores`."""
    minutes, seconds = divmod(round(run.record["wall_s"]), 60)
    took = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    return f"{took} on {run.record['machine']}"


def versions(run: Recorded) -> str:
    """When it began, with which torch and which seed."""
    torch = run.provenance["versions"]["torch"].partition("+")[0]
    return f"{run.provenance['started'][:10]}, torch {torch}, seed {run.summary['seed']}"


def _sizes_between(run: Recorded) -> list[int]:
    """How many validation tasks the short evaluations had."""
    return sorted({metrics["em"]["n"] for metrics in run.between.values()})


def front(run: Recorded) -> str:
    """README: what the command prints, cut to what a first reader looks at."""
    steps, sentence, table, _ = show_run(run)
    last = label("passive")
    top = [line for line in table if line.startswith(last)]
    cut = table[: table.index(top[0]) + 1] if top else table
    tenth = f"step {min(10, run.max_steps)}/"
    shown = dict.fromkeys([steps[0], *(s for s in steps if s.startswith(tenth)), steps[-1]])
    lines = [_up_to(last, line) for line in shown]
    if len(lines) > 2:
        lines.insert(-1, "…")
    return fence([MODEL_NOTE, *lines, "", sentence, "", *cut])


def _up_to(name: str, line: str) -> str:
    parts = line.split("  ")
    end = next((n for n, part in enumerate(parts) if part.startswith(f"{name} ")), len(parts) - 1)
    return "  ".join(parts[: end + 1])


def took(run: Recorded) -> str:
    """README: how long it took, on what tasks, and what is still wrong."""
    wrong, num_tasks = run.record["wrong"], run.after["em"]["n"]
    rest = (
        f"{wrong['count']} answers are still wrong. In {wrong['silent']} of them it says that the "
        "handbook has no rule, but there is one."
    )
    return as_prose(
        f"That took {how_long(run)} ({versions(run)}); {num_tasks} held-out questions about "
        "schools it has never seen, greedy, with 95 % intervals.",
        rest if wrong["count"] else "It answers all of them right.",
    )


RAW = "https://raw.githubusercontent.com/searchrl/searchrl/main/"
"""Where the pictures of the README are: it is read outside of the repository, too."""


def learned(run: Recorded) -> str:
    """README, quickstart: what was put in on purpose, and what reward alone added, where."""
    start, kinds = run.record["search_first"], []
    for kind in IN_OTHER_WORDS:
        kinds.append(f"`{kind}` {bare(start, kind)} → {bare(run.after, f'em/{kind}')}")
    return as_prose(
        "The start is passive on purpose, so that the failure can be seen: half of the last "
        "demonstrations of its cold start answer at once.",
        f"Forced to search first, it has an exact match of {bare(run.before, 'em_forced')}.",
        "What lies above that was found through reward alone: "
        f"{format_metric('em_gain', run.after)} on the same tasks, most of it where a second "
        f"search in other words finds what the first did not ({', '.join(kinds)}); every "
        "demonstration of such a search was in vain.",
    )


def curve(run: Recorded) -> str:
    """README: the learning curve, and what it is compared with."""
    sizes, rival = _sizes_between(run), run.heuristics.get("two_search_regex")
    between = f"{listed(sizes)} validation tasks in between, " if sizes else ""
    unseen = "em/unseen_wording"
    is_seen_between = unseen in run.after and not any(unseen in m for m in run.between.values())
    compared = rival and (
        "Searches and regular expressions (`two_search_regex`: a hundred lines for this one "
        "world, tuned on training tasks by somebody who had not seen the model) score "
        f"{bare(rival['metrics'], 'em')}; the trained model's exact match minus theirs on the same "
        f"tasks is {format_metric('gain', rival)}. A rule of 200 lines that lists every matter "
        "reached 0.95 on training tasks (not those it was tuned on). So the difference is not that "
        "rules could not do this: nobody wrote the model's. It learned to read from "
        "demonstrations, and when to search, and to search again, from the reward."
    )
    text = as_prose(
        f"Greedy, with 95 % intervals: the same {run.after['em']['n']} test tasks before and "
        f"after, {between}and scripted policies on the test tasks.",
        "Only the test tasks have wordings that training never shows." if is_seen_between else "",
        compared or "",
    )
    return f"![Learning curve beside scripted policies]({RAW}docs/{CURVE.name})\n\n{text}"


def model(run: Recorded) -> str:
    """quickstart: which model it is."""
    millions = f"{run.provenance['parameters'] / 1e6:.1f}"
    return as_prose(
        f"Without a GPU this trains the embedded tiny model, a Qwen3 of {millions} million weights."
    )


def table(run: Recorded) -> str:
    """quickstart: the end of what the command prints: the sentence and the whole table."""
    shown = show_run(run)
    return fence([shown.sentence, "", *shown.table])


def dashes(run: Recorded) -> str:
    """quickstart: what a dash in the table means."""
    last = run.of_phase("train")[run.max_steps]
    is_dead = _is_dead(last) and "loss" not in last
    return as_prose(
        "A dash means that the number was not measured there.",
        "In the last step every group had equal rewards, so nothing was updated."
        if is_dead
        else "",
    )


def _is_dead(metrics: Mapping[str, Metric]) -> bool:
    """Whether in every group of a step all rewards were equal."""
    return "dead_groups" in metrics and metrics["dead_groups"]["value"] == 1


def transcript(run: Recorded) -> str:
    """quickstart: the end of the run as the terminal shows it."""
    task = run.episodes[0]["task"]["question"]
    return (
        f"![The end of the run: the table, and one task before and after: {task}](../{SCREEN.name})"
    )


def reads(run: Recorded) -> str:
    """quickstart: exact match on regulated questions by what the search engine returns."""
    found = {name: one["regulated"] for name, one in run.controls["retrievers"].items()}
    blind = max(found[name]["high"] for name in ("random", "empty"))
    return as_prose(
        "After the recorded run: exact match on regulated questions is "
        f"{bare(found, 'random')} with random passages and {bare(found, 'empty')} with none, "
        f"against {bare(found, 'bm25')} with BM25 ({found['bm25']['n']} regulated of "
        f"{run.after['em']['n']} held-out questions).",
        "The agent really reads." if blind < found["bm25"]["low"] else "",
    )


def scores(run: Recorded) -> str:
    """read-a-run: the scripted policies on the same tasks, with the command."""
    rows = [
        [
            f"`{name}`",
            format_metric("em", one["metrics"]),
            bare(one["metrics"], "searched"),
            format_metric("gain", one),
        ]
        for name, one in run.heuristics.items()
    ]
    head = ["scripted policy", "`em`", "`searched`", "`em` of the trained model minus this"]
    commands = [one["command"].rpartition(":")[0] for one in run.heuristics.values()]
    text = as_prose(f"Measured with `{commands[0]}:NAME`; differences are of pairs, task by task.")
    return f"{as_table(head, rows)}\n\n{text}"


def controls(run: Recorded) -> str:
    """read-a-run: the recorded run beside others that differ from it in one thing."""
    found = {name: one["regulated"] for name, one in run.controls["retrievers"].items()}
    names = {"bm25": "BM25", "random": "random passages", "empty": "no passages"}
    blind = ", ".join(f"{name} {bare(found, key)}" for key, name in names.items())
    kinds = [f"em/{name}" for name in (*run.record["kinds"], *run.record["slices"])]
    shown = ["em", *kinds, "searched", "format"]
    recorded = {"flags": f"--seed {run.summary['seed']}", "after": run.after}
    rows = [
        [f"`{one['flags']}`", *(bare(one["after"], key) for key in shown)]
        for one in (recorded, *run.controls["runs"])
    ]
    head = ["the main command with", *(f"`{key}`" for key in shown)]
    text = as_prose(
        f"Measured with the embedded model, greedy, on {run.after['em']['n']} held-out tasks; the "
        "first row is the recorded run:"
    )
    last = as_prose(f"The recorded run on regulated questions: {blind}.")
    return f"{text}\n\n{as_table(head, rows)}\n\n{last}"


BLOCKS: Mapping[str, Callable[[Recorded], str]] = {
    "front": front,
    "took": took,
    "learned": learned,
    "curve": curve,
    "model": model,
    "table": table,
    "dashes": dashes,
    "transcript": transcript,
    "reads": reads,
}
"""Name of a block -> what writes it."""


def fill(text: str, write: Callable[[str], str]) -> str:
    """A page with every block written anew; `write` makes the text of a block from its name.

    Raises:
        KeyError: if a page asks for a block that nobody writes.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{write(found[2])}\n{found[3]}", text)


def render(run: Recorded) -> dict[Path, str]:
    """Every page and picture as the recorded run makes it."""
    files = {page: fill(page.read_text("utf-8"), lambda name: BLOCKS[name](run)) for page in PAGES}
    return files | {CURVE: draw_curve(make_curve(run)), SCREEN: show_run(run).picture}
