"""The `otel` tracker: where the spans of a run go, an OTLP address or a file of the run folder.

Owns the tracer provider of the process and what leaves it; SearchRL itself begins and ends spans.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Status, StatusCode

from searchrl import ConfigError, show_value
from searchrl.contracts import Metric

FILE, START = "spans.jsonl", b'{"resourceSpans"'
TAKEN = ("alarms.jsonl", "journal.jsonl", "metrics.jsonl", "tracker.jsonl")
TEXTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
LOGGER = logging.getLogger("opentelemetry")
QUEUE = 2**14  # spans of twenty steps
CLOSE_S = 5.0  # longest wait for a collector: for an answer, and at the end of a run


class OtelTracker:
    """Sends the spans of a run, or writes them as lines of OTLP JSON.

    Args:
        run_dir: the run folder.
        endpoint: address of a collector that takes OTLP over HTTP, such as `http://localhost:4318`.
        file: name of a file in the run folder, without an endpoint; by default `spans.jsonl`.
        content: let texts of turns, tools and searches into spans.
        service: name of the sender; of several runs in a process the first one's counts.
    """

    def __init__(
        self,
        run_dir: str | Path,
        endpoint: str | None = None,
        file: str | None = None,
        content: bool = False,
        service: str = "searchrl",
    ) -> None:
        if endpoint is not None and file is not None:
            raise ConfigError("tracker otel: it has an endpoint and a file; leave one of them out")
        self._end: _File | _Sender
        if endpoint is None:
            self._end = _File(Path(run_dir), FILE if file is None else file, content)
        else:
            self._end = _Sender(_find_route(endpoint))
        self._is_warned = False
        self._before = os.environ.get(TEXTS), LOGGER.level
        os.environ[TEXTS] = str(content).lower()
        # A line of the console for each lost span, or one that a late call ends again.
        LOGGER.setLevel(logging.CRITICAL)
        _OUTLET.join(service)
        _OUTLET.target = self._end

    def log(self, step: int, metrics: Mapping[str, Metric], phase: str) -> None:
        """Warn once if spans are lost; metrics are for other trackers."""
        if self._end.num_lost and not self._is_warned:
            self._is_warned = True
            warnings.warn(
                f"tracker otel: {self._end.num_lost} spans did not get to {self._end.place} and "
                "are lost; the run goes on. See that a collector runs there and keeps up, or leave "
                f"endpoint out to write to {FILE}",
                stacklevel=2,
            )

    def close(self) -> None:
        """End spans that are left open, and send what waits, for some seconds at most."""
        if _OUTLET.target is self._end:
            _OUTLET.end_all()
            _OUTLET.target = None
        closing = threading.Thread(target=self._end.close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        os.environ.pop(TEXTS, None)
        text, level = self._before
        os.environ.update({} if text is None else {TEXTS: text})
        LOGGER.setLevel(level)
        self._end.num_lost += self._end.num_waiting
        self._is_warned = False  # once more, with the number of all
        self.log(0, {}, "")


class _Sender(OTLPSpanExporter):
    def __init__(self, address: str) -> None:
        super().__init__(address, timeout=CLOSE_S)
        self.place, self.num_lost, self.num_waiting = address, 0, 0
        self._lock, self._queue = threading.Lock(), BatchSpanProcessor(self, QUEUE, 1000)
        self.close = self._queue.shutdown

    def on_end(self, span: ReadableSpan) -> None:
        with self._lock:
            is_full = self.num_waiting >= QUEUE
            self.num_lost += is_full
            self.num_waiting += not is_full
        if not is_full:
            self._queue.on_end(span)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        with self._lock:
            self.num_waiting -= len(spans)
            self.num_lost += len(spans) * (result is not SpanExportResult.SUCCESS)
        return result


class _File:
    """Writes a line as a span ends, so that a kill loses none."""

    def __init__(self, run_dir: Path, name: str, is_private: bool) -> None:
        self.place, self.num_lost, self.num_waiting = run_dir / name, 0, 0
        is_ours = Path(name).name == name and name.endswith(".jsonl") and name not in TAKEN
        if is_ours and self.place.is_file():
            with self.place.open("rb") as file:
                is_ours = file.read(16) in (b"", START)
        if not is_ours or self.place.is_dir():
            raise ConfigError(
                f"tracker otel: file = {show_value(name)} is no file of spans in the run folder; "
                f"write a new name that ends in .jsonl, such as {FILE}"
            )
        self._file = self.place.open("ab", buffering=0)
        if is_private:
            self.place.chmod(0o600)
        self.close = self._file.close

    def on_end(self, span: ReadableSpan) -> None:
        try:
            self._file.write(json.dumps(_as_otlp(span)).encode() + b"\n")
        except (OSError, ValueError):  # a full disk; closed before all threads were done
            self.num_lost += 1


class _Outlet(SpanProcessor):
    """The way out of the process; each run puts its own target behind it."""

    def __init__(self) -> None:
        self.target: _File | _Sender | None = None
        self._provider: TracerProvider | None = None
        self._open: dict[int, Span] = {}

    def join(self, service: str) -> None:
        """Be behind the tracer provider of the process, which is made if there is none."""
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            resource = Resource.create({"service.name": service})
            provider = TracerProvider(None, resource, shutdown_on_exit=False)
            trace.set_tracer_provider(provider)
        if provider is not self._provider:
            self._provider = provider
            provider.add_span_processor(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Put the phase before the name of a row, and remember what is open."""
        if span.instrumentation_scope is None or span.instrumentation_scope.name != "searchrl":
            return
        self._open[span.get_span_context().span_id] = span
        if rollout := (span.attributes or {}).get("gen_ai.conversation.id"):
            # Above it is `step 3`, `evaluate` or `evaluate (before)`.
            above = getattr(trace.get_current_span(parent_context), "name", "")
            phase = "train" if above.startswith("step") else above[10:-1] or "during"
            span.set_attribute("gen_ai.conversation.id", f"{phase}{rollout}")

    def on_end(self, span: ReadableSpan) -> None:
        self._open.pop(span.context.span_id if span.context else 0, None)
        if self.target is not None:
            self.target.on_end(_without_messages(span))

    def end_all(self) -> None:
        """End what nobody will end: calls that hang, and episodes that an error cut off."""
        for span in tuple(self._open.values()):
            span.set_status(StatusCode.ERROR)
            span.set_attribute("error.type", "unfinished")
            span.end()


_OUTLET = _Outlet()


def _without_messages(span: ReadableSpan) -> ReadableSpan:
    """The span with the type of its error alone: a message may hold texts, or a key."""
    if span.status.status_code is not StatusCode.ERROR:
        return span
    facts = dict(span.attributes or {})
    for event in span.events:
        facts.setdefault("error.type", (event.attributes or {}).get("exception.type", "_OTHER"))
    return ReadableSpan(
        span.name,
        span.context,
        span.parent,
        span.resource,
        facts,
        kind=span.kind,
        instrumentation_scope=span.instrumentation_scope,
        status=Status(StatusCode.ERROR),
        start_time=span.start_time,
        end_time=span.end_time,
    )


def _as_otlp(span: ReadableSpan) -> dict[str, Any]:
    """A request of one span, as OTLP writes it in JSON."""
    assert span.context is not None
    written = {
        "traceId": f"{span.context.trace_id:032x}",
        "spanId": f"{span.context.span_id:016x}",
        "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _facts(span.attributes),
        "status": {"code": span.status.status_code.value},
    }
    service = span.resource.attributes.get("service.name", "unknown_service")
    sender = {"attributes": _facts({"service.name": service})}
    return {"resourceSpans": [{"resource": sender, "scopeSpans": [{"spans": [written]}]}]}


def _facts(attributes: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in (attributes or {}).items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, tuple):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    if isinstance(value, float) and not math.isfinite(value):
        return {"doubleValue": json.dumps(value)}  # in quotes: NaN, Infinity, -Infinity
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", object: "stringValue"}
    return {next(name for kind, name in kinds.items() if isinstance(value, kind)): value}


def _find_route(endpoint: str) -> str:
    """The address to which spans are posted."""
    what = f"tracker otel: endpoint = {show_value(endpoint)} is no address; write one such as "
    try:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError as error:  # also of a port, or of brackets
        raise ConfigError(f"{what}http://localhost:4318") from error
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"
