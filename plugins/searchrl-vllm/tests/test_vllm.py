"""Without vLLM: a stand-in answers, so that what is asked and what comes of it can be seen."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from engine_toy import lora_policy, micro_policy
from generator_play import finish, run
from safetensors.torch import load_file, save_file
from searchrl_vllm.command import _write_whole, serve_generator
from searchrl_vllm.generator import make_vllm
from searchrl_vllm.server import _BESIDE, Launch, Server
from searchrl_vllm.weights import send_by_ipc

from searchrl import ConfigError, GenerationFailure, PolicyError
from searchrl.algorithms import TurnStop
from searchrl.engine.sampling import Sampling
from searchrl.programs.setup.planning import plan_run

KEY = "a-secret-of-this-test"
A_B_C = [40, 41, 42]


class StandIn:
    """A server that answers with `scripts` in turn; what it was asked is in `asked`."""

    def __init__(self) -> None:
        self.scripts: list[Any] = []
        """Ids; or a status in their place; or seconds to wait and one of them."""
        self.asked: list[tuple[str, Any]] = []
        self.label, self.version, self.is_forgetful = "default", "0.32.0", False
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *words: object) -> None: ...

            def do_GET(self) -> None:
                self.answer({"version": stand_in.version})

            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(size) or "null")
                self.answer(*stand_in.reply(self.path, body))

            def answer(self, body: Any, status: int = 200) -> None:
                if self.headers.get("authorization") != f"Bearer {KEY}":
                    body, status = {}, 401
                told = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def reply(self, path: str, body: Any) -> tuple[Any, int]:
        self.asked.append((path, body))
        if path == "/update_weight_version":
            self.label = body["new_version"]
        if path != "/inference/v1/generate":
            return {"success": True}, 200
        script = self.scripts.pop(0)
        if isinstance(script, tuple):
            time.sleep(script[0])
            script = script[1]
        if isinstance(script, int):
            return {"error": "of the script"}, script
        if self.is_forgetful:
            self.label, self.is_forgetful = "default", False
        choice = {
            "token_ids": script,
            "finish_reason": "stop",
            "logprobs": {"content": [{"logprob": -0.5}] * len(script)},
            "weight_versions": [{"version": self.label, "start": 0, "end": len(script)}],
        }
        return {"choices": [choice]}, 200

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == path]


Make = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[StandIn]:
    made = StandIn()
    yield made
    made.server.shutdown()


@pytest.fixture
def make(server: StandIn, policy: Any, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("SEARCHRL_VLLM_KEY", KEY)

    def made(of: Any = policy, sampling: Sampling | None = None, **settings: Any) -> Any:
        return make_vllm(of, sampling or Sampling(), **{"address": server.address} | settings)

    return made


def ids_of(policy: Any, text: str) -> list[int]:
    return [policy.tokenizer.encode(letter)[0] for letter in text]


def test_a_request_asks_for_the_whole_distribution_and_the_policys_own_ends(
    make: Make, server: StandIn, policy: Any
) -> None:
    server.scripts = [A_B_C]
    (turn,) = run(make(sampling=Sampling(0.7)), [[5, 6]], [9], stops=["</a>"], max_tokens=3)
    assert turn.ids == tuple(A_B_C) and turn.logps == (-0.5,) * 3
    assert turn.reason is TurnStop.MAX_TOKENS
    (body,) = server.bodies("/inference/v1/generate")
    asked = body["sampling_params"]
    assert body["token_ids"] == [5, 6] and asked["max_tokens"] == 3 and asked["stop"] == ["</a>"]
    assert asked["temperature"] == 0.7 and not {"top_k", "top_p", "min_p"} & asked.keys()
    assert asked["stop_token_ids"] == sorted(policy.eos_ids) and asked["ignore_eos"]
    assert 0 <= asked["seed"] < 1 << 63


def test_where_a_turn_ends_is_decided_by_its_ids(make: Make, server: StandIn, policy: Any) -> None:
    """vLLM may pause too early, and go on too long."""
    early, late = ids_of(policy, "ab"), ids_of(policy, "xyqq")
    server.scripts = [early, late]
    (turn,) = run(make(), [[5]], [1], stops=["xy"], max_tokens=50)
    assert turn.ids == (*early, *late[:2]) and turn.reason is TurnStop.STOP_STRING
    first, second = server.bodies("/inference/v1/generate")
    assert second["token_ids"] == [5, *early] and second["sampling_params"]["max_tokens"] == 48
    assert first["sampling_params"]["seed"] != second["sampling_params"]["seed"]


def test_what_was_not_answered_is_asked_again_and_what_was_is_not(
    make: Make, server: StandIn
) -> None:
    generator = make(num_slots=1)
    server.scripts = [A_B_C, 500, A_B_C]
    handles = generator.open([5], 2, [1, 2])
    for handle in handles:
        generator.submit(handle, [], (), 3)
    turns = finish(generator, handles)
    assert [turn.ids for turn in turns] == [tuple(A_B_C)] * 2
    first, lost, again = server.bodies("/inference/v1/generate")
    assert lost == again != first
    assert len(server.bodies("/update_weight_version")) == 2  # it may be another server


def test_an_answer_that_comes_after_a_loss_is_dropped_and_asked_again(
    make: Make, server: StandIn
) -> None:
    """Its label is older than that of the weights that were sent since."""
    server.scripts = [(0.3, [7, 7, 7]), 500, A_B_C, A_B_C]
    turns = run(make(), [[5], [6]], [1, 2], max_tokens=3)
    assert [turn.ids for turn in turns] == [tuple(A_B_C)] * 2
    assert len(server.bodies("/update_weight_version")) == 2


def test_a_server_that_hangs_counts_as_lost(make: Make, server: StandIn) -> None:
    server.scripts = [(2.0, A_B_C), [9, 9, 9]]
    (turn,) = run(make(timeout_s=0.5), [[5]], [1], max_tokens=3)
    assert turn.ids == (9, 9, 9)


def test_tokens_of_other_weights_are_not_taken(make: Make, server: StandIn, policy: Any) -> None:
    """A server that somebody started again has the weights that it was started with."""
    server.scripts, server.is_forgetful = [[7, 7, 7], A_B_C], True
    policy.version = 4
    (turn,) = run(make(), [[5]], [1], max_tokens=3)
    assert turn.ids == tuple(A_B_C) and turn.version == 4
    labels = [one["new_version"] for one in server.bodies("/update_weight_version")]
    assert len(set(labels)) == 2 and all(label.endswith("/4") for label in labels)


def test_a_server_that_is_lost_again_and_again_ends_the_run(make: Make, server: StandIn) -> None:
    server.scripts = [500] * 9
    with pytest.raises(GenerationFailure, match=r"500.*of the script"):
        run(make(), [[5]], [1])


def test_every_version_of_an_adapter_has_a_folder_and_a_name_of_its_own(
    make: Make, server: StandIn, micro_model: Path
) -> None:
    policy = lora_policy(micro_model)
    generator = make(policy)
    for version in (1, 2):
        policy.version = version
        generator.sync(policy)
        generator.sync(policy)  # nothing new, so nothing travels
    loaded = server.bodies("/v1/load_lora_adapter")
    (unloaded,) = server.bodies("/v1/unload_lora_adapter")
    assert len({one["lora_name"] for one in loaded}) == len(loaded) == 2
    assert unloaded["lora_name"] == loaded[0]["lora_name"]
    old, new = (Path(one["lora_path"]) for one in loaded)
    assert not old.exists() and (new / "adapter_model.safetensors").is_file()
    assert [one.name for one in new.parent.iterdir()] == [new.name]
    server.scripts = [A_B_C]
    run(generator, [[5]], [1], max_tokens=3)
    assert server.bodies("/inference/v1/generate")[0]["model"] == loaded[1]["lora_name"]


def test_full_weights_are_read_from_a_folder_with_an_output_matrix_of_its_own(
    make: Make, server: StandIn, policy: Any
) -> None:
    make().sync(policy)
    names = [path.partition("?")[0] for path, _ in server.asked]
    assert names[:3] == ["/pause", "/collective_rpc", "/reset_prefix_cache"]
    assert names[3:] == ["/resume", "/update_weight_version"]
    (reload,) = server.bodies("/collective_rpc")
    folder = Path(reload["kwargs"]["weights_path"])
    assert not json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
    assert (folder / "output.safetensors").is_file()


def test_on_a_gpu_handles_travel_and_weights_stay(make: Make, policy: Any) -> None:
    policy.device = torch.device("cuda")
    launch = make(python="python", address="")._weights.server.launch
    assert (launch.by_ipc, launch.is_cpu) == (True, False)


REBUILD = """
import base64, json, pickle, sys
from torch.multiprocessing.reductions import rebuild_cuda_tensor, rebuild_tensor

told = json.load(sys.stdin)
handles = pickle.loads(base64.b64decode(told["ipc_handles_pickled"]))
tensors = [
    (rebuild_tensor if len(given) == 3 else rebuild_cuda_tensor)(*given)
    for given in (given for by_card in handles for given in by_card.values())
]
print(json.dumps({n: t.double().sum().item() for n, t in zip(told["names"], tensors)}))
"""


def test_another_process_reads_the_weights_that_a_card_holds(
    device: torch.device, micro_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through handles; a CPU has none, so there the weights themselves travel."""
    if device.type == "cpu":
        properties = SimpleNamespace(uuid="a-card")
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(torch.cuda, "ipc_collect", lambda: None)
    policy, read = micro_policy(micro_model, device=device), dict[str, float]()

    def post(path: str, body: Any = None) -> Any:
        if path == "/update_weights":
            words, given = [sys.executable, "-c", REBUILD], json.dumps(body["update_info"])
            done = subprocess.run(words, input=given, capture_output=True, text=True, check=True)
            read.update(json.loads(done.stdout))

    send_by_ipc(SimpleNamespace(post=post), policy)  # type: ignore[arg-type]
    expected = {name: float(p.double().sum()) for name, p in policy.named_parameters()}
    expected["lm_head.weight"] = expected["model.embed_tokens.weight"]
    assert read == pytest.approx(expected, rel=1e-6)


def test_a_model_without_a_tensor_is_not_served(micro_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(micro_model, tmp_path / "broken")
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    del tensors["model.norm.weight"]
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(PolicyError, match=r"not those of its model: \['model.norm.weight'\]"):
        _write_whole(str(folder), "float32", tmp_path / "served")


def test_an_unknown_version_is_said_in_one_sentence(make: Make, server: StandIn) -> None:
    server.version = "0.99.1"
    with pytest.warns(UserWarning, match=r"vLLM 0\.99\.1 is not known to work.*0\.32\.0"):
        make().sync(make().policy)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"address": ""}, ConfigError, r"engine\.generator\.python"),
        ({"python": "python"}, ConfigError, r"one of engine\.generator\.python"),
        ({"args": ["--x"]}, ConfigError, r"engine\.generator\.args"),
        ({"sampling": Sampling(top_k=5)}, PolicyError, r"sampling\.top_k=0"),
    ],
)
def test_what_it_cannot_do_is_refused(
    make: Make, settings: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        make(**settings)


def test_a_wrong_key_says_which_variable_has_it(
    make: Make, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCHRL_VLLM_KEY", "another")
    with pytest.raises(ConfigError, match=r"401.*SEARCHRL_VLLM_KEY"):
        make().sync(policy)


def test_a_python_without_vllm_is_named(tmp_path: Path) -> None:
    launch = Launch("/bin/false", "float32", 64)
    server = Server(launch, "", KEY, tmp_path / "log", 60.0)
    with pytest.raises(PolicyError, match="ended while it started"):
        server.ensure(lambda: "model")
    server.launch = Launch("/nowhere/python", "float32", 64)
    with pytest.raises(PolicyError, match=r"/nowhere/python.*cannot be run"):
        server.ensure(lambda: "model")


def test_every_route_of_a_server_needs_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that change weights too, which vLLM's own key leaves open."""
    monkeypatch.setenv("SEARCHRL_VLLM_KEY", KEY)
    spec = importlib.util.spec_from_file_location("guard", _BESIDE / "searchrl_vllm_guard.py")
    assert spec is not None and spec.loader is not None
    guard = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(guard)
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append("app")

    async def send(message: Any) -> None:
        seen.append(message.get("status"))

    def ask(*headers: tuple[bytes, bytes]) -> list[Any]:
        seen.clear()
        scope = {"type": "http", "path": "/collective_rpc", "headers": headers}
        asyncio.run(guard.Guard(app)(scope, None, send))
        return list(seen)

    assert ask() == ask((b"authorization", b"Bearer wrong")) == [401, None]
    assert ask((b"authorization", f"Bearer {KEY}".encode())) == ["app"]


def test_a_server_ends_with_the_run_that_started_it() -> None:
    """However that ends: a kill closes the server's standard input, too."""
    started = subprocess.Popen(
        [sys.executable, "-c", "import searchrl_vllm_guard, time; time.sleep(60)"],
        env={"PYTHONPATH": str(_BESIDE), "SEARCHRL_VLLM_ENDS_WITH_STDIN": "1"},
        stdin=subprocess.PIPE,
    )
    assert started.stdin is not None and started.poll() is None
    started.stdin.close()
    assert started.wait(30) == -signal.SIGTERM


def test_serving_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEARCHRL_VLLM_KEY", raising=False)
    done = CliRunner().invoke(serve_generator, ["--python", "python", "--model", "m"])
    assert isinstance(done.exception, ConfigError) and "SEARCHRL_VLLM_KEY" in str(done.exception)


def test_the_default_algorithm_corrects_for_another_sampler() -> None:
    """`tis`: old log-probs are the trainer's, and the sampler's difference is weighed."""
    vllm = {"engine": {"generator": {"name": "vllm"}}, "model": "tiny"}
    assert plan_run(vllm).config.algorithm.name == "tis"
    assert plan_run(vllm, {"algorithm": {"name": "dapo"}}).config.algorithm.name == "dapo"
    assert plan_run({"model": "tiny"}).config.algorithm.name == "grpo"
