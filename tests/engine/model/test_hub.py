"""Names of models: a path is never looked up on a hub, and absence is found out in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from searchrl.engine.model import hub
from searchrl.engine.model.loading import resolve_model
from searchrl.errors import PolicyError

CPU = torch.device("cpu")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The names that the hub was asked for; it knows `them/model` and is broken for `them/odd`."""
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    names: list[str] = []

    def model_info(self: Any, name: str, **more: Any) -> None:
        names.append(name)
        if name == "them/away":
            raise ConnectionError("Name or service not known\nmore")
        if name != "them/model":
            raise RepositoryNotFoundError.__new__(RepositoryNotFoundError)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.chdir(tmp_path)
    hub._ask_hub.cache_clear()
    yield names
    hub._ask_hub.cache_clear()


@pytest.mark.parametrize(
    "name",
    ["runs/frist", "./first", "~/first", "/nowhere", "a/b/c", "mine/frist", "first/", r"a\b"],
)
def test_a_name_that_can_only_be_a_path_is_never_looked_up(name: str, asked: list[str]) -> None:
    """`ask runs/frist` ended after a minute of retries."""
    Path("mine").mkdir()
    with pytest.raises(PolicyError, match="does not exist"):
        resolve_model(name, CPU)
    assert asked == []


def test_a_hub_id_is_asked_for_once_and_only_when_its_weights_are_needed(asked: list[str]) -> None:
    model = resolve_model("them/model", CPU)
    assert model.is_hub_id and asked == []
    for _ in range(3):
        hub.find_absence(model.path)
    assert asked == ["them/model"]


def test_absence_says_what_to_do(asked: list[str]) -> None:
    away = hub.find_absence("them/away")
    assert "out of reach (Name or service not known)" in away
    assert "hf download them/away --local-dir DIR" in away
    assert "there is no model 'frist'" in hub.find_absence("frist")


def test_weights_in_the_cache_need_no_hub(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "is_stored", lambda name: True)
    assert hub.find_absence("them/away") == "" and asked == []
