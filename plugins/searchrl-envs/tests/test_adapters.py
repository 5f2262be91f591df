"""Our environments in TRL and in verifiers: their tools, and rewards that are ours."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures.openai_server import OpenAIServer, Raw
from searchrl_envs.outside import Episodes
from searchrl_envs.trl_adapter import _make_method, grpo_arguments

import searchrl
from searchrl.contracts import ANSWER, SEARCH, Action
from searchrl.testing import Says, play_episode

REPO = Path(__file__).resolve().parents[3]
SETTINGS = {"env": "regulations", "reward": "0.5*format+em", "protocol": "tool-call"}
CALL = {"type": "function", "function": {"name": "search", "arguments": {"query": "grant"}}}


def says(text: str, *calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def gold_of(split: str, index: int) -> str:
    env = searchrl.make_env("regulations")
    return env.reset(options={"split": split, "index": index})[1]["task"].answers[0]


def test_tools_are_methods_and_the_last_message_is_the_answer() -> None:
    pytest.importorskip("datasets", reason="TRL's data sets need the library datasets")
    from transformers.utils import get_json_schema

    given = grpo_arguments(SETTINGS, num_tasks=2)
    row, (reward,) = given["train_dataset"][1], given["reward_funcs"]
    env = given["environment_factory"]()
    schema = get_json_schema(env.search)["function"]
    assert schema["parameters"]["properties"]["query"]["description"] == "A short query."
    gold = gold_of("train", 1)
    for last, expected in (
        (says(gold), 1.5),
        (says(f"<think>So.</think> {gold}"), 1.5),
        (says("no idea"), 0.5),
        (says("", CALL), 0.0),
        ({"role": "tool", "content": "..."}, 0.0),
    ):
        env.reset(**row)
        assert env.search(query=row["prompt"][1]["content"]).startswith("Doc 1")
        assert reward([[says("", CALL), last]], [env]) == [expected]
    assert "takes" in env.search(query=1)
    for _ in range(20):
        said = env.search(query="grant")
    assert said == "The episode is over."
    tool = {"name": "reset", "description": "Begin anew.", "parameters": {"type": "object"}}
    protocol = {"name": "tool-call", "tools": [*Episodes(SETTINGS).tools, tool]}
    with pytest.raises(searchrl.ConfigError, match="a tool named reset"):
        grpo_arguments({**SETTINGS, "protocol": protocol}, num_tasks=1)


def test_a_schema_may_list_several_types_and_what_cannot_be_played_is_refused() -> None:
    parameters = {"properties": {"city": {"type": ["string", "null"]}}}
    method = _make_method({"name": "look", "parameters": parameters})
    assert method.__annotations__["city"] is str
    with pytest.raises(searchrl.ConfigError, match="expected tool-call, not think-search-answer"):
        Episodes({**SETTINGS, "protocol": "think-search-answer"})
    with pytest.raises(searchrl.ConfigError, match="tasks: expected one, not 2"):
        Episodes({"tasks": [{"env": "regulations"}] * 2})


@pytest.mark.slow
def test_grpo_trainer_takes_two_steps_with_our_rewards(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    folder = REPO.parent / "shared" / "data" / "qwen_tokenizer" / "qwen3"
    if not folder.is_dir():
        pytest.skip("the Qwen tokenizer (../shared/data) is not on this machine")
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    tokenizer.chat_template = template.read_text("utf-8")  # of today, which TRL can parse
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **sizes, **heads))
    given = grpo_arguments(SETTINGS, num_tasks=8)
    (reward,) = given["reward_funcs"]
    seen = []

    def watched(completions: Any, environments: Any, split: Any, index: Any, **others: Any) -> Any:
        rewards = reward(completions, environments)
        seen.extend(zip(completions, split, index, rewards, strict=True))
        return rewards

    class Half(trl.GRPOTrainer):
        """The model writes every second completion; a script searches, then knows the answer."""

        def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **others: Any) -> Any:
            texts = tokenizer.batch_decode(prompt_ids)
            ids: list[Any] = [None] * len(texts)
            for place, text in enumerate(texts):
                turn = f"<tool_call>\n{json.dumps(CALL['function'])}\n</tool_call>"
                if "<tool_response>" in text:
                    rows = given["train_dataset"]
                    (row,) = [row for row in rows if row["prompt"][1]["content"] in text]
                    turn = gold_of("train", row["index"])
                elif place % 2:
                    drawn, _ = super()._generate_single_turn([prompt_ids[place]], *rest, **others)
                    ids[place] = drawn[0]
                    continue
                ids[place] = tokenizer(f"{turn}<|im_end|>")["input_ids"]
            return ids, None

    args = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=96,
        max_steps=2,
        report_to=[],
        use_cpu=True,
    )
    given["reward_funcs"] = [watched]
    trainer = Half(model, args=args, processing_class=tokenizer, **given)
    assert trainer.train().global_step == 2 and len(seen) == 8
    rewards = [reward for *_, reward in seen]
    assert {0.5, 1.5} == set(rewards)
    for messages, split, index, reward in seen:
        env = searchrl.make_env("regulations", protocol="tool-call").unwrapped
        write = env.protocol.render_turn
        searches = [Action(SEARCH, ("grant",)) for one in messages if one.get("tool_calls")]
        turns = [write(one) for one in (*searches, Action(ANSWER, messages[-1]["content"]))]
        ours = play_episode(env, Says(turns), env.protocol, split=split, index=index)
        assert reward == 0.5 * ours.format_score + (ours.final_answer in ours.task.answers)
        assert ours.num_searches == len(searches)


def script(answers: dict[str, str]) -> Any:
    """Replies of a server: a search for the question, then its answer."""

    def reply(body: dict[str, Any]) -> Any:
        said = "\n".join(message.get("content") or "" for message in body["messages"])
        (question,) = [one for one in answers if one in said]
        is_first, arguments = "Doc 1" not in said, {"query": question}
        if "tools" not in body:  # `searchrl eval` asks for tags
            call = json.dumps({"name": "search", "arguments": arguments})
            turn = f"<tool_call>{call}</tool_call>"
            return (
                f"<think>So.</think>{turn if is_first else f'<answer>{answers[question]}</answer>'}"
            )
        function = {"name": "search", "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": "1", "type": "function", "function": function}
        delta = {"tool_calls": [call]} if is_first else {"content": answers[question]}
        choice = {"index": 0, "finish_reason": "stop", "delta": {"role": "assistant", **delta}}
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
        return Raw(
            f"data: {json.dumps({**head, 'choices': [choice]})}\n\ndata: [DONE]\n\n".encode()
        )

    return reply


@pytest.mark.slow
def test_an_evaluation_of_verifiers_gives_our_em(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    # Its programs run in this Python, and not in one that uv makes.
    uv = tmp_path / "uv"
    say = f'case "$*" in *--help) echo --script;; python*) echo {sys.executable};; esac'
    uv.write_text(f"#!/bin/sh\n{say}\n", "utf-8")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    env, answers = searchrl.make_env("regulations"), {}
    for index in range(4):
        task = env.reset(options={"split": "test", "index": index})[1]["task"]
        answers[task.question] = "wrong" if index % 2 else task.answers[0]
    with OpenAIServer(script(answers)) as server:
        agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
        given = {"env": {"taskset": {"id": "searchrl-envs", "settings": SETTINGS}, "agent": agent}}
        given |= {"client": {"base_url": server.url, "api_key_var": "PATH"}, "select": {"limit": 4}}
        given |= {"push": False, "rich": None, "output_dir": tmp_path}
        episodes = asyncio.run(run_eval(EvalConfig.model_validate(given)))
        policy = {"policy": f"endpoint:{server.url}", "model": {"name": "fake"}}
        ours = searchrl.evaluate({**SETTINGS, **policy, "eval": {"num_tasks": 4}})
    theirs = {one.traces[0].task.data.index: one.traces[0] for one in episodes}
    for rollout in ours.rollouts:
        trace, scores = theirs[rollout.episode.task.index], rollout.scored.scores
        assert (trace.metrics["em"], trace.metrics["searches"]) == (scores["em"], 1.0)
        assert trace.reward == rollout.scored.reward
    assert ours.metrics["em"]["value"] == 0.5
