"""The memory plan: exact where it counts tensors, within a factor where it predicts a pass."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import complaint, succeed
from engine_toy import micro_policy, most_bytes, token_logps
from pytest import MonkeyPatch
from qwen3_toy import QWEN3_4B, SMALL, save_qwen3
from transformers import Qwen3Config

from searchrl.algorithms.builtin import make_grpo, make_grpo_turns
from searchrl.algorithms.record import Critic
from searchrl.config import RunConfig, build_config, load_preset, load_yaml, merge, parse_sets
from searchrl.engine.memory import forecast, machine
from searchrl.engine.memory.footprint import SHAPES, Footprint, find_footprint
from searchrl.engine.memory.forecast import foresee_memory, tell_peak, watch_memory
from searchrl.engine.memory.plan import CUDA_CONTEXT, MemoryPlan, format_bytes, parse_bytes
from searchrl.engine.model import head
from searchrl.engine.model.layout import TokenRow, TokenTree, pack
from searchrl.engine.model.loading import ResolvedModel
from searchrl.engine.model.optimizers import OptimizerName, make_optimizer
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.slots import CacheShape, SlotCache
from searchrl.errors import ConfigError, PolicyError
from searchrl.programs import benchmark

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def settings(folder: Path, **more: Any) -> RunConfig:
    base = {"model": {"name": str(folder), "dtype": "float32", "lora_r": 4}}
    return build_config(merge(base, more))


def model_of(config: RunConfig) -> ResolvedModel:
    return ResolvedModel(config.model.name, None, is_tiny=False)


def footprint_of(config: RunConfig) -> Footprint:
    return find_footprint(config.model, model_of(config), CPU, is_offline=True)


def plan_of(
    config: RunConfig, critic: Critic | None = None, device: torch.device = CPU
) -> MemoryPlan:
    plan = foresee_memory(
        config, model_of(config), device, replace(make_grpo(), beta=0.0, critic=critic)
    )
    assert isinstance(plan, MemoryPlan)
    return plan


def parts(plan: MemoryPlan) -> dict[str, int]:
    return {part.name: part.num_bytes for part in plan.parts}


def bytes_of(*tensors: torch.Tensor) -> int:
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize(
    ("adapter", "quantize"), [("lora", "none"), ("full", "none"), ("lora", "nf4")]
)
def test_weights_and_adapters_are_counted_to_the_byte(
    small_qwen3: Path, adapter: str, quantize: str
):
    model = {"adapter": adapter, "quantize": quantize}
    policy = micro_policy(small_qwen3, lora_r=4, **model)
    found = parts(plan_of(settings(small_qwen3, model=model)))
    base = [p for n, p in policy.model.named_parameters() if "lora_" not in n]
    scales = [
        scale
        for p in base
        if p.dtype == torch.uint8
        for scale in (p.quant_state.absmax, p.quant_state.state2.absmax)
    ]
    assert found["weights"] == bytes_of(*base, *scales)
    trained = policy.parameters if adapter == "lora" else []
    assert found.get("adapters", 0) == bytes_of(*trained)
    assert found["gradients"] == 2 * bytes_of(*policy.parameters)
    footprint = footprint_of(settings(small_qwen3, model=model))
    assert sum(footprint.trained_sizes) == policy.num_parameters[0]
    assert footprint.vocab_size == policy.vocab_size
    assert footprint.hidden_per_token == 4 * policy.base_model.config.hidden_size


SIZES: dict[str, Any] = {
    "rollout": {"batch_size": 2, "max_total_tokens": 100, "prompts_per_step": 2, "group_size": 2},
    "eval": {"batch_size": 3},
    "optim": {"micro_batch_tokens": 200},
    "model": {"max_context": 95},
}
MADE_UP = Footprint(
    is_lora=False, plain_weights=1000, layer_weights=200, nf4_weights=400, trained_sizes=(10, 5000),
    trained_itemsize=2, cache_per_token=3, num_layers=4, vocab_size=50, max_positions=90,
    hidden_size=7, hidden_per_token=7, saved_layer_per_token=11, saved_rest_per_token=13,
    work_per_token=17,
)  # fmt: skip


def test_a_critic_counts(small_qwen3: Path) -> None:
    config = settings(small_qwen3)
    critic = Critic(lambda width: torch.nn.Linear(width, 1), lr=1e-3)
    width = footprint_of(config).hidden_size
    found = parts(plan_of(config, critic=critic))
    assert found.pop("value head") == 4 * 5 * (width + 1) and found == parts(plan_of(config))


def test_a_plan_by_hand() -> None:
    """3 slots of 90 tokens, micro-batches of 200 tokens; 5,010 numbers of 2 bytes are trained."""

    def plan(footprint: Footprint = MADE_UP, room: int | None = None, **more: Any) -> MemoryPlan:
        config = build_config(merge(SIZES, more))
        return forecast.predict(config, footprint, CPU, available=room, has_reference=True)

    always = {"weights": 1000, "reference": 1000, "optimiser state": 5010 * 4 + 8}
    sampling = {"KV slots": 3 * 91 * 3, "sampling": 4 * 600 + 3 * 90 * (17 + 14)}
    update = {"gradients": 2 * 10_020, "activations": 200 * (4 * 11 + 13)}
    head, layer = 3 * 4 * 50 * 200 + 7 * (400 + 50), 200 * 17
    assert parts(plan()) == {**always, **sampling, **update, "layer": layer, "head chunk": head}
    total = sum(always.values()) + sum(update.values()) + head
    assert plan().total == total
    assert plan(room=total).fits and not plan(room=total - 1).fits
    adapted = parts(plan(replace(MADE_UP, is_lora=True)))
    assert adapted["adapters"] == 10_020 and "reference" not in adapted
    assert adapted["head chunk"] == head - 7 * 50
    checked = plan(room=1, model={"gradient_checkpointing": True})
    assert parts(checked)["activations"] == 200 * (4 * 7 + 13)
    assert parts(checked)["layer"] == 200 * (17 + 11)
    # A micro-batch holds one whole rollout at least, and no more than a step has.
    for asked, tokens in ((10, 90), (1000, 360)):
        found = parts(plan(optim={"micro_batch_tokens": asked}))
        assert found["layer"] == 17 * tokens
    many = parts(plan(eval={"batch_size": 200}))
    assert many["sampling"] == 4 * 4 * 50 * 200 + 2048 * (17 + 14)


@pytest.mark.parametrize("name", ["adamw", "adamw8bit"])
@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_optimiser_state_is_counted_to_the_byte(
    small_qwen3: Path, adapter: str, name: OptimizerName
):
    policy = micro_policy(small_qwen3, adapter=adapter, lora_r=4)
    optimizer: Any = make_optimizer(name, [{"params": policy.parameters, "lr": 1e-3}])
    for parameter in policy.parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    states = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
    # Counters are tensors of one number whose storage torch may round up: counted as numbers.
    held = {t.untyped_storage().data_ptr(): t.numel() * t.element_size() for t in states}
    config = settings(small_qwen3, model={"adapter": adapter}, optim={"optimizer": name})
    assert parts(plan_of(config))["optimiser state"] == sum(held.values())


def test_slots_at_full_length_are_counted_to_the_byte(small_qwen3: Path):
    rollout = {"batch_size": 5, "max_total_tokens": 300}
    config = settings(small_qwen3, rollout=rollout, eval={"batch_size": 3})
    policy = micro_policy(small_qwen3)
    cache = SlotCache(CacheShape.of(policy.base_model), 5, 300, CPU)
    cache.reserve(300)
    tensors = [t for number in range(cache.shape.num_layers) for t in cache.layer(number)]
    assert parts(plan_of(config))["KV slots"] == cache.num_bytes == bytes_of(*tensors)
    larger = config.model_copy(update={"eval": config.eval.model_copy(update={"batch_size": 10})})
    assert parts(plan_of(larger))["KV slots"] == 2 * cache.num_bytes


def probed_row(num_tokens: int, num_probes: int = 0) -> list[TokenRow]:
    """A long rollout, and as many short texts behind a part of it each."""
    ids = (torch.arange(num_tokens) * 7 % 300).tolist()
    rows = [TokenRow(ids, [False] * 5 + [True] * (num_tokens - 5))]
    for number in range(num_probes):
        begin = ids[: num_tokens * (number + 1) // (num_probes + 1)]
        rows.append(TokenRow([*begin, *[301] * 10], [False] * len(begin) + [True] * 10))
    return rows


def peak_of_update(policy: Policy, rows: list[TokenRow], times: int = 1) -> int:
    """Most bytes of a forward and backward pass over packed rollouts, so many times.

    By torch's profiler; on a card, by its own count.
    """

    def update(rows: list[TokenRow]) -> None:
        groups = [number for number in range(times) for _ in rows]
        with policy.updating(), policy.attending():
            layout = pack(rows * times, policy.device, groups)
            logps = policy.logps(layout, with_entropy=True)
            logps.logp_N.sum().backward()
        policy.model.zero_grad()

    probe = torch.tensor([rows[0].ids[:6]])
    with torch.no_grad():
        token_logps(policy, probe, probe > 0)  # the first pass also tries the head
    update(probed_row(9))  # and the first backward pass makes room for kernels
    if policy.device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        update(rows)
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(profile_memory=True) as profile:
        update(rows)
    return most_bytes(profile)


LARGE = SMALL | dict(
    hidden_size=1024, intermediate_size=3072, num_hidden_layers=6, num_attention_heads=16,
    num_key_value_heads=8, head_dim=64,
)  # fmt: skip
"""Beside it, what the kernels of a card take for themselves is little."""


@pytest.mark.parametrize(
    ("model", "is_checkpointing", "sizes"),
    [
        ("lora", True, (1200,)), ("full", False, (1200,)), ("nf4", True, (300,)),
        ("bf16", False, (300,)), ("lora", False, (900, 30)),
    ],
)  # fmt: skip
def test_memory_is_predicted_within_15_percent(
    device: Any, micro_model: Path, tmp_path: Path, monkeypatch: MonkeyPatch,
    model: str, is_checkpointing: bool, sizes: tuple[int, ...],
):  # fmt: skip
    """On a CPU that of the update alone, without the weights."""
    if model == "nf4":
        pytest.importorskip("bitsandbytes")
    monkeypatch.setitem(head.CHUNK_BYTES, "cpu", 1 << 15)
    shape, times = (LARGE, 8) if device.type == "cuda" else (SMALL, 1)
    folder = save_qwen3(tmp_path, micro_model, **shape)
    chosen = {
        "adapter": "full" if model == "full" else "lora",
        "quantize": "nf4" if model == "nf4" else "none",
        "gradient_checkpointing": is_checkpointing,
        "dtype": "bfloat16" if model == "bf16" else "float32",
    }
    rows = probed_row(*sizes)
    limit = 1 + TokenTree(rows).num_tokens
    more = {"rollout": {"max_total_tokens": limit}, "optim": {"micro_batch_tokens": limit * times}}
    plan = plan_of(settings(folder, model=chosen, **more), device=device)
    # The gradients of a micro-batch, without the sum of those before it.
    predicted = plan.phases["update"] - parts(plan)["gradients"] // 2
    policy = micro_policy(folder, device=device, lora_r=4, **chosen)
    weights = parts(plan)["weights"] if device.type == "cuda" else 0
    measured = weights + peak_of_update(policy, rows, times)
    assert measured / 1.15 <= predicted + weights <= measured * 1.15


class TestARunThatDoesNotFit:
    def refusal(self, monkeypatch: MonkeyPatch, config: RunConfig, room: int) -> str:
        monkeypatch.setattr(forecast, "available", lambda device: room)
        assert not plan_of(config).fits
        with pytest.raises(PolicyError) as caught:
            watch_memory(config, model_of(config), CPU, replace(make_grpo(), beta=0.0))
        return str(caught.value)

    def test_is_refused_with_settings_that_take_less(
        self, small_qwen3: Path, monkeypatch: MonkeyPatch
    ):
        config = settings(small_qwen3, model={"adapter": "lora"})
        need = plan_of(config).total
        text = self.refusal(monkeypatch, config, need // 2)
        assert f"needs about {format_bytes(need)} on cpu, where" in text
        largest = max(plan_of(config).parts, key=lambda part: part.num_bytes)
        assert f"available ({largest.name} {format_bytes(largest.num_bytes)}, " in text
        assert "--set" in text
        assert "choose a smaller model" in self.refusal(monkeypatch, config, 1000)

    @pytest.mark.parametrize("share", [0.9, 0.35])
    @pytest.mark.parametrize("adapter", ["lora", "full"])
    def test_what_is_said_to_fit_does(
        self, small_qwen3: Path, monkeypatch: MonkeyPatch, share: float, adapter: str
    ):
        config = settings(small_qwen3, model={"adapter": adapter})
        room = int(share * plan_of(config).total)
        monkeypatch.setattr(forecast, "available", lambda device: room)
        refused = plan_of(config)
        words = re.findall(r"--set (\S+)", refused.remedy)
        assert words and refused.has_remedy
        assert plan_of(build_config(config.to_dict(), parse_sets(words))).fits
        for word in words:  # none of them could be left out
            fewer = parse_sets([one for one in words if one != word])
            is_size = word.split("=")[0].endswith("batch_size")
            assert is_size or not plan_of(build_config(config.to_dict(), fewer)).fits

    def test_a_ready_preset_comes_first(self, small_qwen3: Path, monkeypatch: MonkeyPatch):
        config = settings(small_qwen3)
        monkeypatch.setattr(forecast, "available", lambda device: plan_of_small.total)
        smaller = {"rollout": {"batch_size": 1}, "eval": {"batch_size": 1}}
        small = build_config(config.to_dict(), smaller, {"optim": {"micro_batch_tokens": 1}})
        plan_of_small = forecast.predict(small, footprint_of(small), CPU, available=None)
        made = replace(make_grpo(), beta=0.0)
        plan = foresee_memory(config, model_of(config), CPU, made, presets=[("mine", small)])
        assert isinstance(plan, MemoryPlan) and "--set preset=mine" in plan.remedy


def test_prediction_and_peak_are_compared_in_one_line(small_qwen3: Path, monkeypatch: MonkeyPatch):
    monkeypatch.setattr(forecast, "peak_memory", lambda device: 3 << 29)
    plan, notes = plan_of(settings(small_qwen3)), list[str]()
    cuda = torch.device("cuda")
    for known, device in ((plan, cuda), ("not predicted (why)", cuda), (plan, CPU)):
        tell_peak(known, device, notes.append)
    assert notes == [f"memory: predicted {format_bytes(plan.total)}, peak 1.5 GB"]


def test_a_gpu_says_what_it_has_and_is_waited_for(small_qwen3: Path, monkeypatch: MonkeyPatch):
    card, calls = SimpleNamespace(name="a card", total_memory=9), list[torch.device]()
    facts = {"mem_get_info": (7, 9), "max_memory_allocated": 5, "get_device_properties": card}
    for name, fact in facts.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, fact=fact: fact)
    for name in ("reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, calls.append)
    assert (machine.available(CUDA), machine.peak_memory(CUDA)) == (7, 5)
    told = machine.describe_machine(CUDA)
    assert (told["gpu"], told["gpu_memory"]) == ("a card", 9)
    monkeypatch.setattr(forecast, "foresee_memory", lambda *given, **more: "not predicted (why)")
    config = settings(small_qwen3)
    watch_memory(config, model_of(config), CUDA, make_grpo())
    benchmark._now(CUDA)
    assert calls == [CUDA, CUDA]


WHOLE_4B = QWEN3_4B | {"num_hidden_layers": 36}
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="module")
def counted() -> dict[str, Footprint]:
    return {}


ON_16_GB = {"model": {"quantize": "nf4"}, "rollout": {"batch_size": 16}, "eval": {"batch_size": 16}}


@pytest.mark.parametrize(
    ("recipe", "shape", "card_gb"),
    [
        ([load_preset("qwen3_4b_qlora")], WHOLE_4B, 24),
        ([load_yaml(EXAMPLES / "qwen3_4b_24gb.yaml"), ON_16_GB], WHOLE_4B, 16),
        ([load_yaml(EXAMPLES / "qwen3_4b_80gb.yaml")], WHOLE_4B, 80),
    ],
)
def test_recipes_fit_the_cards_they_are_for(
    tmp_path: Path, counted: Any, recipe: list[Any], shape: dict[str, Any], card_gb: int
):
    Qwen3Config(**shape).save_pretrained(tmp_path)
    config = build_config(*recipe)
    cuda, resolved = torch.device("cuda"), ResolvedModel(str(tmp_path), None, is_tiny=False)
    # Four bits are left to the plan.
    key = config.model.model_dump_json(exclude={"name", "quantize"}) + str(shape)
    if key not in counted:
        counted[key] = find_footprint(config.model, resolved, cuda, is_offline=True)
    needed = forecast.predict(config, counted[key], cuda, available=None).total
    # What a card says is not all free: the CUDA context alone takes half a gigabyte.
    assert 0.5 * card_gb < needed / 2**30 <= card_gb - 0.6


SMALL_MODELS = ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B")
TRAINED = {
    "sft": None,
    "grpo_turns": make_grpo_turns(),
    "ppo": replace(make_grpo(), critic=Critic(lambda width: torch.nn.Linear(width, 129), lr=1e-3)),
}


@pytest.mark.parametrize("name", SMALL_MODELS)
@pytest.mark.parametrize("trained", TRAINED)
def test_small_models_fit_4_gb_and_those_of_twice_the_size_do_not(
    tmp_path: Path, monkeypatch: MonkeyPatch, counted: Any, name: str, trained: str
):
    shape = json.loads((SHAPES / f"{name.replace('/', '--')}.json").read_text("utf-8"))
    twice = shape | {key: 2 * shape[key] for key in ("num_hidden_layers", "vocab_size")}
    config = build_config(load_preset("qwen_small_4gb"))
    model = ResolvedModel(str(tmp_path), None, is_tiny=False)
    plans = []
    for content in (shape, twice):
        (tmp_path / "config.json").write_text(json.dumps(content), "utf-8")
        if (key := str(content)) not in counted:
            counted[key] = find_footprint(config.model, model, CUDA, is_offline=True)
        monkeypatch.setattr(forecast, "find_footprint", lambda *_, f=counted[key], **__: f)
        plan = foresee_memory(config, model, CUDA, TRAINED[trained], room=(4 << 30) - CUDA_CONTEXT)
        assert isinstance(plan, MemoryPlan)
        plans.append(plan)
    assert [plan.fits for plan in plans] == [True, False]
    assert ("value head" in parts(plans[0])) == (trained == "ppo")
    assert plans[1].has_remedy and not (trained == "sft" and "rollout." in plans[1].remedy)


def test_shapes_that_are_known_are_those_of_the_presets():
    known = {path.stem.replace("--", "/") for path in SHAPES.iterdir()}
    assert known == {"Qwen/Qwen3-4B", *SMALL_MODELS}
    model = ResolvedModel(SMALL_MODELS[1], None, is_tiny=False)
    assert find_footprint(RunConfig().model, model, CUDA, is_offline=True).num_layers == 28


def test_model_that_is_not_here_says_how_to_get_its_shape():
    model = ResolvedModel("nobody/nothing", None, is_tiny=False)
    with pytest.raises(PolicyError, match="hf download nobody/nothing config.json"):
        find_footprint(RunConfig().model, model, CUDA, is_offline=True)


def test_sizes_are_read_and_written_as_people_do():
    texts = ("24", " 4.5 gb ", "8192MiB", "512mb")
    assert [parse_bytes(text) for text in texts] == [24 << 30, 9 << 29, 8 << 30, 1 << 29]
    written = [format_bytes(size) for size in (3 << 30, 1 << 29, 3 << 19, 1 << 19, 512)]
    assert written == ["3.0 GB", "0.5 GB", "1.5 MB", "0.5 MB", "0.5 kB"]


@pytest.mark.parametrize("text", ["much", "-3GB", "0"])
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(ConfigError, match="24GB"):
        parse_bytes(text)


class TestDryRunForAGpuElsewhere:
    @pytest.fixture
    def flags(self, micro_model: Path, tmp_path: Path) -> list[str]:
        folder = save_qwen3(tmp_path / "m", micro_model, **SMALL)
        return ["--model", str(folder), "--dry-run"]

    def test_verdict_is_last_and_settings_are_shown_if_asked_for(self, flags: list[str]):
        lines = succeed("train", *flags, "--gpu-memory", "24GB").stdout.splitlines()
        assert lines[-1].startswith("fits: ") and "of 23.4 GB," in lines[-1]
        assert "device: cuda" in lines and len(lines) < 20

    def test_weights_are_shared_out_between_gpus(self, flags: list[str]):
        more = ["--gpu-memory", "24GB", "--gpus", "4", "--set", "model.adapter=full", "--json"]
        held, shared = (
            json.loads(succeed("train", *flags, *more, "--set", f"engine.sharding={name}").stdout)
            for name in ("ddp", "fsdp2")
        )
        before, after = held["memory"]["parts"], shared["memory"]["parts"]
        assert all(after[n] == before[n] // 4 for n in ("weights", "optimiser state", "gradients"))
        assert after["gathered weights"] == before["weights"]
        assert "add --gpu-memory" in complaint("train", *flags, "--gpus", "4")

    def test_flag_alone_and_beside_another_device_is_refused(self, flags: list[str]):
        alone = complaint("train", *flags[:2], "--gpu-memory", "24GB")
        assert "add --dry-run" in alone
        text = complaint("train", *flags, "--gpu-memory", "24GB", "--device", "cpu")
        assert "leave out --device cpu" in text


@pytest.mark.parametrize(
    ("files", "room"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 7 kB\n"}, 7 * 1024),
        ({"sys/fs/cgroup/memory.max": "5000\n", "sys/fs/cgroup/memory.current": "904\n"}, 4096),
    ],
)
def test_a_container_may_use_what_is_left_of_its_own(
    files: dict[str, str], room: int | None, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "Path", lambda name: tmp_path / name[1:])
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.available(CPU) == room
    assert machine.available(torch.device("meta")) is None
    for host, own in ((6, 2), (2, 6)):  # the lesser of both
        monkeypatch.setattr(machine, "_status_fields", lambda path, n=host: {"MemAvailable": n})
        monkeypatch.setattr(machine, "_cgroup_room", lambda n=own: n)
        assert machine.available(CPU) == 2
