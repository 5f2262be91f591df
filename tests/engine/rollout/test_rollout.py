"""The rollout driver: budgets, every stop reason, and failures classified at the boundary."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from engine_toy import LIMITS, Said, SayingGenerator, play, run_within, say

from searchrl.config import build_config
from searchrl.core.episode import FailureKind, StopReason
from searchrl.core.trajectory import Author, Origin, TurnStop
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout import rollout as rollout_module
from searchrl.engine.rollout.dialogue import Limits, RolloutRequest
from searchrl.engine.rollout.rollout import Interrupted, Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds, name_defaults
from searchrl.engine.sampling.scripted import ByteCodec, ScriptedGenerator
from searchrl.errors import GenerationFailure

SEARCH_MIRA = "<think>t</think>\n<search>mira</search>"
ANSWER = "<think>t</think>\n<answer>4</answer>"
WIDE = Limits(1000, 1000, 10_000)


def test_every_stop_reason_is_reached(toy_world: Any, policy: Policy):
    world, codec = toy_world(max_turns=2), policy.renderer
    eos = next(iter(policy.eos_ids))
    cases: dict[StopReason, Rollout] = {}

    def case(turns: list[Any], limits: Limits = WIDE, of: Any = world) -> None:
        (rollout,), _ = say(of, turns, codec, limits)
        cases[rollout.episode.stop_reason] = rollout

    case([SEARCH_MIRA, ANSWER])
    case([SEARCH_MIRA, SEARCH_MIRA])
    case([SEARCH_MIRA, "<think>" + "on and on " * 20], replace(WIDE, max_turn_tokens=60))
    case([SEARCH_MIRA, ANSWER], replace(WIDE, max_total_tokens=50))
    case([Said("<think>I give up", TurnStop.EOS, (eos,))])
    case([SEARCH_MIRA], of=toy_world("toy-faulty", fault="step-raises"))
    assert set(cases) == set(StopReason)
    assert cases[StopReason.ANSWERED].episode.final_answer == "4"
    assert len(cases[StopReason.TURN_LIMIT].episode.turns) == 2
    for reason, rollout in cases.items():
        assert rollout.is_scored == (reason is not StopReason.FAILED), reason
        assert rollout.is_cut == (reason not in (StopReason.ANSWERED, StopReason.EOS)), reason


class TestBudgets:
    def test_turn_gets_at_most_its_tokens_and_an_unfinished_turn_is_no_action(self, toy_world: Any):
        limits = Limits(30, 1000, 10_000)
        (rollout,), generator = say(toy_world(), [SEARCH_MIRA, ANSWER], ByteCodec(), limits)
        assert generator.submitted == [([], 30)] and rollout.trajectory.num_model_tokens == 30
        assert rollout.episode.stop_reason is StopReason.TURN_TOKENS
        assert rollout.episode.turns[0].text == SEARCH_MIRA[:30]
        assert rollout.episode.turns[0].action.kind == "invalid"
        assert rollout.episode.turns[0].reward == 0.0

    def test_a_cut_turn_costs_what_an_invalid_one_does(self, toy_registry: Any):
        """Where an invalid turn cost 1 and a cut one nothing, a game taught to run on."""
        config = build_config({"env": "gym:FrozenLake-v1", "reward": "env"})
        (world,) = make_worlds(name_defaults(config, toy_registry), toy_registry)
        (rollout,), _ = say(world, ["on and on and on"], ByteCodec(), Limits(9, 1000, 10_000))
        assert rollout.episode.stop_reason is StopReason.TURN_TOKENS
        assert rollout.episode.env_return == rollout.episode.turns[0].reward == -1.0
        stop, limits = world.protocol.stops[0], Limits(30, 1000, 10_000)
        (rollout,), _ = say(world, [stop, "on and on" * 9], ByteCodec(), limits)
        assert rollout.episode.env_return == -2.0, "an invalid turn, and the one that was cut"
        world.close()

    def test_trajectory_never_exceeds_its_tokens(self, toy_world: Any, policy: Policy):
        world = toy_world(protocol="short-stops", retriever="random", max_turns=30)
        reasons = set()
        for total in (30, 90, 200):
            limits = replace(LIMITS, max_total_tokens=total)
            for rollout in play(policy, world, limits=limits):
                assert len(rollout.trajectory) <= total
                reasons.add(rollout.episode.stop_reason)
                if rollout.episode.stop_reason is StopReason.TOTAL_TOKENS:
                    # Either the last turn used up the room, or its observation found none.
                    last = rollout.trajectory.turns[-1]
                    assert last.stop == len(rollout.trajectory)
        assert StopReason.TOTAL_TOKENS in reasons

    def test_prompt_beyond_the_budget_is_refused_without_a_token(self, toy_world: Any):
        limits = replace(WIDE, max_total_tokens=5)
        (rollout,), generator = say(toy_world(), [ANSWER], ByteCodec(), limits)
        assert rollout.episode.stop_reason is StopReason.TOTAL_TOKENS
        assert rollout.trajectory.num_model_tokens == 0 and generator.submitted == []
        assert len(generator.closed) == 1
        # The prompt is kept whole: a truncated question would be another task.
        question = rollout.episode.task.question
        assert bytes(rollout.trajectory.ids).decode() == f"{question}\n"
        assert rollout.trajectory.num_prompt_tokens == len(rollout.trajectory)

    @pytest.mark.parametrize("limit", [40, 55, 70])
    def test_passages_are_cut_before_wrapping_so_the_closing_tag_survives(
        self, toy_world: Any, policy: Policy, limit: int
    ):
        world = toy_world(retriever="random", topk=6)
        limits = replace(WIDE, max_observation_tokens=limit)
        (rollout,), _ = say(world, [SEARCH_MIRA, ANSWER], policy.renderer, limits)
        observation = rollout.episode.turns[0].observation
        assert observation.startswith("\n\n<information>Doc 1")
        assert observation.endswith("</information>\n\n")
        tokens = [a for a in rollout.trajectory.authors if a is Author.ENV]
        assert len(tokens) == policy.renderer.count(observation) <= limit
        assert rollout.episode.format_score == 1.0
        (whole,), _ = say(world, [SEARCH_MIRA, ANSWER], policy.renderer, WIDE)
        assert len(observation) < len(whole.episode.turns[0].observation)

    def test_observation_that_fills_its_budget_exactly_is_not_cut(
        self, toy_world: Any, policy: Policy
    ):
        """One token less in the budget, and the same observation is cut, and counted as cut."""
        world = toy_world("toy-faulty", fault="ignores-budget")
        turns = [SEARCH_MIRA] * 2 + [Said("", TurnStop.EOS, (next(iter(policy.eos_ids)),))]
        wide = Limits(1000, 10_000, 20_000)
        (whole,), _ = say(world, turns, policy.renderer, wide)
        shown = whole.episode.turns[0].observation
        size = policy.renderer.count(shown)
        for limit, num_cut in ((size, 0), (size - 1, 2)):
            limits = replace(wide, max_observation_tokens=limit)
            (rollout,), _ = say(world, turns, policy.renderer, limits)
            assert rollout.episode.signals.get("observations_cut", 0) == num_cut
            for turn in rollout.episode.turns[:2]:
                assert (turn.observation == shown) == (num_cut == 0)
                assert 0 < policy.renderer.count(turn.observation) <= limit

    def test_observation_that_fills_the_trajectory_exactly_leaves_no_turn(self, toy_world: Any):
        """It is not appended, no turn of 0 tokens is asked for, and the last gets what is left."""
        world, codec = toy_world(), ByteCodec()
        (whole,), _ = say(world, [SEARCH_MIRA, ANSWER], codec, WIDE, index=3)
        full = len(whole.trajectory) - len(ANSWER)
        for total, num_asked in ((full, 1), (full + 1, 2), (full + 5, 2)):
            limits = replace(WIDE, max_total_tokens=total)
            (rollout,), generator = say(world, [SEARCH_MIRA, ANSWER], codec, limits, index=3)
            assert [most for _, most in generator.submitted[1:]] == [total - full] * (num_asked - 1)
            assert num_asked == 1 or len(rollout.trajectory) == total
            assert rollout.episode.stop_reason is StopReason.TOTAL_TOKENS
            assert bool(rollout.episode.turns[0].observation) == (num_asked == 2)

    def test_passages_that_found_no_room_do_not_count_as_shown(
        self, toy_world: Any, policy: Policy
    ):
        world = toy_world(metrics=["support_recall"])
        shown, _ = say(world, [SEARCH_MIRA, ANSWER], policy.renderer, WIDE)
        assert shown[0].episode.passages and shown[0].episode.turns[0].ranks
        limits = replace(WIDE, max_total_tokens=len(shown[0].trajectory) - 30)
        cut, _ = say(world, [SEARCH_MIRA, ANSWER], policy.renderer, limits)
        assert cut[0].episode.stop_reason is StopReason.TOTAL_TOKENS
        assert cut[0].episode.passages == () and cut[0].episode.turns[0].observation == ""
        assert cut[0].episode.turns[0].ranks == ()


class TestEpisodeText:
    def test_forced_opening_belongs_to_the_first_turn_and_to_the_prompt(
        self, toy_world: Any, policy: Policy
    ):
        world = toy_world()
        (rollout,), _ = say(
            world, ["mira</search>", ANSWER], policy.renderer, WIDE, forced="search"
        )
        turn = rollout.episode.turns[0]
        assert turn.text == world.protocol.opening("search") + "mira</search>"
        assert turn.action.queries == ("mira",) and rollout.episode.format_score == 1.0
        opening = world.protocol.opening("search")
        prompt = rollout.trajectory.ids[: rollout.trajectory.num_prompt_tokens]
        assert policy.renderer.decode(prompt).endswith(opening)
        assert rollout.trajectory.num_model_tokens == len(
            policy.renderer.encode_model_text("mira</search>")
        ) + len(policy.renderer.encode_model_text(ANSWER))

    def test_plain_gymnasium_env_is_driven_all_the_same(self, toy_world: Any, policy: Policy):
        """An env that knows nothing of us: seeded by us, equal for all siblings, env rewards."""
        world = toy_world("plain", reward="env", metrics=["format"])
        rollouts, _ = say(world, [ANSWER], policy.renderer, group_size=3)
        again, _ = say(world, [ANSWER], policy.renderer, group_size=3)
        assert [r.scored.reward for r in rollouts] == [0.25] * 3
        assert rollouts[0].episode.task.question.startswith("guess ")
        assert rollouts[0].trajectory.ids == rollouts[2].trajectory.ids == again[1].trajectory.ids
        assert rollouts[0].episode.turns[0].action.kind == "answer"


class TestScripted:
    def test_demonstrations_have_no_logprobs_and_the_tokens_of_training(
        self, toy_world: Any, policy: Policy
    ):
        world = toy_world()
        generator = ScriptedGenerator(policy.renderer)
        driver = RolloutDriver(generator, policy.renderer, WIDE)
        request = RolloutRequest("d", world, "train", 1, (0,), script=world.script("expert"))
        (rollout,) = driver.run([request])[0].rollouts
        assert rollout.trajectory.origin is Origin.DEMONSTRATION
        assert set(rollout.trajectory.sampler_logps) == {None}
        assert rollout.scored.reward == 1.0 and rollout.episode.num_searches == 1
        # Played by hand with the same texts: the same ids, observation included.
        texts = [turn.text for turn in rollout.episode.turns]
        (played,), _ = say(world, texts, policy.renderer, WIDE, index=1)
        assert played.trajectory.ids == rollout.trajectory.ids
        assert played.trajectory.authors == rollout.trajectory.authors

    def test_generator_without_an_expert_says_what_is_missing(self):
        codec = ByteCodec()
        generator = ScriptedGenerator(codec)
        with pytest.raises(GenerationFailure, match="one expert per dialogue"):
            generator.open([1], 2, [0, 1])


class TestFailures:
    """Unscored is not zero: a failed episode is classified, attributed, counted and left out."""

    @pytest.mark.parametrize("fault", ["reset-hangs", "step-hangs"])
    def test_a_batch_of_hanging_episodes_costs_about_one_time_out(
        self, toy_world: Any, policy: Policy, fault: str
    ):
        """Not one per episode: 64 of them at 60 s each were an hour of silence."""
        world = toy_world("toy-faulty", fault=fault, every=2)
        generator = SayingGenerator(policy.renderer.encode_model_text, [ANSWER])
        driver = RolloutDriver(generator, policy.renderer, replace(LIMITS, env_timeout_s=0.4))
        requests = [RolloutRequest(f"g{i}", world, "train", i, (1, 2, 3, 4)) for i in range(12)]
        for index, rollout in run_within(4, driver, requests):  # one after another: 24 × 0.4 s
            failure = rollout.episode.failure
            assert rollout.episode.task.index == index
            assert rollout.trajectory.group_id == f"g{index}"
            assert (failure is None) == (index % 2 == 1)
            if failure is not None:
                assert failure.kind is FailureKind.TIMEOUT
                assert failure.owner == "env 'toy-faulty' (plugin toy_world)"
                assert "time.sleep(HANG_S)" in failure.detail

    def test_hanging_instance_is_not_used_again(self, toy_world: Any, policy: Policy):
        world = toy_world("toy-faulty", fault="step-raises", every=2)
        used = []
        for index in (1, 2, 3, 1):
            before = list(world._idle)
            (rollout,), _ = say(world, [ANSWER], policy.renderer, index=index)
            used.append(before[-1] if before else None)
            assert (rollout.episode.failure is None) == (index % 2 == 1)
        assert used[0] is used[1] is not None
        assert used[2] is None and used[3] is not None

    def test_siblings_with_different_prompts_do_not_share_one(self, toy_world: Any, policy: Policy):
        world = toy_world("toy-faulty", fault="prompt-varies")
        rollouts, _ = say(world, [ANSWER], policy.renderer, group_size=3)
        failed = [r.episode.failure for r in rollouts]
        assert failed[0] is None and failed[1] is not None and failed[2] is not None
        assert "two rollouts of one group different prompts" in failed[1].message


def test_asked_to_stop_it_closes_everything_in_flight(toy_world: Any, policy: Policy):
    generator = SayingGenerator(policy.renderer.encode_model_text, [SEARCH_MIRA] * 9)
    driver = RolloutDriver(generator, policy.renderer, WIDE)
    world = toy_world()
    request = RolloutRequest("g", world, "train", 0, (1, 2, 3))
    progress: list[tuple[int, int]] = []
    with pytest.raises(Interrupted):
        driver.run(
            [request],
            on_progress=lambda done, total: progress.append((done, total)),
            should_stop=lambda: len(progress) == 2,
        )
    assert progress == [(0, 3), (0, 3)] and len(generator.closed) == 3
    # Its environments too: whoever closes the world closes them.
    assert len(world._idle) == 3


def test_asked_to_stop_it_keeps_no_environment_that_is_still_in_a_step(toy_world: Any):
    codec, world = ByteCodec(), toy_world("toy-faulty", fault="step-hangs", every=2)
    driver = RolloutDriver(SayingGenerator(codec.encode_plain, [ANSWER]), codec, WIDE)
    requests = [RolloutRequest(f"g{i}", world, "train", i, (1,)) for i in (0, 1, 3)]
    with pytest.raises(Interrupted):
        driver.run(requests, should_stop=lambda: time.sleep(0.3) is None)
    assert len(world._idle) == 2


def test_who_is_scored_together_and_what_is_rendered(
    toy_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Codec(ByteCodec):
        def render_prompt(self, *args: Any, thinking: bool = True, **more: Any) -> Any:
            rendered.append(thinking)
            return super().render_prompt(*args, thinking=thinking, **more)

    rendered, together, score = list[bool](), list[Any](), rollout_module.score_together
    monkeypatch.setattr(
        rollout_module, "score_together", lambda w, of: together.extend(of) or score(w, of)
    )
    codec, world = Codec(), toy_world()
    requests = [
        RolloutRequest(f"g{n}", world, "train", 3, keys, {"level": n})
        for n, keys in enumerate(((1, 2), (3,)))
    ]
    generator = SayingGenerator(codec.encode_plain, [ANSWER])
    groups = RolloutDriver(generator, codec, replace(WIDE, thinking=False)).run(requests)
    assert (together, rendered) == (["g0", "g0", "g1"], [False, False])
    assert [one.reset_options for group in groups for one in group.rollouts] == [
        {"level": 0}, {"level": 0}, {"level": 1},
    ]  # fmt: skip


def test_the_world_of_its_level_plays_it_and_gets_its_environment_back(toy_world: Any):
    world, level = toy_world(), toy_world()
    world.levels = {"easy": level, "hard": world}
    request = RolloutRequest("g", world, "train", 0, (1, 2), difficulty="easy")
    codec = ByteCodec()
    RolloutDriver(SayingGenerator(codec.encode_plain, [ANSWER]), codec, WIDE).run([request])
    # One of the other was made for its indexes.
    assert (len(level._idle), len(world._idle)) == (2, 1)


@pytest.mark.parametrize(("is_deterministic", "taken"), [(True, []), (False, ["over"])])
def test_while_others_decode_only_a_driver_that_may_vary_takes_steps_in(
    is_deterministic: bool, taken: list[str]
) -> None:
    nothing: Any = None
    driver = RolloutDriver(nothing, ByteCodec(), WIDE, is_deterministic)
    steps: Any = [
        SimpleNamespace(name=name, call=SimpleNamespace(outcome=outcome))
        for name, outcome in (("over", 1), ("open", None))
    ]
    ready, _ = driver._split(steps, nothing, is_idle=False)
    assert [one.name for one in ready] == taken


def test_process_scores_reach_the_algorithm_weighted(toy_world: Any):
    world = toy_world(reward="2*em-0.5*format+0.25", metrics=["searched"])
    (rollout,), _ = say(world, [SEARCH_MIRA, ANSWER], ByteCodec(), WIDE)
    assert rollout.turn_scores is None and rollout.reward == rollout.scored.reward == -0.25
    earned = [turn.reward for turn in rollout.episode.turns]
    assert sum(rollout.turn_rewards) == -0.25 != sum(earned), "together the reward"
    assert list(rollout.turn_rewards[:-1]) == earned[:-1]

    # `searched` is a metric: it has no weight.
    def scores(**per_turn: tuple[float, float]) -> Any:
        return replace(rollout, scored=replace(rollout.scored, per_turn=per_turn)).turn_scores

    assert scores(em=(1.0, 0.0), format=(1.0, 0.5), searched=(1.0, 1.0)) == (1.5, 0.0)
    # What is said of the whole episode belongs to its last turn.
    assert scores(em=(1.0, 0.0)) == (2.0, 0.25 - 0.5)
    assert scores(searched=(1.0, 1.0)) is None


def test_what_has_not_ended_in_time_is_dropped_and_the_rest_is_whole(
    policy: Policy, short_world: TaskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {r.trajectory.rollout_id: r.trajectory for r in play(policy, short_world)}
    # A clock that ticks once in each round of the loop.
    clock = SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr("searchrl.engine.rollout.rollout.time", clock)
    kept = play(policy, short_world, limits=replace(LIMITS, step_timeout_s=6))
    assert 0 < len(kept) < len(whole)
    assert all(whole[r.trajectory.rollout_id] == r.trajectory for r in kept)
