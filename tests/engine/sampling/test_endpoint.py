"""The endpoint generator: dialogues as messages, replies as turns, stop strings on our side."""

from types import SimpleNamespace
from typing import Any

import pytest
from fixtures.openai_server import Fault, OpenAIServer
from hypothesis import given
from hypothesis import strategies as st

from searchrl.api_client import Client, Message
from searchrl.api_client.exchange import Finish, Reply
from searchrl.config.endpoint import EndpointConfig
from searchrl.core.trajectory import TurnStop
from searchrl.engine.sampling.endpoint import END, EndpointGenerator, MessageCodec, read_turn
from searchrl.errors import EndpointFailure, GenerationFailure

STOPS = ("</search>", "</answer>")
CODEC = MessageCodec()


@given(st.text(), st.text(), st.text())
def test_no_text_becomes_the_head_of_a_message(instruction: str, prompt: str, reply: str) -> None:
    ids = CODEC.render_prompt(instruction, prompt).ids
    clean = [text.encode("utf-8", "replace").decode() for text in (instruction, prompt)]
    wanted = [Message(r, t) for r, t in zip(("system", "user"), clean, strict=True) if t]
    found = CODEC.read_messages(ids)
    assert [m.role for m in found] == [m.role for m in wanted]
    assert CODEC.decode([*CODEC.encode_model_text(clean[1]), END]) == clean[1]
    # A context that begins with earlier turns and observations keeps who said what.
    behind = [*CODEC.encode_model_text("a"), *CODEC.encode_plain("b"), *CODEC.encode_plain("")]
    said = [Message("assistant", "a"), Message("user", "b")]
    assert CODEC.read_messages([*ids, *behind]) == [*found, *said]


@pytest.mark.parametrize(
    ("text", "finish", "stop", "read"),
    [
        ("<search>a", "stop", None, ("<search>a</search>", TurnStop.STOP_STRING)),
        ("<think>a</think><answer>b", "stop", None,
         ("<think>a</think><answer>b</answer>", TurnStop.STOP_STRING)),
        ("<search>a", "stop", "</answer>", ("<search>a</answer>", TurnStop.STOP_STRING)),
        ("<search>a", "length", None, ("<search>a", TurnStop.MAX_TOKENS)),
        ("I do not know.", "stop", None, ("I do not know.", TurnStop.EOS)),
        # The server says that the model ended its message itself: the tag was left open.
        ("<search>a", "end", None, ("<search>a", TurnStop.EOS)),
    ],
)  # fmt: skip
def test_turns_end_where_a_stop_string_would(
    text: str, finish: str, stop: str | None, read: tuple[str, TurnStop]
) -> None:
    assert read_turn(Reply(text, Finish(finish), stop), STOPS, STOPS) == read


def test_a_server_that_was_told_no_stop_string_has_left_none_out() -> None:
    assert read_turn(Reply("<search>a", Finish.STOP), (), STOPS) == ("<search>a", TurnStop.EOS)
    kept = read_turn(Reply("<search>a</search>b", Finish.STOP), (), STOPS)
    assert kept == ("<search>a</search>", TurnStop.STOP_STRING)
    with pytest.raises(GenerationFailure, match="withheld"):
        read_turn(Reply("", Finish.WITHHELD), STOPS, STOPS)


def make(server: OpenAIServer, **settings: Any) -> EndpointGenerator:
    config = EndpointConfig.model_validate({"cache": "off", "max_retries": 0, **settings})
    return EndpointGenerator(Client(server.url, "toy", config), CODEC)


def drain(generator: EndpointGenerator) -> dict[int, Any]:
    found = {}
    while turns := generator.poll():
        found |= {turn.handle: turn for turn in turns}
    return found


def test_a_dialogue_is_sent_as_turns_of_two() -> None:
    with OpenAIServer(lambda body: "<search>hours</search>") as server:
        generator = make(server)
        prompt = CODEC.render_prompt("Search first.", "When?").ids
        (handle,) = generator.open(prompt, 1, [3])
        generator.submit(handle, [], STOPS, 9)
        (turn,) = generator.poll()
        assert turn.logps is None and turn.reason is TurnStop.STOP_STRING
        assert CODEC.decode(turn.ids) == "<search>hours</search>"
        generator.submit(handle, CODEC.encode_plain("\n<information>x</information>\n"), STOPS, 8)
        generator.poll()
        generator.close(handle)
        assert generator.poll() == []
        generator.client.close()
    roles = [[m["role"] for m in body["messages"]] for body in server.bodies]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    assert server.bodies[1]["messages"][2]["content"] == "<search>hours</search>"
    assert [body["max_tokens"] for body in server.bodies] == [9, 8]
    assert server.bodies[0]["stop"] == list(STOPS)


def test_the_end_of_a_message_is_an_id_of_its_own() -> None:
    with OpenAIServer(lambda body: "No.") as server:
        generator = make(server)
        (handle,) = generator.open(CODEC.render_prompt("", "Q").ids, 1, [0])
        generator.submit(handle, [], STOPS, 9)
        (turn,) = generator.poll()
        generator.client.close()
    assert turn.reason is TurnStop.EOS and turn.ids == (*b"No.", END)


def test_a_dialogue_that_fails_leaves_the_others() -> None:
    def answer(body: dict[str, Any]) -> str | Fault:
        return Fault(500) if "bad" in body["messages"][-1]["content"] else "<answer>1</answer>"

    with OpenAIServer(answer) as server:
        generator = make(server)
        for text in ("good", "bad", "good"):
            (handle,) = generator.open(CODEC.render_prompt("", text).ids, 1, [0])
            generator.submit(handle, [], STOPS, 9)
        turns = drain(generator)
        generator.client.close()
    assert [turns[number].error is None for number in range(3)] == [True, False, True]
    assert isinstance(turns[1].error, EndpointFailure) and "500" in str(turns[1].error)


def test_what_has_begun_is_finished_first() -> None:
    """A budget that ends then leaves few episodes half played."""
    asked: list[str] = []

    def answer(body: dict[str, Any]) -> str:
        asked.append(body["messages"][0]["content"])
        return "<search>x</search>"

    with OpenAIServer(answer) as server:
        generator = make(server, concurrency=1)
        for number in range(3):
            (handle,) = generator.open(CODEC.render_prompt("", f"q{number}").ids, 1, [0])
            generator.submit(handle, [], STOPS, 9)
        left = dict.fromkeys(range(3), 1)
        while turns := generator.poll():
            for turn in turns:
                if left[turn.handle]:
                    left[turn.handle] -= 1
                    generator.submit(turn.handle, CODEC.encode_plain("seen"), STOPS, 9)
                else:
                    generator.close(turn.handle)
        generator.client.close()
    assert asked == ["q0", "q0", "q1", "q1", "q2", "q2"]


@pytest.mark.parametrize(("temperature", "draws"), [(0.7, [3, 4]), (0.0, [0, 0])])
def test_samples_are_draws_of_their_own_and_greedy_ones_are_one(
    temperature: float, draws: list[int]
) -> None:
    asked: list[Any] = []
    client: Any = SimpleNamespace(concurrency=2, start=lambda one: asked.append(one))
    generator = EndpointGenerator(client, CODEC, temperature=temperature, top_p=0.8)
    for handle in generator.open(CODEC.render_prompt("", "Q").ids, 2, [3, 4]):
        generator.submit(handle, [], STOPS, 9)
    assert generator.poll() == []
    assert [one.draw for one in asked] == draws
    assert {(one.temperature, one.top_p) for one in asked} == {(temperature, 0.8)}
