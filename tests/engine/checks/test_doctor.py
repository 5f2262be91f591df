"""Faults put into a run before it begins: the doctor names each, and a healthy run passes."""

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from session_toy import LORA, TAGS, MakeSession, failures, same_weights
from torch import Tensor
from transformers import AutoTokenizer

from searchrl.core.excerpt import Excerpt
from searchrl.core.trajectory import Segment, Trajectory
from searchrl.engine.checks import doctor
from searchrl.engine.checks.report import State
from searchrl.engine.checks.texts import check_history, check_observations
from searchrl.engine.checks.trial import Size
from searchrl.engine.model.loading import TINY_PATH
from searchrl.engine.model.rendering import Renderer
from searchrl.engine.rollout.dialogue import Limits
from searchrl.engine.sampling import slot_generator
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.engine.sampling.stops import StopTable
from searchrl.errors import CheckError
from searchrl.programs.setup.session import Session

Patch = pytest.MonkeyPatch
Inject = Callable[[Patch, Session], None]

STRIPPING = (
    "{% for m in messages %}[{{ m.role }}]"
    "{{ m.content.split('</think>')[-1] }}[end]\n{% endfor %}[assistant]"
)
"""A template that strips think blocks from what was said before, as Qwen3's does."""


def nothing(patch: Patch, session: Session) -> None:
    """The fault is in the settings."""


def use_template(template: str) -> Inject:
    def inject(patch: Patch, session: Session) -> None:
        tokenizer = session.policy.tokenizer
        tokenizer.chat_template = template
        session.sampler.codec = Renderer(tokenizer)

    return inject


def tidy_decoding(patch: Patch, session: Session) -> None:
    decode = Renderer.decode
    patch.setattr(Renderer, "decode", lambda self, ids: decode(self, ids).replace("\n\n", "\n"))


def half_a_stop_table(patch: Patch, session: Session) -> None:
    class Half(StopTable):
        def __init__(self, token_bytes: Sequence[bytes], stops: Sequence[str]) -> None:
            super().__init__(token_bytes, stops[:1])

    patch.setattr(slot_generator, "StopTable", Half)


def drop_newlines(patch: Patch, session: Session) -> None:
    """The model reads other observations than the environment gave."""
    encode = Renderer.encode_plain
    patch.setattr(Renderer, "encode_plain", lambda self, text: encode(self, text.replace("\n", "")))


def draw_colder(patch: Patch, session: Session) -> None:
    generator: Any = session.sampler.generator
    generator.sampling = dataclasses.replace(generator.sampling, temperature=0.5)


def other_forward_pass(patch: Patch, session: Session) -> None:
    forward = SlotGenerator._forward

    def scaled(self: SlotGenerator, *args: Any) -> Tensor:
        noise = torch.randn(32, generator=torch.Generator().manual_seed(0))
        return forward(self, *args) + 0.3 * noise

    patch.setattr(SlotGenerator, "_forward", scaled)


def train_observations(patch: Patch, session: Session) -> None:
    patch.setattr(Segment, "trained", property(lambda t: [n > 2 for n in range(len(t))]))


def keep_the_version(patch: Patch, session: Session) -> None:
    session.policy.version += 3
    generator: Any = session.sampler.generator
    patch.setattr(generator, "sync", lambda policy: 0)


Fault = tuple[str, Inject, dict[str, Any]]

FAULTS: dict[str, Fault] = {
    "prompts longer than an episode": ("lengths", nothing, {"rollout": {"max_total_tokens": 6}}),
    "think blocks stripped by the template": ("template", use_template(STRIPPING), {"task": TAGS}),
    "decoding that tidies up": ("round_trip", tidy_decoding, {}),
    "a stop string nobody looks for": ("stops", half_a_stop_table, {"task": TAGS}),
    "stop strings longer than a turn": (
        "stops", nothing, {"task": TAGS, "rollout": {"max_turn_tokens": 2}},
    ),
    "stop strings that end nothing": ("stops", lambda patch, session: patch.setattr(
        session.worlds[0].protocol, "stops", ("</never>", "</nowhere>")), {"task": TAGS}),
    "newlines dropped from observations": ("observations", drop_newlines, {}),
    "drawn at another temperature": ("batch", draw_colder, {}),
    "another forward pass": ("batch", other_forward_pass, {}),
    "observations trained": ("batch", train_observations, {}),
    "weights of another version": ("batch", keep_the_version, {}),
    "an environment that fails": ("episodes", nothing, {"task": {"env": {
        "name": "toy-faulty", "fault": "step-raises"}}}),
}  # fmt: skip


PICTURED = {
    "newlines dropped from observations",
    "drawn at another temperature",
    "another forward pass",
    "observations trained",
}
"""Faults of tokens: the tokens around the place are shown."""


@pytest.fixture(autouse=True)
def small_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "THOROUGH", Size(4, 3, 2, 3, 12))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_doctor_names_a_fault(
    fault: str, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, inject, more = FAULTS[fault]
    session = make_session(**more)
    inject(monkeypatch, session)
    report = session.examine(is_thorough=True)
    assert name in failures(report), {n: c.says for n, c in failures(report).items()}
    found = failures(report)[name]
    assert len(found.says) > 30
    assert found.fix
    if fault in PICTURED:
        excerpt = found.excerpt
        assert isinstance(excerpt, Excerpt)
        assert [token.is_fault for token in excerpt.tokens].count(True) == 1
        assert all(len(line) < 120 for line in str(excerpt).splitlines())
    with pytest.raises(CheckError, match=r"check '\w+': "):
        report.ensure_good()


HEALTHY: dict[str, dict[str, Any]] = {
    "full": {},
    "the plain generator": {"engine": {"generator": "hf"}},
    "lora": {"model": LORA | {"lora_dropout": 0.3}},
    "bfloat16": {"model": LORA | {"dtype": "bfloat16"}},
    "a temperature": {"rollout": {"temperature": 0.6}},
    "checkpointing": {"model": LORA | {"gradient_checkpointing": True}},
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_passes_and_is_as_before(kind: str, make_session: MakeSession) -> None:
    session = make_session(**HEALTHY[kind])
    is_same, version = same_weights(session), session.policy.version
    report = session.examine(is_thorough=True)
    assert report.is_good, {n: c.says for n, c in failures(report).items()}
    assert {one.state for one in report.checks} == {State.PASSED}
    assert is_same() and session.policy.version == version


def test_what_is_sampled_does_not_depend_on_the_checks(make_session: MakeSession) -> None:
    plain, checked = make_session(), make_session()
    checked.examine(is_thorough=True)
    ours, theirs = (
        [(r.trajectory.ids, r.trajectory.sampler_logps) for r in session.sample(1).rollouts]
        for session in (plain, checked)
    )
    assert ours == theirs


def test_an_environment_that_fails_is_a_warning_at_the_start(make_session: MakeSession) -> None:
    """The limit of failures of the run decides what becomes of it."""
    fault = {"env": {"name": "toy-faulty", "fault": "reset-raises"}}
    report = make_session(task=fault).examine(is_thorough=False)
    assert report.is_good
    assert [one.name for one in report.of(State.WARNED)] == ["episodes"]


@pytest.mark.parametrize(
    ("longest", "total", "compacts", "state"),
    [
        (6, 10, False, State.PASSED),
        (7, 10, False, State.WARNED),
        (10, 10, False, State.FAILED),
        (3, 64, False, State.PASSED),
        (3, 65, False, State.FAILED),
        (3, 20, True, State.PASSED),
        (3, 19, True, State.WARNED),
    ],
)
def test_prompts_leave_room_for_a_turn(
    longest: int, total: int, compacts: bool, state: State
) -> None:
    """A turn may have 4 tokens, an observation 9, and the model was made for 64."""
    subject: Any = SimpleNamespace(
        worlds=[SimpleNamespace(compacts=compacts)],
        sampler=SimpleNamespace(limits=Limits(4, 9, total)),
        policy=SimpleNamespace(max_positions=64),
        prompts=[SimpleNamespace(made=SimpleNamespace(ids=[0] * n)) for n in (longest, 2)],
    )
    verdict = doctor.check_lengths(subject)
    assert verdict.state is state and bool(verdict.fix) == (state is not State.PASSED)


def test_one_observation_that_was_cut_is_a_warning() -> None:
    for num_cut, state in ((0, State.SKIPPED), (1, State.WARNED)):
        episode = SimpleNamespace(signals={"observations_cut": num_cut}, turns=[])
        one = SimpleNamespace(trajectory=Trajectory("r", "g"), episode=episode)
        sampler = SimpleNamespace(limits=Limits(4, 9, 99))
        subject: Any = SimpleNamespace(played=[one], sampler=sampler)
        assert check_observations(subject).state is state


NO_SYSTEM = "{{ raise_exception('no') if messages[0].role == 'system' else '' }}"
DROPPED = {
    STRIPPING: ["strips thoughts"],
    NO_SYSTEM + STRIPPING: ["no system message", "strips thoughts"],
    "{% for m in messages %}{{ m.content }}{% endfor %}": [],
}


@pytest.mark.parametrize("template", DROPPED)
def test_parts_of_a_dialogue_that_a_template_drops_are_named(template: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TINY_PATH)
    tokenizer.chat_template = template
    found = check_history(tokenizer, thinking=True)
    assert (found.state is State.WARNED) == bool(DROPPED[template])
    assert all(words in found.says for words in DROPPED[template])
