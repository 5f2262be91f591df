"""Shared fixtures: hypothesis profiles, and the optional real data beside the checkout."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from searchrl.run_folder import Run

# Models this small have nothing to share between threads, and waiting for each other takes longer.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What tests trust is not what the user trusts; programs that tests start inherit it.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="searchrl-state-")
# They hold what is built in, whatever packages of plugins are installed beside it.
os.environ["SEARCHRL_NO_INSTALLED_PLUGINS"] = "1"

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets of one test are words of another."""
    monkeypatch.setattr("searchrl.trust.secrets._SECRETS", set())


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it skip without it."""
    path = REPO.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the real data sets (../shared/data) are not on this machine")
    return path


@pytest.fixture(scope="session")
def micro_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 folder of one layer with random weights and a byte-level tokenizer of its own."""
    from micro import write_micro_model

    return write_micro_model(tmp_path_factory.mktemp("micro") / "model")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; Gymnasium ids that the test registers are taken back."""
    import gymnasium

    monkeypatch.chdir(tmp_path)
    known = dict(gymnasium.registry)
    yield tmp_path
    gymnasium.registry.clear()
    gymnasium.registry.update(known)


@pytest.fixture
def threads_restored() -> Iterator[None]:
    """For tests of programs, which give torch as many threads as their config says."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """Hear Ctrl-C, also where a shell runs the tests in the background and ignores it for them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def unheard_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP that a program does not catch are not heard; else they end the tests."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *args: None) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def one_footprint_per_model() -> Iterator[None]:
    """The memory plan of a run counts its model: once, for all runs of the tests that train it."""
    from searchrl.engine.memory import forecast

    real, known = forecast.find_footprint, dict[Any, Any]()

    def find(config: Any, resolved: Any, device: Any, **more: Any) -> Any:
        key = (config.model_dump_json(), resolved, device, *more.items())
        if key not in known:
            known[key] = real(config, resolved, device, **more)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecast, "find_footprint", find)
        yield


@pytest.fixture(scope="session")
def whole_run(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The uninterrupted run on the toy world that others are compared with; to be read only."""
    import torch
    from train_toy import settings

    from searchrl.programs.train import train

    before = torch.get_num_threads()
    run = train(settings(micro_model, tmp_path_factory.mktemp("whole") / "run"))
    torch.set_num_threads(before)
    return run


@pytest.fixture(scope="session")
def micro_flags(micro_model: Path) -> list[str]:
    """Command-line flags of the smallest possible run on `micro_model`."""
    from command_line import MICRO_SETTINGS

    flags = ["--env", "regulations", "--model", str(micro_model), "--max-steps", "1"]
    return flags + [part for setting in MICRO_SETTINGS for part in ("--set", setting)]


@pytest.fixture(scope="session")
def micro_run(tmp_path_factory: pytest.TempPathFactory, micro_flags: list[str]) -> Path:
    from command_line import succeed

    folder = tmp_path_factory.mktemp("runs") / "micro"
    succeed("train", *micro_flags, "--run-dir", folder)
    return folder
