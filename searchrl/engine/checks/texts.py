"""Checks of texts: templates, round trips, stop strings, observations.

Each compares what the run's own code made with another way to get it: the tokenizer's own
functions, or what an environment said.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from searchrl.contracts import TagProtocol
from searchrl.core.encoding import make_encodable
from searchrl.core.episode import ACT, ANSWER, SEARCH, TOOL, Action, ToolCall
from searchrl.core.excerpt import take_excerpt
from searchrl.engine.checks.report import State, Verdict
from searchrl.engine.checks.trial import Prompt, Subject
from searchrl.engine.learning.batch_check import first_difference
from searchrl.engine.model.rendering import apply_template
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.engine.sampling.stops import find_stop_end
from searchrl.errors import PolicyError, SearchRLError

_AROUND = 30
"""Characters shown on either side of a difference."""

_THOUGHTS = ("<think>\n a thought \n\n</think>\n\n", "<think></think>", " \n\n<think> b</think>\t")
"""Model text whose white space and tags tokenizers and templates like to tidy up."""

_WRITTEN = (
    Action(SEARCH, ("opening hours",)),
    Action(TOOL, ToolCall("look_up", {"word": "hours"})),
    Action(ACT, "left"),
    Action(ANSWER, "16:45"),
)


def check_template(subject: Subject) -> Verdict:
    """Check that a prompt's ids hold its text whole, and that the template makes that text."""
    fix = "The tokenizer or its chat template changes prompts: use another, or report it"
    for prompt in subject.prompts:
        made = prompt.made
        decoded = _normal(_read(subject, made.ids))
        if not decoded.endswith(_normal(made.text).lstrip(" ")):
            where = _difference(_normal(made.text), decoded)
            return Verdict(
                State.FAILED, f"the ids of a prompt do not read as its text: {where}", fix
            )
        whole = _by_template(subject, prompt)
        if whole is None or whole == made.text:
            continue
        where = _difference(whole, made.text)
        if "".join(whole.split()) != "".join(made.text.split()):
            says = f"the chat template itself makes another prompt: {where}"
            return Verdict(State.FAILED, says, fix)
        return Verdict(
            State.WARNED,
            f"the chat template strips or inserts white space: {where}",
            "A server that applies the template shows the model other prompts than training; "
            "prompts without white space at their ends avoid it",
        )
    if not subject.prompts:
        return Verdict(State.SKIPPED, "no prompt was rendered")
    says = "prompts are in their ids verbatim"
    return Verdict(State.PASSED, says, figures={"prompts": len(subject.prompts)})


def _by_template(subject: Subject, prompt: Prompt) -> str | None:
    """The prompt as the tokenizer's template makes it of messages; None: there is no template."""
    tokenizer: Any = subject.policy.tokenizer
    thinking = subject.sampler.limits.thinking
    if not tokenizer.chat_template:
        return None
    instruction, user, _ = prompt
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


def check_history(tokenizer: Any, *, thinking: bool) -> Verdict:
    """Check that a chat template keeps the system message and earlier thoughts of a dialogue."""
    if not tokenizer.chat_template:
        return Verdict(State.SKIPPED, "the tokenizer has no chat template")
    dialogue = [
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": "<think>\nsome thought\n</think>\n\nreply"},
        {"role": "user", "content": "next question"},
    ]
    faults, text = [], ""
    with suppress(PolicyError):
        system = {"role": "system", "content": "some instruction"}
        text = apply_template(tokenizer, [system, *dialogue], thinking=thinking)
    if "some instruction" not in text:
        faults.append("knows no system message: the instruction heads the user's")
        text = apply_template(tokenizer, dialogue, thinking=thinking)
    if "some thought" not in text:
        faults.append("strips thoughts from earlier turns")
    if not faults:
        return Verdict(State.PASSED, "the chat template keeps all of a dialogue")
    return Verdict(
        State.WARNED,
        f"the chat template {' and '.join(faults)}",
        "Training renders each prompt once and keeps every token after it. A server that renders "
        "messages must do the same; an agent that sends them begins a segment with every request",
    )


def check_round_trip(subject: Subject) -> Verdict:
    """Check that model text survives encoding and decoding: think blocks, newlines, tags."""
    codec, texts = subject.sampler.codec, list(_THOUGHTS)
    for world in subject.worlds:
        texts += world.stops
        for action in _WRITTEN:
            try:
                texts.append(world.protocol.render_turn(action, "a thought\n\nin two parts"))
            except (ValueError, SearchRLError):
                continue  # it has no such action, or the check of stop strings says what is wrong
    for text in texts:
        read = codec.decode(codec.encode_model_text(text))
        if _normal(read) != _normal(text):
            return Verdict(
                State.FAILED,
                f"{text!r} becomes {read!r} when it is encoded and decoded",
                "The tokenizer strips or inserts characters, so tags and thoughts are not read as "
                "they were written: use another tokenizer",
            )
    says = f"{len(texts)} texts come back as they were written"
    return Verdict(State.PASSED, says, figures={"texts": len(texts)})


def check_stops(subject: Subject) -> Verdict:
    """Check that turns can end: every stop string can be written, is found, and fits a turn."""
    codec, generator = subject.sampler.codec, subject.sampler.generator
    policy, limits = subject.policy, subject.sampler.limits
    count = longest = 0
    if not policy.eos_ids:
        return Verdict(
            State.WARNED,
            "the model has no end-of-text token: only stop strings and limits end a turn",
            "Set eos_token_id in its generation_config.json",
        )
    for world in subject.worlds:
        stops, who = world.stops, world.who["protocol"]
        fix = f"Change the stop strings of {who}, or the tokenizer"
        if not stops:
            return Verdict(
                State.WARNED,
                f"{who} has no stop strings: a turn ends with the model's end-of-text token only, "
                "and an episode with its first turn",
                fix,
            )
        if problem := _find_unread(world.protocol):
            return Verdict(State.FAILED, f"{who}: {problem}", f"{fix}, or what it writes")
        for stop in stops:
            count += 1
            # Behind text and before a newline: tokens merge across both.
            for text in (f"a{stop}", f"a {stop}\n", stop):
                ids = codec.encode_model_text(text)
                is_found = find_stop_end(codec.decode(ids), stops) is not None
                if isinstance(generator, SlotGenerator):
                    is_found = is_found and bool(generator.stops_in(ids, stops))
                if not is_found:
                    return Verdict(
                        State.FAILED,
                        f"stop string {stop!r} cannot be reached: {text!r} reads "
                        f"{codec.decode(ids)!r} when the model writes it (tokens {ids})",
                        f"{fix}; --set engine.generator=hf looks for it in another way",
                    )
            length = len(codec.encode_model_text(stop))
            longest = max(longest, length)
            if length > limits.max_turn_tokens:
                return Verdict(
                    State.FAILED,
                    f"stop string {stop!r} has {length} tokens, and a turn may have "
                    f"{limits.max_turn_tokens}",
                    "Raise rollout.max_turn_tokens",
                )
    says = f"{count} stop strings are found however they are split (into up to {longest} tokens)"
    return Verdict(State.PASSED, says, figures={"stops": count, "longest_stop": longest})


def _find_unread(protocol: TagProtocol) -> str:
    """Describe the fault of a turn that a protocol writes: its end or its reading; or ""."""
    for action in _WRITTEN:
        try:
            turn = protocol.render_turn(action, "I think.")
        except ValueError:  # it writes no such action
            continue
        stops = tuple(protocol.stops)
        if not (turn.endswith(stops) or turn.rstrip().endswith(stops)):
            shown = " ".join(map(repr, stops))
            return f"it writes {turn!r}, which ends with none of its stop strings: {shown}"
        read = protocol.parse(turn)
        if read.kind != action.kind:
            action_read = f"{read.kind} {read.reason}".rstrip()
            return f"it writes {turn!r} for {action.kind}, and reads {action_read}"
    return ""


def check_observations(subject: Subject) -> Verdict:
    """Check that the model reads all observations of environments, uncut."""
    num_cut = num_read = 0
    for one in subject.played:
        trajectory, told = one.trajectory, one.episode.turns
        num_cut += int(one.episode.signals.get("observations_cut", 0))
        read_to = [0] * len(trajectory.segments)  # by the turns so far
        for turn in trajectory.turns:
            place, read_to[turn.segment] = read_to[turn.segment], turn.stop
            if turn.index == 0:
                continue  # the prompt, which `check_template` looks at
            played = told[turn.index - 1]
            num_read += turn.start - place
            ids = trajectory.segments[turn.segment].ids[place : turn.start]
            shown = _normal(_read(subject, ids)).lstrip(" ")
            said = _normal(played.observation).lstrip(" ")
            if one.world.compacts and not place:  # it stands behind what the context begins with
                shown = shown[max(0, len(shown) - len(said)) :]
            if shown != said:
                return Verdict(
                    State.FAILED,
                    "the model reads another observation than the environment gave: "
                    f"{_difference(played.observation, shown)}",
                    "The tokenizer strips or inserts characters: use another, or report it",
                    excerpt=take_excerpt(
                        trajectory, place, subject.sampler.codec.decode, segment=turn.segment
                    ),
                )
    figures = {"observation_tokens": num_read, "cut": num_cut}
    if num_cut:
        return Verdict(
            State.WARNED,
            f"{num_cut} observations of the trial were cut at "
            f"{subject.sampler.limits.max_observation_tokens:,} tokens",
            "Raise rollout.max_observation_tokens, or have the environment keep to `self.budget`",
            figures,
        )
    if not num_read:
        return Verdict(State.SKIPPED, "no episode of the trial got an observation")
    says = f"{num_read:,} tokens of observations read as they were said"
    return Verdict(State.PASSED, says, figures=figures)


def _read(subject: Subject, ids: Sequence[int]) -> str:
    """Decode ids with the tokenizer itself, not with the codec that is checked."""
    tokenizer: Any = subject.policy.tokenizer
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


def _normal(text: str) -> str:
    """Tokenizers may compose characters (NFC), and cannot hold lone surrogates."""
    return unicodedata.normalize("NFC", make_encodable(text))


def _difference(want: str, have: str) -> str:
    at = first_difference(have, want)
    part = slice(max(0, at - _AROUND), at + _AROUND)
    return f"expected {want[part]!r}, found {have[part]!r}"
