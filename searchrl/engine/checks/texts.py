"""Checks of texts and ids: lengths, templates, round trips, stop strings, the ledger.

Each compares what the run's own code made with another way to get it: the tokenizer's own
functions, or what was recorded beside the ledger. Caller: `doctor`.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from typing import Any

from searchrl.contracts import TagProtocol
from searchrl.core.episode import ACT, ANSWER, SEARCH, TOOL, Action, ToolCall
from searchrl.core.excerpt import Excerpt, take_excerpt, visible
from searchrl.core.group import Group, TrainItem
from searchrl.core.trajectory import Author, Trajectory, TurnStop
from searchrl.engine.checks.report import Verdict, failed, passed, skipped, warned
from searchrl.engine.checks.subject import Case, TextCase
from searchrl.engine.checks.trial import Played, Rendering
from searchrl.engine.episodes.boundary import begin_episode
from searchrl.engine.episodes.dialogue import RolloutRequest
from searchrl.engine.model.templates import apply_template
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.engine.sampling.stops import find_stop_end
from searchrl.errors import PolicyError, SearchRLError

NOTHING_PLAYED = "no token was sampled in the trial"
_PROMPTS = 16
"""Training tasks of each world whose prompts a thorough check renders."""
_AROUND = 30
"""Characters shown on either side of a difference."""

_THOUGHTS = ("<think>\n a thought \n\n</think>\n\n", "<think></think>", " \n\n<think> b</think>\t")
"""Model text whose white space and tags tokenizers and templates like to tidy up."""


def check_episodes(case: Case) -> Verdict:
    """Whether environments could be played."""
    trial = case.trial
    num_failed, num_played = len(trial.failures), len(trial.played)
    if not num_failed:
        return passed(f"{num_played} short episodes played", {"episodes": num_played})
    says = f"{num_failed} of the trial's episodes failed: {visible(trial.failures[0])}"
    fix = "Look at the environment: searchrl check NAME"
    if not case.is_thorough:  # the failure limit of the run decides
        return warned(says, fix, figures={"episodes": num_played, "failures": num_failed})
    return failed(says, fix, figures={"episodes": num_played, "failures": num_failed})


def check_lengths(case: TextCase) -> Verdict:
    """Whether prompts leave room for turns, and whether limits were kept."""
    limits = case.subject.sampler.limits
    lengths = [len(one.made.ids) for one in case.trial.renderings]
    if case.is_thorough:
        lengths += _prompt_lengths(case)
    if not lengths:
        return skipped("no prompt was rendered")
    longest, total = max(lengths), limits.max_total_tokens
    figures = {"prompts": len(lengths), "longest_prompt": longest, "max_total_tokens": total}
    positions = case.subject.policy.max_positions
    if total > positions:
        return failed(
            f"episodes may have {total:,} tokens, and the model was made for {positions:,}",
            "Lower rollout.max_total_tokens",
            figures=figures,
        )
    if longest >= total:
        return failed(
            f"a prompt of {longest:,} tokens leaves no room for a turn: episodes end at {total:,}",
            "Raise rollout.max_total_tokens and model.max_context, or shorten the instruction",
            figures=figures,
        )
    for one in case.trial.played:
        turns = [turn.stop - turn.start for turn in one.trajectory.turns]
        if len(one.trajectory) > total or max(turns, default=0) > limits.max_turn_tokens:
            return failed(
                f"an episode has {len(one.trajectory):,} tokens and turns of {turns}; the limits "
                f"are {total:,} and {limits.max_turn_tokens:,}",
                "The generator or the rollout driver does not keep the limits: report it",
                figures=figures,
            )
    if longest + limits.max_turn_tokens > total:
        return warned(
            f"behind a prompt of {longest:,} tokens there is room for {total - longest:,} of the "
            f"{limits.max_turn_tokens:,} tokens that a turn may have",
            "Raise rollout.max_total_tokens and model.max_context",
            figures=figures,
        )
    return passed(f"prompts of up to {longest:,} tokens, {total:,} in an episode", figures=figures)


def _prompt_lengths(case: TextCase) -> list[int]:
    """Tokens of the prompts of some tasks, evenly spread."""
    driver, lengths = case.subject.sampler, []
    for world in case.subject.worlds:
        count = world.num_tasks("train")
        for index in dict.fromkeys(n * count // _PROMPTS for n in range(_PROMPTS)):
            request = RolloutRequest("lengths", world, "train", index, (index,))
            begin = functools.partial(
                begin_episode,
                world=world,
                options=request.reset_options,
                seed=request.env_seed,
                budget=driver.codec.budget(driver.limits.max_observation_tokens),
            )
            try:
                begun = world.ask(begin)
            except Exception:  # of a plugin; the episodes check tells of failures
                continue
            made = driver.codec.render_prompt(
                world.protocol.instruction, begun.prompt, thinking=driver.limits.thinking
            )
            lengths.append(len(made.ids))
    return lengths


def check_template(case: TextCase) -> Verdict:
    """Whether a prompt's ids hold its text whole, and the text is what the template makes."""
    for rendering in case.trial.renderings:
        instruction, user, made = rendering
        decoded = _normal(_read(case, made.ids))
        fix = "The tokenizer or its chat template changes prompts: use another, or report it"
        if not decoded.endswith(_normal(made.text).lstrip(" ")):
            where = _difference(_normal(made.text), decoded)
            return failed(f"the ids of a prompt do not read as its text: {where}", fix)
        for name, text in (("the environment's prompt", user), ("the instruction", instruction)):
            if _normal(text) not in decoded:
                return failed(f"{name} is not in the rendered prompt as it was written", fix)
        if not decoded.endswith(_normal(made.assistant_prefix)):
            return failed(
                f"the parser is told that the first turn begins with {made.assistant_prefix!r}, "
                f"and the prompt ends with {decoded[-_AROUND:]!r}",
                fix,
            )
        own = _by_template(case, rendering)
        if own is None or own == made.text:
            continue
        where = _difference(own, made.text)
        if "".join(own.split()) != "".join(made.text.split()):
            return failed(f"the chat template itself makes another prompt: {where}", fix)
        return warned(
            f"the chat template strips or inserts white space: {where}",
            "A server that applies the template shows the model other prompts than training; "
            "prompts without white space at their ends avoid it",
        )
    if not case.trial.renderings:
        return skipped("no prompt was rendered")
    return passed("prompts are in their ids verbatim", {"prompts": len(case.trial.renderings)})


def _read(case: TextCase, ids: Sequence[int]) -> str:
    """What ids say: the tokenizer's own reading, not the codec's that is looked at."""
    tokenizer: Any = case.subject.policy.tokenizer
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


def _by_template(case: TextCase, rendering: Rendering) -> str | None:
    """The prompt as the tokenizer's template makes it of messages; None: there is no template."""
    tokenizer: Any = case.subject.policy.tokenizer
    thinking = case.subject.sampler.limits.thinking
    if not tokenizer.chat_template:
        return None
    instruction, user, _ = rendering
    if instruction:
        system = {"role": "system", "content": instruction}
        messages = [system, {"role": "user", "content": user}]
        try:
            text = apply_template(tokenizer, messages, thinking=thinking)
        except PolicyError:
            text = ""
        if instruction.strip() in text:
            return text
        # It knows no system message: the instruction heads the user's.
        user = f"{instruction}\n\n{user}"
    return apply_template(tokenizer, [{"role": "user", "content": user}], thinking=thinking)


def check_round_trip(case: TextCase) -> Verdict:
    """Whether what a model writes survives encoding and decoding: think blocks, newlines, tags."""
    codec, texts = case.subject.sampler.codec, list(_THOUGHTS)
    for world in case.subject.worlds:
        protocol = world.protocol
        texts += protocol.stops
        for action in (Action(SEARCH, ("a b",)), Action(ANSWER, "c")):
            try:
                texts.append(protocol.render_turn(action, "a thought\n\nin two parts"))
            except (ValueError, SearchRLError):
                continue  # it has no such action, or its own check says what is wrong
    for text in texts:
        ids = codec.encode_model_text(text)
        read = codec.decode(ids)
        if _normal(read) != _normal(text):
            return failed(
                f"{text!r} becomes {read!r} when it is encoded and decoded",
                "The tokenizer strips or inserts characters, so tags and thoughts are not read as "
                "they were written: use another tokenizer",
            )
    return passed(f"{len(texts)} texts come back as they were written", {"texts": len(texts)})


def check_stops(case: TextCase) -> Verdict:
    """Whether every stop string can be written, is found, and fits a turn."""
    codec, generator = case.subject.sampler.codec, case.subject.sampler.generator
    limits, count = case.subject.sampler.limits, 0
    for world in case.subject.worlds:
        stops = world.protocol.stops
        fix = f"Change the stop strings of {world.who('protocol')}, or the tokenizer"
        if not stops:
            return warned(
                f"{world.who('protocol')} has no stop strings: a turn ends with the model's "
                "end-of-text token only, and an episode with its first turn",
                fix,
            )
        if problem := _find_unread(world.protocol):
            return failed(f"{world.who('protocol')}: {problem}", f"{fix}, or what it writes")
        for stop in stops:
            count += 1
            # Behind text and before a newline: tokens merge across both.
            for text in (f"a{stop}", f"a {stop}\n", stop):
                ids = codec.encode_model_text(text)
                if find_stop_end(codec.decode(ids), stops) is None:
                    return failed(
                        f"stop string {stop!r} cannot be reached: {text!r} reads "
                        f"{codec.decode(ids)!r} when the model writes it",
                        fix,
                    )
                if isinstance(generator, SlotGenerator) and not generator.stops_in(ids, stops):
                    return failed(
                        f"stop string {stop!r} cannot be reached: the generator does not see it "
                        f"in {text!r} (tokens {ids})",
                        "Use --set engine.generator=hf, and report it",
                    )
            if (length := len(codec.encode_model_text(stop))) > limits.max_turn_tokens:
                return failed(
                    f"stop string {stop!r} has {length} tokens, and a turn may have "
                    f"{limits.max_turn_tokens}",
                    "Raise rollout.max_turn_tokens",
                )
    return passed(f"{count} stop strings are found however they are split", {"stops": count})


_WRITTEN = (
    Action(SEARCH, ("opening hours",)),
    Action(TOOL, ToolCall("look_up", {"word": "hours"})),
    Action(ACT, "left"),
    Action(ANSWER, "16:45"),
)


def _find_unread(protocol: TagProtocol) -> str:
    """What is wrong with a turn that a protocol writes: where it ends, or how it is read; or ""."""
    for action in _WRITTEN:
        try:
            turn = protocol.render_turn(action, "I think.")
        except ValueError:  # it writes no such action
            continue
        if not turn.rstrip().endswith(tuple(protocol.stops)):
            stops = " ".join(protocol.stops)
            return f"it writes {turn!r}, which ends with none of its stop strings: {stops}"
        read = protocol.parse(turn)
        if read.kind != action.kind:
            said = f"{read.kind} {read.reason}".rstrip()
            return f"it writes {turn!r} for {action.kind}, and reads {said}"
    return ""


def check_eos(case: TextCase) -> Verdict:
    """Whether a genuine end-of-text or padding token that the model writes is trained."""
    policy = case.subject.policy
    if not policy.eos_ids:
        return warned(
            "the model has no end-of-text token: only stop strings and limits end a turn",
            "Set eos_token_id in its generation_config.json",
        )
    strange = [one for one in policy.eos_ids if not 0 <= one < policy.vocab_size]
    if strange:
        return failed(
            f"end-of-text token {strange[0]} is not among the {policy.vocab_size:,} of the model",
            "Set eos_token_id in its generation_config.json",
        )
    if not case.trial.played:
        return skipped(NOTHING_PLAYED)
    pad = policy.tokenizer.pad_token_id
    written = sorted({0, *policy.eos_ids, *(() if pad is None else (pad,))})
    lost = _untrained(case, written)
    if lost is not None:
        return failed(
            f"token {lost} ({'padding' if lost == pad else 'end of text'}) is not trained where "
            "the model writes it: it is taken for padding",
            "A mask is a matter of position, not of ids: report it",
        )
    also = " (it is the padding token too; masks go by position)" if pad in policy.eos_ids else ""
    names = ", ".join(map(str, sorted(policy.eos_ids)))
    return passed(f"end of text {names} is trained where the model writes it{also}")


def _untrained(case: TextCase, ids: Sequence[int]) -> int | None:
    """The first of some ids that is not trained where a model writes them; None: all are."""
    written = Trajectory("eos", "eos")
    written.append_prompt(case.trial.played[0].trajectory.ids[:2])
    written.append_model(ids, [-1.0] * len(ids), version=0, reason=TurnStop.EOS)
    packed = case.pack([Group("eos", (TrainItem(written, 1.0),))])
    trained = [i for batch in case.batches(packed) for i in batch.layout.target_N.tolist()]
    return next((one for one in ids if one not in trained), None)


def check_ledger(case: TextCase) -> Verdict:
    """Whether a ledger holds what the generator was given and gave back, in order."""
    fix = "A turn was encoded again, cut or shifted on its way into the ledger: report it"
    for one in case.trial.played:
        ids, stream = list(one.trajectory.ids), one.stream
        if ids != stream:
            place = next(
                (n for n, (a, b) in enumerate(zip(ids, stream, strict=False)) if a != b),
                min(len(ids), len(stream)),
            )
            there = [column[place] if place < len(column) else None for column in (stream, ids)]
            return failed(
                f"token {place} was sampled or appended as {there[0]} and is {there[1]} in the "
                f"ledger: ids are not appended, they were made again",
                fix,
                _excerpt(case, one, place),
            )
        recorded = [logp for logp in one.trajectory.sampler_logps if logp is not None]
        if recorded != one.logps:
            return failed(
                f"the ledger has {len(recorded)} log-probs, the generator gave {len(one.logps)}, "
                "and they are not the same",
                fix,
                _excerpt(case, one, one.trajectory.num_prompt_tokens),
            )
    if not case.trial.played:
        return skipped(NOTHING_PLAYED)
    tokens = sum(len(one.stream) for one in case.trial.played)
    return passed(f"{tokens:,} tokens are those of the generator", {"tokens": tokens})


def check_turns(case: TextCase) -> Verdict:
    """Whether an environment was told what the tokens say, and the model what it answered."""
    fix = "Text was stripped or inserted on the way: report it"
    for one in case.trial.played:
        trajectory, stops = one.trajectory, one.world.protocol.stops
        made = next(
            (r.made for r in case.trial.renderings if _begins(trajectory.ids, r.made.ids)), None
        )
        turns = list(zip(trajectory.turns, one.rollout.episode.turns, strict=False))
        for turn, told in turns:
            ids = list(trajectory.ids[turn.start : turn.stop])
            if turn.reason is TurnStop.EOS:  # that of a turn that counts as cut stays
                ids.pop()
            text = _read(case, ids)
            end = find_stop_end(text, stops)
            prefix = made.assistant_prefix if made and turn.index == 0 else ""
            expected = prefix + (text if end is None else text[:end])
            if told.text != expected:
                return failed(
                    f"the environment was told another turn than the tokens say: "
                    f"{_difference(expected, told.text)}",
                    fix,
                    _excerpt(case, one, turn.start),
                )
            stop = next(
                (t.start for t in trajectory.turns if t.index == turn.index + 1), len(trajectory)
            )
            shown = _read(case, trajectory.ids[turn.stop : stop])
            if _normal(shown).lstrip(" ") != _normal(told.observation).lstrip(" "):
                return failed(
                    f"the model reads another observation than the environment gave: "
                    f"{_difference(told.observation, shown)}",
                    fix,
                    _excerpt(case, one, turn.stop),
                )
    if not case.trial.played:
        return skipped(NOTHING_PLAYED)
    num_turns = sum(len(one.trajectory.turns) for one in case.trial.played)
    num_read = sum(
        author is Author.ENV for p in case.trial.played for author in p.trajectory.authors
    )
    return passed(
        f"{num_turns} turns and {num_read:,} tokens of observations read as they were said",
        {"turns": num_turns, "observation_tokens": num_read},
    )


def _excerpt(case: TextCase, one: Played, place: int) -> Excerpt:
    return take_excerpt(one.trajectory, place, case.subject.sampler.codec.decode)


def _begins(ids: Sequence[int], prompt: Sequence[int]) -> bool:
    return list(ids[: len(prompt)]) == list(prompt)


def _normal(text: str) -> str:
    """Tokenizers may compose characters (NFC), and cannot hold lone surrogates."""
    return unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def _difference(want: str, have: str) -> str:
    """Where two texts part, in a few characters."""
    at = next(
        (n for n, (a, b) in enumerate(zip(want, have, strict=False)) if a != b),
        min(len(want), len(have)),
    )
    part = slice(max(0, at - _AROUND), at + _AROUND)
    return f"expected {want[part]!r}, found {have[part]!r}"
