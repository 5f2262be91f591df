"""Faults put into a run before it begins: the doctor names each, and a healthy run passes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from session_toy import LORA, TAGS, MakeSession, failures, same_weights
from torch import Tensor

from searchrl.core.excerpt import Excerpt
from searchrl.engine.checks import doctor
from searchrl.engine.checks.doctor import CHECKS, CHOICE_CHECKS
from searchrl.engine.checks.report import State
from searchrl.engine.checks.trial import Size
from searchrl.engine.episodes.rollout import RolloutDriver
from searchrl.engine.learning import packing
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.rendering import RenderedPrompt, Renderer
from searchrl.engine.sampling import slot_generator
from searchrl.engine.sampling.fused import FusedDecoder
from searchrl.engine.sampling.generator import FinishedTurn, OpenSequence
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.engine.sampling.stops import StopTable
from searchrl.errors import CheckError
from searchrl.plugins import Registry
from searchrl.programs.doctor import examine_plan
from searchrl.programs.setup.session import Session

pytestmark = pytest.mark.thorough

PAGE = Path(__file__).resolve().parents[3] / "docs" / "doctor.md"
Patch = pytest.MonkeyPatch
Inject = Callable[[Patch, Session], None]

THINKING = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]\n{% endfor %}[assistant]<think>\n"
)
"""A template that opens the thought of the turn to come."""

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


def lose_the_opened_thought(patch: Patch, session: Session) -> None:
    """The prompt goes without the <think> that the parser is told of."""
    use_template(THINKING)(patch, session)
    render = Renderer.render_prompt

    def without(self: Renderer, *args: Any, **more: Any) -> RenderedPrompt:
        made = render(self, *args, **more)
        text = made.text.removesuffix("<think>")
        return RenderedPrompt(self.encode_plain(text), made.assistant_prefix, text)

    patch.setattr(Renderer, "render_prompt", without)


def tidy_decoding(patch: Patch, session: Session) -> None:
    """Decoding that cleans up white space."""
    decode = Renderer.decode
    patch.setattr(Renderer, "decode", lambda self, ids: decode(self, ids).replace("\n\n", "\n"))


def half_a_stop_table(patch: Patch, session: Session) -> None:
    """A generator that looks for one of the stop strings only."""

    class Half(StopTable):
        def __init__(self, token_bytes: Sequence[bytes], stops: Sequence[str]) -> None:
            super().__init__(token_bytes, stops[:1])

    patch.setattr(slot_generator, "StopTable", Half)


def mask_padding(patch: Patch, session: Session) -> None:
    """The pad id stands for "not generated" (Search-R1, TRL #4974)."""
    trained, pad = packing._trained, session.policy.tokenizer.pad_token_id
    patch.setattr(
        packing,
        "_trained",
        lambda t: [m and i != pad for m, i in zip(trained(t), t.ids, strict=True)],
    )


def encode_again(patch: Patch, session: Session) -> None:
    """Decode, cut, encode again: the ids trained are not the ids sampled (Search-R1)."""
    record = RolloutDriver._record

    def again(self: RolloutDriver, dialogue: Any, turn: FinishedTurn) -> str:
        ids = tuple(self.codec.encode_model_text(self.codec.decode(turn.ids)))
        ids = ids if ids != turn.ids else (*ids[:-1], ids[-1] ^ 1)
        return record(self, dialogue, dataclasses.replace(turn, ids=ids, logps=(-1.0,) * len(ids)))

    patch.setattr(RolloutDriver, "_record", again)


def shift_logps(patch: Patch, session: Session) -> None:
    """The log-probs of a turn are those of the tokens before."""
    record = RolloutDriver._record

    def shifted(self: RolloutDriver, dialogue: Any, turn: FinishedTurn) -> str:
        assert turn.logps is not None
        logps = (turn.logps[-1], *turn.logps[:-1])
        return record(self, dialogue, dataclasses.replace(turn, logps=logps))

    patch.setattr(RolloutDriver, "_record", shifted)


def strip_turns(patch: Patch, session: Session) -> None:
    """The environment gets less than the model wrote."""
    record = RolloutDriver._record

    def stripped(self: RolloutDriver, dialogue: Any, turn: FinishedTurn) -> str:
        text = record(self, dialogue, turn)
        dialogue.turns = [dataclasses.replace(t, text=t.text[1:]) for t in dialogue.turns]
        return text[1:]

    patch.setattr(RolloutDriver, "_record", stripped)


def drop_newlines(patch: Patch, session: Session) -> None:
    """The model reads other observations than the environment gave."""
    encode = Renderer.encode_plain
    patch.setattr(Renderer, "encode_plain", lambda self, text: encode(self, text.replace("\n", "")))


def noisy_record(patch: Patch, session: Session) -> None:
    """Noise of 1e-2 in what the sampler reports."""
    append = OpenSequence.append
    rng = torch.Generator().manual_seed(0)

    def noisy(self: OpenSequence, token: int, logp: float) -> None:
        append(self, token, logp + 0.01 * float(torch.randn((), generator=rng)))

    patch.setattr(OpenSequence, "append", noisy)


def draw_colder(patch: Patch, session: Session) -> None:
    """The sampler draws at another temperature than it was told."""
    generator: Any = session.sampler.generator
    generator.sampling = dataclasses.replace(generator.sampling, temperature=0.5)


def train_colder(patch: Patch, session: Session) -> None:
    session.learner.temperature = 0.5


def other_forward_pass(patch: Patch, session: Session) -> None:
    """A fast path that is not quite the model."""
    hidden = FusedDecoder.hidden

    def scaled(self: FusedDecoder, *args: Any) -> Tensor:
        noise = torch.randn(32, generator=torch.Generator().manual_seed(0))
        return hidden(self, *args) + 0.3 * noise

    patch.setattr(FusedDecoder, "hidden", scaled)


def forbid_a_token(patch: Patch, session: Session) -> None:
    """A sampler that never draws some token."""
    draw = slot_generator.draw_tokens

    def forbidding(logits_BV: Tensor, *rest: Any) -> Any:
        logits_BV = logits_BV.clone()
        logits_BV[:, 7] = -torch.inf
        return draw(logits_BV, *rest)

    patch.setattr(slot_generator, "draw_tokens", forbidding)


def train_observations(patch: Patch, session: Session) -> None:
    patch.setattr(packing, "_trained", lambda t: [n > 2 for n in range(len(t))])
    patch.setattr(packing, "broadcast", lambda value, trajectory, mask: 1.0)


def keep_the_version(patch: Patch, session: Session) -> None:
    """A sampler that never hears of an update."""
    session.policy.version += 3
    generator: Any = session.sampler.generator
    patch.setattr(generator, "sync", lambda policy: 0)


def updates_with_dropout(patch: Patch, session: Session) -> None:
    """LoRA dropout is active where ratios are computed."""
    updating = Policy.updating

    def training(self: Policy) -> Any:
        context = updating(self)

        class Training:
            def __enter__(self) -> None:
                context.__enter__()
                session.policy.model.train()

            def __exit__(self, *raised: Any) -> Any:
                return context.__exit__(*raised)

        return Training()

    patch.setattr(Policy, "updating", training)


def reference_with_adapter(patch: Patch, session: Session) -> None:
    patch.setattr(session.policy.model, "disable_adapter", nullcontext)


def reference_is_the_policy(patch: Patch, session: Session) -> None:
    """No copy was made: the reference moves with the weights."""
    session.policy._frozen = session.policy.model


def adapter_without_effect(patch: Patch, session: Session) -> None:
    """What is trained is not what is computed with."""
    session.policy.model.base_model.disable_adapter_layers()


def keep_old_keys(patch: Patch, session: Session) -> None:
    """Keys and values survive a weight update (transformers' continuous batching)."""

    def sync(self: SlotGenerator, policy: Policy) -> int:
        self._fused = None
        self.policy, self.version = policy, policy.version
        self._weights = policy.weights_stamp()
        return self.version

    patch.setattr(SlotGenerator, "sync", sync)


def keep_fused_weights(patch: Patch, session: Session) -> None:
    """The fast path goes on with its copy of the weights."""
    sync = SlotGenerator.sync

    def keeping(self: SlotGenerator, policy: Policy) -> int:
        fused = self._fused
        version = sync(self, policy)
        self._fused = fused
        return version

    patch.setattr(SlotGenerator, "sync", keeping)


Fault = tuple[str, Inject, dict[str, Any]]

FAULTS: dict[str, Fault] = {
    "prompts longer than an episode": ("lengths", nothing, {"rollout": {"max_total_tokens": 6}}),
    "think blocks stripped by the template": ("template", use_template(STRIPPING), {"task": TAGS}),
    "opened thought lost": ("template", lose_the_opened_thought, {}),
    "decoding that tidies up": ("round_trip", tidy_decoding, {}),
    "a stop string nobody looks for": ("stops", half_a_stop_table, {"task": TAGS}),
    "stop strings longer than a turn": (
        "stops", nothing, {"task": TAGS, "rollout": {"max_turn_tokens": 2}},
    ),
    "stop strings that end nothing": ("stops", lambda patch, session: patch.setattr(
        session.worlds[0].protocol, "stops", ("</never>", "</nowhere>")), {"task": TAGS}),
    "padding masked by its id": ("eos", mask_padding, {}),
    "a turn encoded again": ("ledger", encode_again, {}),
    "log-probs shifted": ("ledger", shift_logps, {}),
    "turns stripped": ("turns", strip_turns, {}),
    "newlines dropped from observations": ("turns", drop_newlines, {}),
    "sampler noise of 1e-2": ("record", noisy_record, {}),
    "drawn at another temperature": ("temperature", draw_colder, {}),
    "trained at another temperature": ("temperature", train_colder, {}),
    "another forward pass": ("agreement", other_forward_pass, {}),
    "a token that is never drawn": ("agreement", forbid_a_token, {}),
    "observations trained": ("batch", train_observations, {}),
    "weights of another version": ("batch", keep_the_version, {}),
    "dropout in the update": (
        "dropout", updates_with_dropout, {"model": LORA | {"lora_dropout": 0.5}},
    ),
    "reference with its adapter on": ("reference", reference_with_adapter, {"model": LORA}),
    "reference that is the policy": ("reference", reference_is_the_policy, {}),
    "an adapter without effect": ("reference", adapter_without_effect, {"model": LORA}),
    "stale keys and values": ("cache", keep_old_keys, {}),
    "stale fused weights": ("cache", keep_fused_weights, {}),
    "an environment that fails": ("episodes", nothing, {"task": {"env": {
        "name": "toy-faulty", "fault": "step-raises"}}}),
}  # fmt: skip


PICTURED = {
    "a turn encoded again",
    "log-probs shifted",
    "turns stripped",
    "sampler noise of 1e-2",
    "drawn at another temperature",
    "another forward pass",
    "observations trained",
    "stale keys and values",
}
"""Faults of tokens: the tokens around the place are shown."""


@pytest.fixture(autouse=True)
def small_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "THOROUGH", Size(1, 2, 3, 12))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_doctor_names_a_fault(
    fault: str, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, inject, more = FAULTS[fault]
    session = make_session(**more)
    if fault == "dropout in the update":  # a new adapter computes nothing that it could change
        with torch.no_grad():
            for parameter in session.policy.parameters:
                parameter.add_(0.3)
    inject(monkeypatch, session)
    report = session.examine(is_thorough=True)
    assert name in failures(report), {n: c.verdict.says for n, c in failures(report).items()}
    found = failures(report)[name].verdict
    assert len(found.says) > 30
    assert found.fix or name == "batch"
    if fault in PICTURED:
        excerpt = found.excerpt
        assert isinstance(excerpt, Excerpt)
        assert [token.is_fault for token in excerpt.tokens].count(True) == 1
        assert all(len(line) < 120 for line in str(excerpt).splitlines())
    with pytest.raises(CheckError, match=r"check '\w+': "):
        report.ensure_good()


def test_every_check_has_a_fault_that_it_finds() -> None:
    found = {name for name, _, _ in FAULTS.values()} | {"sampling"}
    assert found == {check.name for check in CHECKS}


def test_the_page_of_the_doctor_has_every_check_and_no_other() -> None:
    text = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| .+? \| (yes|no) \|$", text, re.MULTILINE)
    known = [*CHECKS, *CHOICE_CHECKS]
    assert rows == [(c.name, c.question, "yes" if c.is_quick else "no") for c in known]


def test_a_cut_distribution_is_a_finding_of_the_doctor_and_no_run_begins_with_it(
    make_session: MakeSession, toy_registry: Registry
) -> None:
    plan = make_session().plan
    sampling = plan.config.sampling.model_copy(update={"top_p": 0.9})
    plan = dataclasses.replace(plan, config=plan.config.model_copy(update={"sampling": sampling}))
    found = failures(examine_plan(plan, toy_registry))
    assert list(found) == ["sampling"]
    assert "sampling.top_p=0.9" in found["sampling"].verdict.says


HEALTHY: dict[str, dict[str, Any]] = {
    "full": {},
    "the plain generator": {"engine": {"generator": "hf"}},
    "lora": {"model": LORA | {"lora_dropout": 0.3}},
    "bfloat16": {"model": LORA | {"dtype": "bfloat16"}},
    "float16": {"model": LORA | {"dtype": "float16"}},
    "a temperature": {"rollout": {"temperature": 0.6}},
    "tags": {"task": TAGS},
    "checkpointing": {"model": LORA | {"gradient_checkpointing": True}},
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_passes_and_is_as_before(kind: str, make_session: MakeSession) -> None:
    session = make_session(**HEALTHY[kind])
    is_same, version = same_weights(session), session.policy.version
    report = session.examine(is_thorough=True)
    assert report.is_good, {n: c.verdict.says for n, c in failures(report).items()}
    assert {one.verdict.state for one in report.checks} == {State.PASSED}
    assert is_same() and session.policy.version == version


def test_a_healthy_chat_template_passes(make_session: MakeSession) -> None:
    session = make_session(task=TAGS)
    use_template(THINKING)(pytest.MonkeyPatch(), session)
    assert session.examine(is_thorough=True).is_good


def test_the_quick_checks_are_a_part_of_the_thorough_ones(make_session: MakeSession) -> None:
    session = make_session()
    quick, thorough = (session.examine(is_thorough=is_thorough) for is_thorough in (False, True))
    left_out = {c.name for c in thorough.checks} - {c.name for c in quick.checks}
    assert left_out == {"reference", "cache"}
    assert quick.is_good


def test_what_is_sampled_does_not_depend_on_the_checks(make_session: MakeSession) -> None:
    plain, checked = make_session(), make_session()
    checked.examine(is_thorough=True)
    ours, theirs = (
        [(r.trajectory.ids, r.trajectory.sampler_logps) for r in session.sample(1).rollouts]
        for session in (plain, checked)
    )
    assert ours == theirs


def test_the_record_of_an_environment_that_fails_is_a_warning_at_the_start(
    make_session: MakeSession,
) -> None:
    """The limit of failures of the run decides what becomes of it."""
    fault = {"env": {"name": "toy-faulty", "fault": "reset-raises"}}
    report = make_session(task=fault).examine(is_thorough=False)
    assert report.is_good
    assert [one.name for one in report.of(State.WARNED)] == ["episodes"]


def test_a_report_is_plain_json(make_session: MakeSession, monkeypatch: Patch) -> None:
    import json

    session = make_session()
    encode_again(monkeypatch, session)
    found = json.loads(json.dumps(session.examine(is_thorough=True).to_dict(), allow_nan=False))
    assert not found["is_good"]
    by_name = {one["name"]: one for one in found["checks"]}
    assert by_name.keys() == {check.name for check in CHECKS}
    assert by_name["ledger"]["state"] == "failed"
    keys = {"place", "id", "text", "author", "is_trained", "sampler_logp", "trainer_logp"}
    assert keys <= by_name["ledger"]["excerpt"]["tokens"][0].keys()


def test_a_policy_that_has_converged_is_no_fault(make_session: MakeSession) -> None:
    """Its samples have probability 1: a small change of its weights moves no log-prob."""
    session = make_session()
    with torch.no_grad():
        session.policy.model.get_output_embeddings().weight.mul_(1e5)
    report = session.examine(is_thorough=True)
    (reference,) = [one for one in report.checks if one.name == "reference"]
    assert reference.verdict.state is State.SKIPPED, reference.verdict
