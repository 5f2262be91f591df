"""Packed rows: the log-probs, loss and gradient of padded rollouts, a prompt computed once."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import micro_policy, pack_items
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packed_toy import LENGTHS, caught_gradients, is_close, make_items, make_learner, make_policy
from pytest import MonkeyPatch

from searchrl.algorithms.builtin import make_gspo
from searchrl.core.group import make_groups
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.model import layout as layout_module
from searchrl.engine.model.attention import _UNSUPPORTED, _attend
from searchrl.engine.model.layout import PackedPlan, TokenRow, TokenTree, pack, pad
from searchrl.engine.model.policy import Policy
from searchrl.errors import PolicyError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: MonkeyPatch) -> None:
    """Blocks of attention shorter than most suffixes and prompts."""
    monkeypatch.setattr(layout_module, "BLOCK", {"cpu": 16, "cuda": 16})


class TestEqualsPadded:
    @pytest.mark.parametrize("beta", [0.0, 0.05])
    @pytest.mark.parametrize("checkpointing", [False, True])
    @pytest.mark.parametrize("adapter", ["full", "lora"])
    def test_gradient(
        self, device: Any, micro_model: Path, adapter: str, checkpointing: bool, beta: float
    ):
        model = {"gradient_checkpointing": checkpointing, "lora_r": 4}
        policy = make_policy(micro_model, adapter, device=device, **model)
        items = make_items()
        if beta:
            policy.keep_reference()
        if policy._frozen is not None:
            with torch.no_grad():  # away from the policy, or k3 has no gradient
                for parameter in policy._frozen.parameters():
                    parameter.mul_(1.1)
        (padded,), (packed,) = (
            caught_gradients(make_learner(policy, is_packed=is_packed, beta=beta), items)
            for is_packed in (False, True)
        )
        assert is_close(packed, padded, 1e-10)

    def test_what_a_step_reports(self, device: torch.device, micro_model: Path):
        items = make_items()
        reports = []
        for is_packed in (False, True):
            policy = make_policy(micro_model, device=device)
            learner = make_learner(policy, is_packed=is_packed, beta=0.05)
            reports.append(learner.train_step(make_groups(items)))
        (stats, columns), (packed_stats, packed_columns) = reports
        assert packed_stats == pytest.approx(stats, rel=1e-9, abs=1e-12)
        assert packed_columns.keys() == columns.keys() and len(columns) == 11
        for name, column in columns.items():
            assert packed_columns[name].advantage == column.advantage
            assert packed_columns[name].ratio == pytest.approx(column.ratio, rel=1e-9)
            assert packed_columns[name].entropy == pytest.approx(column.entropy, rel=1e-9)

    @pytest.mark.parametrize("size", [1, 200])
    def test_in_any_split(self, micro_model: Path, size: int):
        # GSPO sees whole rollouts: one that was torn apart would have another ratio.
        policy, items = make_policy(micro_model), make_items()
        (whole,) = caught_gradients(make_learner(policy, is_packed=False), items)
        (split,) = caught_gradients(make_learner(policy, micro_batch_tokens=size), items)
        assert is_close(split, whole, 1e-10)
        gspo = make_gspo()
        (whole,) = caught_gradients(make_learner(policy, is_packed=False, algorithm=gspo), items)
        (split,) = caught_gradients(
            make_learner(policy, algorithm=gspo, micro_batch_tokens=size), items
        )
        assert is_close(split, whole, 1e-10)


@st.composite
def tree_rows(draw: st.DrawFn) -> list[TokenRow]:
    """Rows that begin as an earlier one does: longer, shorter or equal."""
    rng = draw(st.randoms(use_true_random=False))
    rows: list[list[int]] = [[rng.randrange(1, 290) for _ in range(rng.randint(2, 40))]]
    for _ in range(draw(st.integers(1, 39))):
        stem = rng.choice(rows)
        tail = [rng.randrange(1, 290) for _ in range(rng.choice([0, 1, 2, 20]))]
        rows.append([*stem[: rng.randint(1, len(stem))], *tail])
    masks = [[False, *(rng.random() < 0.5 for _ in ids[1:])] for ids in rows]
    masks[0][-1] = True
    return [TokenRow(ids, mask) for ids, mask in zip(rows, masks, strict=True)]


class TestTrees:
    @settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(rows=tree_rows())
    @pytest.mark.parametrize(("checkpointing", "limit"), [(True, 1e-10), (False, 1e-5)])
    def test_any_tree_equals_its_rows_padded(
        self, micro_model: Path, checkpointing: bool, limit: float, rows: list[TokenRow]
    ):
        make = make_policy if limit < 1e-6 else micro_policy  # in float64, in float32
        policy = make(micro_model, gradient_checkpointing=checkpointing)
        layouts = pad(rows, CPU), pack(rows, CPU)
        slopes = torch.randn(3, len(layouts[0].row_N), generator=torch.Generator().manual_seed(0))
        found = []
        for layout in layouts:
            with policy.updating(), policy.attending() if layout.plan else nullcontext():
                told = policy.logps(layout, with_entropy=True, entropy_gradient=True)
                hidden_ND = policy.hidden_states(layout)
                outputs = (told.logp_N, told.entropy_N, hidden_ND.mean(dim=1))
                loss = sum(
                    (slopes.to(policy.dtype)[n] * one).sum() for n, one in enumerate(outputs)
                )
                grads = torch.autograd.grad(loss, policy.parameters)
            found.append([*outputs[:2], hidden_ND, torch.cat([grad.flatten() for grad in grads])])
        for padded, packed in zip(*found, strict=True):
            assert (packed - padded).norm() <= limit * padded.norm()
        # A token is computed once in a group, and nowhere else.
        prefixes = {
            tuple(row.ids[: t + 1])
            for row in rows
            for t in range(max((t for t, wanted in enumerate(row.mask) if wanted), default=1))
        }
        assert layouts[1].num_computed == TokenTree(rows).num_tokens == len(prefixes)
        alone = pack(rows, CPU, range(len(rows)))
        assert alone.num_computed == sum(TokenTree([row]).num_tokens for row in rows)
        assert alone.target_N.equal(layouts[0].target_N)


class TestWhatIsComputed:
    def test_a_prompt_once_per_group_and_nothing_behind_the_last_trained_token(
        self, micro_model: Path, monkeypatch: MonkeyPatch
    ):
        policy, items = make_policy(micro_model), make_items()
        learner = make_learner(policy)
        seen: list[torch.Tensor] = []
        policy.model.get_input_embeddings().register_forward_hook(
            lambda module, args, output: seen.append(args[0])
        )
        learner.train_step(make_groups(items))
        trained = {item.trajectory.rollout_id: item.trajectory for item in items}
        del trained["a/mute"], trained["c/0"]  # no model token; alone, so that its group is dead
        prompts = {t.group_id: t.num_prompt_tokens for t in trained.values()}
        suffixes = [t.turns[-1].stop - 1 - t.num_prompt_tokens for t in trained.values()]
        assert sum(ids.numel() for ids in seen) == sum(prompts.values()) + sum(suffixes)

    @pytest.mark.parametrize("size", [1, 200, 10**6])
    def test_a_micro_batch_stays_in_its_budget_and_a_group_that_fits_together(self, size: int):
        groups = pack_items(make_items()).groups
        batches = list(micro_batches(groups, size, CPU, is_packed=True))
        names = [name for batch in batches for name in [r.rollout_id for r in batch.rows]]
        assert sorted(names) == sorted(r.rollout_id for group in groups for r in group.rollouts)
        for batch in batches:
            assert batch.layout.ids_BT.numel() <= size or len(batch.rows) == 1
        assert [group.id for group in groups] == list(LENGTHS)
        for group in groups:
            cost = TokenTree(group.rollouts).num_tokens
            names = {rollout.rollout_id for rollout in group.rollouts}
            homes = [batch for batch in batches if names & {r.rollout_id for r in batch.rows}]
            assert len(homes) == 1 or cost > size


class TestPlan:
    @pytest.mark.parametrize(
        ("dtype", "limit"),
        [(torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 0.05)],
    )
    @pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
    def test_is_attention_under_the_mask_it_stands_for(
        self, device: torch.device, num_kv_heads: int, dtype: torch.dtype, limit: float
    ):
        lengths, parents = [20, 33, 1, 16, 3, 1, 40, 2, 7], [-1, 0, 0, 2, 2, -1, 5, 6, 6]
        node_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        is_above = torch.eye(len(lengths), dtype=torch.bool)
        for node, parent in enumerate(parents):
            is_above[node] |= is_above[parent] & (parent >= 0)
        total = len(node_T)
        torch.manual_seed(0)
        inputs = [torch.randn(1, n, total, 8, dtype=dtype) for n in (6, num_kv_heads, num_kv_heads)]
        exact = [one.double().requires_grad_() for one in inputs]
        mask = is_above[node_T][:, node_T].tril()
        expected = torch.nn.functional.scaled_dot_product_attention(
            *exact, attn_mask=mask, scale=0.3, enable_gqa=True
        )
        there = [one.to(device).requires_grad_() for one in inputs]
        ours = PackedPlan(lengths, parents).attend(0, *there, 0.3)
        slope = torch.randn_like(expected)
        found = [ours, *torch.autograd.grad(ours, there, slope.to(ours))]
        wanted = [expected, *torch.autograd.grad(expected, exact, slope)]
        for mine, theirs in zip(found, wanted, strict=True):
            assert (mine.cpu() - theirs).abs().max() < limit


class TestModelsThatCannotPack:
    def test_a_model_that_ignores_positions_is_found_out_and_padded(
        self, micro_model: Path, monkeypatch: MonkeyPatch
    ):
        policy = make_policy(micro_model)
        (expected,) = caught_gradients(make_learner(policy), make_items())
        forget_positions(policy, monkeypatch)
        fault = policy.find_packing_fault()
        assert fault is not None and "nats in a packed row" in fault
        learner = make_learner(policy, is_packed=None)
        assert fault in learner.describe()
        (padded,) = caught_gradients(learner, make_items())
        assert is_close(padded, expected, 1e-10)

    def test_stock_attention_is_back_after_a_step(self, policy: Policy):
        before = policy.model.config._attn_implementation
        make_learner(policy).train_step(make_groups(make_items()))
        assert policy.model.config._attn_implementation == before


def forget_positions(policy: Policy, monkeypatch: MonkeyPatch) -> None:
    """What a model does that has no use for position ids."""
    decoder = policy.model.get_decoder()
    forward: Callable[..., Any] = decoder.forward

    def forgetful(*args: Any, position_ids: Any = None, **options: Any) -> Any:
        return forward(*args, **options)

    monkeypatch.setattr(decoder, "forward", forgetful)


def test_attention_with_dropout_or_options_it_does_not_know_is_refused() -> None:
    nothing: Any = torch.zeros(0)
    for more, said in (({"dropout": 0.1}, "dropout"), ({_UNSUPPORTED[0]: 1}, _UNSUPPORTED[0])):
        with pytest.raises(PolicyError, match=said):
            _attend(nothing, nothing, nothing, nothing, None, plan=nothing, **more)
