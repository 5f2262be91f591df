"""What was sampled is exactly what is trained: ids, authors, log-probs, masks and ratios.

Real episodes of several turns: a model with random weights plays the toy world under a protocol
whose stop strings are single letters, so turns end early and last tokens overshoot.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import (
    LIMITS,
    Said,
    kept_hiddens,
    lora_policy,
    make_learner,
    make_trajectory,
    pack_items,
    play,
    say,
    token_logps,
)

from searchrl.core.episode import StopReason
from searchrl.core.group import TrainItem, make_groups
from searchrl.core.trajectory import Author, Origin, TokenColumns, TurnStop
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.model.layout import Layout
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import RolloutDriver
from searchrl.engine.sampling.generator import FinishedTurn, Sampling
from searchrl.engine.sampling.hf_generator import HFGenerator
from searchrl.engine.sampling.scripted import ByteCodec

CPU = torch.device("cpu")


class _Recording(HFGenerator):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.parts: dict[int, list[tuple[str, list[int]]]] = {}
        self.logps: dict[int, list[float]] = {}

    def open(self, prompt_ids: Sequence[int], *args: Any, **kwargs: Any) -> Any:
        handles = super().open(prompt_ids, *args, **kwargs)
        for handle in handles:
            self.parts[handle] = [("P", list(prompt_ids))]
            self.logps[handle] = []
        return handles

    def submit(self, handle: Any, append_ids: Sequence[int], *args: Any) -> None:
        super().submit(handle, append_ids, *args)
        self.parts[handle].append(("E", list(append_ids)))

    def poll(self) -> list[FinishedTurn]:
        turns = super().poll()
        for turn in turns:
            self.parts[turn.handle].append(("M", list(turn.ids)))
            self.logps[turn.handle] += turn.logps or ()
        return turns


def test_ids_trained_are_the_ids_sampled(policy: Policy, short_world: Any):
    generator = _Recording(policy, Sampling(0.8))
    driver = RolloutDriver(generator, policy.renderer, LIMITS)
    requests = [
        RolloutRequest(f"g{i}", short_world, "train", i, (10 * i, 10 * i + 1)) for i in range(5)
    ]
    rollouts = [r for group in driver.run(requests) for r in group.rollouts]
    packed = pack_items(rollouts)
    batches = list(micro_batches(packed.groups, 10**6, CPU))
    trained = {
        rollout.rollout_id: (torch.tensor(rollout.ids), torch.tensor(rollout.mask), logp_N)
        for batch in batches
        for rollout, logp_N in zip(
            batch.rows, batch["sampler_logp"].split(batch.num_tokens), strict=True
        )
    }
    assert len(trained) == 10 and sum(len(r.episode.turns) > 1 for r in rollouts) >= 3
    for rollout, parts, logps in zip(
        rollouts, generator.parts.values(), generator.logps.values(), strict=True
    ):
        ids = [i for _, part in parts for i in part]
        authors = "".join(author * len(part) for author, part in parts)
        assert list(rollout.trajectory.ids) == ids
        assert "".join("PME"[a] for a in rollout.trajectory.authors) == authors
        ids_T, mask_T, logp_T = trained[rollout.trajectory.rollout_id]
        assert ids_T.tolist() == ids
        assert mask_T.tolist() == [author == "M" for author in authors]
        assert logp_T.tolist() == pytest.approx(logps, abs=1e-7)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_trainer_logprobs_equal_sampler_logprobs(
    policy: Policy, short_world: Any, temperature: float
):
    rollouts = play(policy, short_world, temperature=temperature)
    assert max(len(r.episode.turns) for r in rollouts) > 2
    for batch in micro_batches(pack_items(rollouts).groups, 10**6, CPU):
        with torch.no_grad():
            logp_N = policy.logps(batch.layout, temperature=temperature).logp_N
        gap = (logp_N - batch["sampler_logp"]).abs().max()
        assert gap <= 1e-5


def test_ratio_is_one_at_the_first_update_even_with_lora_dropout(
    micro_model: Path, short_world: Any
):
    policy = lora_policy(micro_model, lora_dropout=0.5)
    rollouts = play(policy, short_world, temperature=0.9)
    learner = make_learner(policy, temperature=0.9, beta=0.0)
    stats, columns = learner.train_step(make_groups(rollouts))
    assert stats["num_tokens"] > 50 and stats["max_abs_log_ratio"] <= 1e-5
    ratios = [ratio for column in columns.values() for ratio in column.ratio]
    assert ratios and max(abs(ratio - 1) for ratio in ratios) <= 1e-5


def trained_of(layout: Layout) -> torch.Tensor:
    mask_BT = torch.zeros_like(layout.ids_BT, dtype=torch.bool)
    mask_BT.view(-1)[layout.row_N + 1] = True
    return mask_BT


class TestEnvironmentTokensGetNoGradient:
    def test_logit_rows_that_predict_prompt_or_observation_get_exactly_zero(
        self, policy: Policy, short_world: Any, monkeypatch: pytest.MonkeyPatch
    ):
        rollouts = play(policy, short_world)
        # The hidden rows that the head reads: does anything come back to them?
        hiddens = kept_hiddens(policy)
        learner = make_learner(policy, beta=0.01, micro_batch_tokens=10**6)
        learner.train_step(make_groups(rollouts))
        packed = pack_items(rollouts)
        (batch,) = micro_batches(packed.groups, 10**6, CPU, is_packed=True)
        (hidden_1TD,) = hiddens
        assert hidden_1TD.grad is not None
        grad_T = hidden_1TD.grad[0].abs().amax(dim=-1)
        predicts_T = torch.zeros_like(grad_T, dtype=torch.bool)
        predicts_T[batch.layout.row_N] = True
        assert 0 < predicts_T.sum() < len(predicts_T)
        assert (grad_T[~predicts_T] == 0).all() and (grad_T[predicts_T] > 0).any()
        # The last row of a prompt starts several rollouts, whose pulls may cancel.
        is_alone_N = batch.layout.row_N.bincount()[batch.layout.row_N] == 1
        has_adv_N = batch["advantage"] != 0
        assert (grad_T[batch.layout.row_N[is_alone_N & has_adv_N]] > 0).all()

    def test_observation_tokens_stay_in_attention(self, policy: Policy, short_world: Any):
        rollouts = [r for r in play(policy, short_world) if len(r.episode.turns) > 1]
        (batch,) = micro_batches(pack_items(rollouts).groups, 10**6, CPU)
        first_env = next(i for i, a in enumerate(rollouts[0].trajectory.authors) if a is Author.ENV)
        row = [r.rollout_id for r in batch.rows].index(rollouts[0].trajectory.rollout_id)
        other = batch.layout.ids_BT.clone()
        other[row, first_env] = (other[row, first_env] + 1) % 300
        later = trained_of(batch.layout)
        later[:, : first_env + 1] = False
        with torch.no_grad():
            logp_N = token_logps(policy, batch.layout.ids_BT, later)
            moved_N = token_logps(policy, other, later)
        assert not torch.equal(logp_N, moved_N)


class TestTheLastToken:
    def test_text_beyond_the_stop_string_is_kept_in_ids_and_cut_from_the_action(
        self, toy_world: Any, policy: Policy
    ):
        text = "<think>t</think>\n<search>mira</search>\n\n<answer>9</answer>"
        said = Said(text)
        rollouts, _ = say(toy_world(), [said, "<think>t</think>\n<answer>1</answer>"], ByteCodec())
        (rollout,) = rollouts
        turn = rollout.trajectory.turns[0]
        assert rollout.trajectory.ids[turn.start : turn.stop] == tuple(text.encode())
        assert turn.text_behind == "\n\n<answer>9</answer>"
        assert rollout.episode.turns[0].text == "<think>t</think>\n<search>mira</search>"
        assert rollout.episode.turns[0].action.queries == ("mira",)
        # An answer inside the text_behind is none: there is exactly one, the later one.
        assert rollout.episode.final_answer == "1" and rollout.episode.format_score == 1.0

    @pytest.mark.parametrize(
        ("before", "stop"),
        [("", "</search>"), ("é", "</a_tag_name_as_long_as_somebody_may_like_to_configure_it>")],
    )
    def test_stop_string_that_spans_tokens_ends_the_turn(
        self, policy: Policy, before: str, stop: str
    ):
        """One token as written, as many as characters as spelt here; long ones are found, too."""
        spelt = [policy.renderer.encode_plain(c)[0] for c in before + stop]
        assert len(policy.renderer.encode_plain(stop)) < len(stop)
        generator = HFGenerator(policy, Sampling())
        (handle,) = generator.open([5], 1, [0])
        generator.submit(handle, [], (stop, "</answer>"), 500)
        sequence = generator._sequences[handle]
        for token in spelt[:-1]:
            sequence.append(token, 0.0)
            assert generator._stop_reason(sequence) is None
        sequence.append(spelt[-1], 0.0)
        assert generator._stop_reason(sequence) is TurnStop.STOP_STRING

    def test_end_of_message_token_does_not_spoil_an_answer(self, toy_world: Any, policy: Policy):
        (eos,) = policy.eos_ids
        answer = "<think>t</think>\n<answer>4</answer>"
        said = Said(answer, TurnStop.EOS, extra_ids=(eos,))
        (rollout,), _ = say(toy_world(reward="format"), [said], policy.renderer)
        assert rollout.trajectory.ids[-1] == eos
        assert rollout.trajectory.authors[-1] is Author.MODEL
        assert rollout.episode.turns[0].text == answer
        assert rollout.trajectory.turns[0].text_behind == ""
        (given_up,), _ = say(toy_world(), [Said("<think>t", TurnStop.EOS, (eos,))], policy.renderer)
        assert given_up.episode.turns[0].text == "<think>t"
        assert rollout.episode.final_answer == "4" and rollout.scored.reward == 1.0
        assert rollout.episode.stop_reason is StopReason.ANSWERED

    def test_genuine_pad_or_eos_token_is_trained_like_any_other(
        self, toy_world: Any, policy: Policy
    ):
        (eos,) = policy.eos_ids
        assert policy.tokenizer.pad_token_id == eos
        said = Said("", extra_ids=(*policy.renderer.encode_plain("x"), eos, 0, eos))
        (rollout,), _ = say(toy_world(), [said, Said("<answer>", TurnStop.EOS)], policy.renderer)
        trajectory = rollout.trajectory
        twin = replace(trajectory, rollout_id="twin")
        items = [TrainItem(trajectory, 1.0), TrainItem(twin, 0.0)]
        packed = pack_items(items, keep_dead_groups=False)
        mask = packed.rows[0].mask
        assert mask == [author is Author.MODEL for author in trajectory.authors]
        turn = trajectory.turns[0]
        in_turn = [i for i in range(turn.start, turn.stop) if trajectory.ids[i] == eos]
        assert len(in_turn) >= 2 and all(mask[i] for i in in_turn)


def test_nonfinite_sampler_logprob_is_dropped_and_counted():
    logps = [-1.0, float("nan"), float("-inf"), -2.0]
    trajectory = make_trajectory("r", "g", [1, 2], ([3, 4, 5, 6], logps))
    other = make_trajectory("s", "g", [1, 2], ([3], [-1.0]))
    packed = pack_items([TrainItem(trajectory, 1.0), TrainItem(other, 0.0)])
    assert packed.rows[0].mask == [False, False, True, False, False, True]
    assert packed.num_nonfinite == 2
    # Known when the step is packed, so the denominator does not count them.
    assert [r.columns["weight"].values[0] for r in packed.rows] == pytest.approx([1 / 3, 1 / 3])


def test_record_holds_what_was_trained_and_is_plain_json(policy: Policy, short_world: Any):
    rollouts = play(policy, short_world)
    columns = make_learner(policy, beta=None).train_step(make_groups(rollouts)).tokens
    for rollout in rollouts:
        name = rollout.trajectory.rollout_id
        record = rollout_record(rollout, "train", columns)
        row = json.loads(json.dumps(record, allow_nan=False))
        assert len(row["ids"]) == len(row["authors"]) == len(row["sampler_logp"])
        assert row["ids"] == list(rollout.trajectory.ids)
        kinds = zip(row["authors"], row["sampler_logp"], row["ratio"], strict=True)
        for author, logp, ratio in kinds:
            assert (author == "M") == (logp is not None) == (ratio is not None)
        assert row["advantage"] == pytest.approx(columns[name, 0].advantage)
        assert row["generated_text"].startswith(rollout.episode.turns[0].text[:1])
        assert (row["reward"], row["scores"]) == (rollout.reward, dict(rollout.scored.scores))
        assert (row["policy_version"], row["stop_reason"]) == (0, rollout.episode.stop_reason)
        turns = [(t["text"], t["queries"], t["passages"], t["observation"]) for t in row["turns"]]
        assert turns == [
            (t.text, list(t.action.queries), [p.id for p in t.passages], t.observation)
            for t in rollout.episode.turns
        ]


def test_record_of_a_broken_ratio_is_null_not_a_crash(policy: Policy, short_world: Any):
    rollout = play(policy, short_world, num_prompts=1, group_size=1)[0]
    n = rollout.trajectory.num_model_tokens
    ratio = (float("inf"), float("nan"), *[1.0] * (n - 2))
    broken = TokenColumns(0.5, ratio, (float("nan"),) * n, 0.25, (0, n - 1))
    row = rollout_record(rollout, "train", {(rollout.trajectory.rollout_id, 0): broken})
    text = json.dumps(row, allow_nan=False)
    assert gzip.decompress(gzip.compress(text.encode())).decode() == text
    model = [r for r, a in zip(row["ratio"], row["authors"], strict=True) if a == "M"]
    assert model[:2] == [None, None] and model[2:] == [1.0] * (n - 2)
    own = [place for place, author in enumerate(row["authors"]) if author == "M"]
    assert (row["weight"], row["clipped"]) == (0.25, [own[0], own[-1]])


def test_demonstration_has_no_logprobs_and_is_refused():
    trajectory = make_trajectory("r", "g", [1], ([2], None), origin=Origin.DEMONSTRATION)
    with pytest.raises(ValueError, match="r is a demonstration: it has no sampler log-probs"):
        pack_items([TrainItem(trajectory, 1.0)])
