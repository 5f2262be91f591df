"""Every built-in name meets the criteria that plugins of others must meet."""

import pytest

from searchrl.plugins import load_plugins
from searchrl.testing import assert_conforms, check_plugin
from searchrl.testing.conformance import CHECKED
from searchrl.testing.criteria import Status

NAMES = [
    (entry.kind, entry.name)
    for entry in load_plugins(entry_points=False).entries()
    # A scheme, such as `gym:`, is no environment yet.
    if entry.kind in CHECKED and not entry.name.endswith(":")
]
QUICK = ("tracker", "algorithm")


@pytest.mark.parametrize(("kind", "name"), [pair for pair in NAMES if pair[0] in QUICK])
def test_a_builtin_keeps_every_criterion(kind: str, name: str) -> None:
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    assert_conforms(f"searchrl:{name}", kind=kind)


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "name"), [pair for pair in NAMES if pair[0] not in QUICK])
def test_a_slow_builtin_keeps_every_criterion(kind: str, name: str) -> None:
    assert_conforms(f"searchrl:{name}", kind=kind)


def test_a_reward_and_a_retriever_are_really_held_to_theirs() -> None:
    for kind, name, count in (("reward", "em", 10), ("retriever", "bm25", 9)):
        (report,) = check_plugin(name, kind=kind)
        assert sum(r.status is Status.PASSED for r in report.results) == count
        assert report.is_good


def test_a_wrapper_is_checked_with_the_settings_that_it_needs_or_left_out() -> None:
    (report,) = check_plugin("wrapper:time_limit")
    assert {(r.status, "needs the setting 'max_turns'" in r.note) for r in report.results} == {
        (Status.NOT_CHECKED, True)
    }
    (report,) = check_plugin("wrapper:time_limit", settings={"max_turns": 3})
    assert {r.status for r in report.results} == {Status.PASSED}
