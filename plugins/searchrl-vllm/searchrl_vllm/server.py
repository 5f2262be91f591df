"""A vLLM server: how it is started in another Python, asked, watched and started again.

What it is asked is `wire`, which weights it has is `weights`.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx2

from searchrl import PolicyError
from searchrl_vllm.wire import KNOWN_VERSIONS, ServerLost, ask

KEY = "SEARCHRL_VLLM_KEY"
"""The environment variable with the key of a server."""
MODEL = "policy"
"""The name of the model without an adapter."""

_BESIDE = Path(__file__).resolve().parent / "beside"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that vLLM has."""
_START_S, _RETURN_S, _HEALTH_S, _END_S = 1800.0, 60.0, 30.0, 15.0
"""Time for a server to start, to come back at its address, to say it is well, to end."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Settings of a server. `lora_rank` 0: it serves the model's own weights."""

    python: str
    dtype: str
    max_length: int
    lora_rank: int = 0
    by_ipc: bool = False
    """Weights come from the memory of the same GPU (vLLM's weight transfer)."""
    args: tuple[str, ...] = ()
    is_cpu: bool = False

    def command(self, model: str, host: str, port: int) -> list[str]:
        """The command line; `args` are last, so they win."""
        words = [self.python, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
        words += ["--served-model-name", MODEL, "--host", host, "--port", str(port)]
        words += ["--dtype", self.dtype, "--max-model-len", str(self.max_length)]
        words += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
        words += ["--enable-prefix-caching", "--enable-scale-out"]
        words += ["--middleware", "searchrl_vllm_guard.Guard", "--disable-uvicorn-access-log"]
        if self.lora_rank:
            rank = next((one for one in _RANKS if one >= self.lora_rank), self.lora_rank)
            words += ["--enable-lora", "--max-lora-rank", str(rank)]
        if self.is_cpu:
            # A seeded draw cannot be taken back there, as it must for a prompt read in parts.
            words += ["--no-enable-chunked-prefill"]
            words += ["--max-num-batched-tokens", str(max(8192, self.max_length))]
        if self.by_ipc:
            words += ["--weight-transfer-config", json.dumps({"backend": "ipc"})]
        return [*words, *self.args]

    def environment(self, key: str) -> dict[str, str]:
        """Its environment: ours, with what switches on the routes that are used."""
        # Ours is of another Python.
        without = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        return {
            **{name: value for name, value in os.environ.items() if name not in without},
            KEY: key,
            "PYTHONPATH": str(_BESIDE),
            "VLLM_SERVER_DEV_MODE": "1",  # the routes that change weights
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "SEARCHRL_VLLM_ENDS_WITH_STDIN": "1",
            **({"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"} if self.by_ipc else {}),
        }

    def start(
        self, model: str, host: str, port: int, key: str, log: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with this one; `log` is where it writes (None: where we do)."""
        return subprocess.Popen(
            self.command(model, host, port),
            env=self.environment(key),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=None if log is None else subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C ends us, and we end it with its children
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server and its children."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Server:
    """One server, at an address or started here; asked from a thread of its own.

    Args:
        launch: how to start it; None: somebody else does.
        address: where it is, such as `http://localhost:8200`; "": it gets a free port.
        key: sent with every request.
        log: the file for what it writes.
        timeout_s: how long an answer may take.
    """

    def __init__(
        self, launch: Launch | None, address: str, key: str, log: Path, timeout_s: float
    ) -> None:
        self.launch, self.address = launch, address
        self.key, self._log, self._timeout_s = key, log, timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._client: httpx2.AsyncClient | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True).start()
        atexit.register(self.stop)

    def ask(self, method: str, path: str, body: Any = None) -> Future[Any]:
        """See `wire.ask`; cancelling the future ends the request at the server, too."""
        if self._client is None:
            raise ServerLost("vLLM has not been started")
        return asyncio.run_coroutine_threadsafe(ask(self._client, method, path, body), self._loop)

    def post(self, path: str, body: Any = None) -> Any:
        """Ask and wait."""
        return self.ask("POST", path, body).result()

    def ensure(self, find_model: Callable[[], str]) -> bool:
        """Have a server that answers; returns whether it was started now.

        Args:
            find_model: the folder or name to start it with, if it has to be.

        Raises:
            PolicyError: it cannot be started, or is not at its address.
        """
        if self._is_well():
            return False
        if self.launch is None:
            self._connect(self.address)
            self._wait(_RETURN_S)
        else:
            self.stop()
            self._start(self.launch, find_model())
        self._check_version()
        return self.launch is not None

    def join(self, address: str, key: str) -> None:
        """Ask the server that another process of the run has."""
        if self.address != address or self._client is None:
            self.key = key
            self._connect(address)

    def stop(self) -> None:
        """End the process that was started here, with its children."""
        process, self._process = self._process, None
        if process is not None:
            end(process)

    def tail(self) -> str:
        """The end of its log, for messages."""
        if self.launch is None:
            return f"it is at {self.address}"
        lines = self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else []
        errors = [line for line in lines if "Error" in line]
        return f"its log is {self._log}: " + " | ".join([*errors[-2:], *lines[-1:]])[-800:]

    def _start(self, launch: Launch, model: str) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
        try:
            with self._log.open("wb") as log:
                self._process = launch.start(model, "127.0.0.1", port, self.key, log)
        except OSError as error:
            raise PolicyError(
                f"engine.generator.python '{launch.python}' cannot be run: {error}. Name the "
                "Python of an environment with vLLM, such as /path/to/venv/bin/python"
            ) from error
        self._connect(f"http://127.0.0.1:{port}")
        self._wait(_START_S)

    def _connect(self, address: str) -> None:
        self.address = address
        self._client = httpx2.AsyncClient(
            base_url=address,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=httpx2.Timeout(self._timeout_s, connect=10.0),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=False,  # no proxy lies between
        )

    def _wait(self, limit_s: float) -> None:
        """Until it answers; PolicyError if it ends, or is too late."""
        due = time.monotonic() + limit_s
        while not self._is_well():
            if self._process is not None and self._process.poll() is not None:
                raise PolicyError(f"vLLM ended while it started; {self.tail()}")
            if time.monotonic() > due:
                raise PolicyError(
                    f"no vLLM answers at {self.address} after {limit_s:g} s; {self.tail()}. Start "
                    "one with `searchrl serve-generator`, or name engine.generator.python"
                )
            time.sleep(0.3)

    def _is_well(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            return False
        with suppress(ServerLost, TimeoutError):
            self.ask("GET", "/health").result(_HEALTH_S)
            return True
        return False

    def _check_version(self) -> None:
        version = str(self.ask("GET", "/version").result()["version"])
        if version.partition("+")[0] not in KNOWN_VERSIONS:
            warnings.warn(
                f"vLLM {version} is not known to work with searchrl-vllm; versions that are: "
                f"{', '.join(KNOWN_VERSIONS)}",
                stacklevel=2,
            )
