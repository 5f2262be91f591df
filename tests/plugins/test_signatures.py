"""Settings against annotations: what is converted, what is refused, what is left alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import pytest
from pydantic import Field

from searchrl.contracts import RetrieverFactory
from searchrl.errors import ConfigError
from searchrl.plugins import load_plugins
from searchrl.plugins.parts import make_env
from searchrl.plugins.signatures import check_settings, find_retriever_settings

if TYPE_CHECKING:
    from nowhere import Thing  # type: ignore[import-not-found]


class Speaks(Protocol):
    """Cannot be asked with isinstance."""

    def speak(self) -> str: ...


@dataclass(frozen=True)
class Window:
    """A setting with parts."""

    width: int


class Maker:
    """A factory with one parameter of each sort."""

    def __init__(  # type: ignore[no-untyped-def]
        self,
        passages: Sequence[Any],
        *,
        count: int = 1,
        share: Annotated[float, Field(ge=0, le=1)] = 0.5,
        path: str = "",
        paths: str | Path | Sequence[str | Path] | None = None,
        mix: Mapping[str, float] | None = None,
        mode: Literal["a", "b"] = "a",
        window: Window | None = None,
        late: int = None,  # type: ignore[assignment]  # noqa: RUF013
        speaker: Speaks | None = None,
        act: Callable[[str], str] = str,
        thing: Thing = 0,
        free=0,
        words: Iterable[str] = (),
        lists: Mapping[str, Iterable[int]] | None = None,
    ) -> None:
        self.given = (count, share, path, paths, mix, mode, window, late, speaker, act, thing, free)
        self.words, self.lists = words, lists


class Child(Maker):
    """Inherits the signature."""


def check(settings: Mapping[str, Any], factory: Callable[..., Any] = Maker) -> dict[str, Any]:
    return check_settings("retriever", "mine", factory, settings)


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"count": 3, "share": 1}, {"count": 3, "share": 1.0}),
        ({"path": 2024, "paths": [2024, "b"]}, {"path": "2024", "paths": ["2024", "b"]}),
        ({"paths": 2024}, {"paths": "2024"}),
        ({"paths": "text"}, {"paths": "text"}),
        ({"mix": {"x": 1}, "mode": "b"}, {"mix": {"x": 1.0}, "mode": "b"}),
        ({"window": {"width": 3}}, {"window": Window(3)}),
        ({"late": None, "mix": None}, {"late": None, "mix": None}),
        ({"thing": "abc", "free": {"any": [1]}}, {"thing": "abc", "free": {"any": [1]}}),
        ({"speaker": "abc"}, {"speaker": "abc"}),
        # Lists, not iterators that the first of many instances would use up.
        ({"words": ["a", 1]}, {"words": ["a", "1"]}),
        ({"lists": {"x": ["1", 2]}}, {"lists": {"x": [1, 2]}}),
    ],
)
@pytest.mark.parametrize("factory", [Maker, Child, functools.partial(Maker, free=1)])
def test_settings_that_fit_are_taken_as_annotated(
    settings: dict[str, Any], taken: dict[str, Any], factory: Callable[..., Any]
) -> None:
    checked = check(settings, factory)
    assert checked == taken
    assert [type(value) for value in checked.values()] == [type(value) for value in taken.values()]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": "abc"}, "retriever 'mine': cannot use count = 'abc': Input should be a valid"),
        ({"count": True}, "count = True: Input should be a number"),
        ({"share": 2}, "share = 2: Input should be less than or equal to 1"),
        ({"path": True}, "path = True: Input should be a valid string"),
        ({"path": ["a"]}, r"path = \['a'\]: "),
        ({"mix": {"x": 1, "y": "z"}}, "mix.y = 'z': Input should be a valid number"),
        ({"mode": "c"}, "mode = 'c': Input should be 'a' or 'b'"),
        ({"window": {"width": "w"}}, "window.width = 'w': "),
        ({"act": "abc"}, "act = 'abc': Input should be callable"),
        ({"count": "abc", "mix": 3}, "(?s)count = 'abc'.*\n.*mix = 3"),
        ({"passages": []}, "has no setting 'passages'"),
        ({"words": ["a", ["b"]]}, "cannot use words.1 = \\['b'\\]: Input should be a valid string"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        check(settings)


def test_a_retriever_or_a_list_of_them_is_found_in_a_union_and_marked() -> None:
    def factory(
        passages: Any,
        *,
        one: RetrieverFactory | None = None,
        some: list[RetrieverFactory] | None = None,
        marked: Annotated[list[RetrieverFactory], Field(min_length=1)],
        both: Annotated[RetrieverFactory | None, "mark"] = None,
        other: list[str] | None = None,
    ) -> None: ...

    found = find_retriever_settings(factory)
    assert found == {"one": False, "some": True, "marked": True, "both": False}


def test_what_searchrl_passes_is_refused_even_where_anything_goes() -> None:
    def factory(*, protocol: Any, retriever: Any, size: int = 1, **rest: Any) -> None:
        pass

    assert check_settings("env", "mine", factory, {"own": 1}) == {"own": 1}
    for settings in ({"retriever": "random"}, {"protocol": "x"}, {"size": "big"}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            check_settings("env", "mine", factory, settings)


def test_every_setting_of_the_built_ins_has_a_type_that_resolves() -> None:
    """Else a wrong value would pass unchecked, silently."""
    registry = load_plugins(entry_points=False)
    wrong = {
        ("env", "corpus"): ("questions corpus test_questions test_frac topk max_turns", True),
        ("env", "regulations"): ("mix handbook questions topk max_turns difficulty", True),
        ("retriever", "bm25"): ("k1 b epsilon title_weight", "x"),
        ("retriever", "random"): ("seed", "x"),
        ("protocol", "think-search-answer"): ("think search information answer instruction", []),
        ("algorithm", "dapo"): ("max_refills overlong_limit overlong_buffer overlong_penalty", "x"),
        ("algorithm", "tis"): ("cap", "x"),
        ("algorithm", "masked_tis"): ("low high", "x"),
        ("algorithm", "llds"): ("coefficient", "x"),
        ("tracker", "jsonl"): ("path", []),
        ("tracker", "tensorboard"): ("path", []),
    }
    for (kind, name), (keys, value) in wrong.items():
        for key in keys.split():
            with pytest.raises(ConfigError, match=f"cannot use {key} = "):
                registry.get(kind, name).ensure_settings({key: value})


OPEN = """
from searchrl import hookimpl
from searchrl.envs.corpus import CorpusEnv

class Mine(CorpusEnv):
    def __init__(self, *, depth: int, wide=False, **settings):
        super().__init__(**settings)

@hookimpl
def register_envs(register):
    register("mine", Mine)
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"depth": 1, "max_turn": 3}, "env 'mine' has no setting 'max_turn'. Did you mean 'max_tu"),
        ({"depth": 1, "wid": True}, "env 'mine' has no setting 'wid'. Did you mean 'wide'"),
        ({"depht": 1}, "env 'mine' has no setting 'depht'. Did you mean 'depth'"),
        ({}, "env 'mine' needs the setting 'depth'. Give it: --set env.depth=…"),
    ],
)
def test_settings_that_a_class_passes_on_get_the_near_match(
    own_folder: Path, given: dict[str, Any], said: str
) -> None:
    """A subclass of `TextEnv` with `**settings`: what its parents take is known as well."""
    (own_folder / "mine.py").write_text(OPEN, "utf-8")
    with pytest.raises(ConfigError) as caught:
        make_env("mine", plugins=["mine.py"], **given)
    assert str(caught.value).startswith(said)
    assert make_env("mine", plugins=["mine.py"], depth=1, max_turns=3)
