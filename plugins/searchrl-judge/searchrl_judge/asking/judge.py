"""The judges `endpoint` and `gemini`: a model behind an OpenAI-compatible address.

Owns how verdicts, lists and pairs are asked for, what is asked again, and the estimate. Cache,
budget, repetitions, time limits and the key are those of `searchrl.api_client`; Gemini is asked
through Google's OpenAI-compatible address, so there is one client. Registered by the package.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from searchrl import ConfigError, EndpointFailure
from searchrl.api_client import Client, EndpointConfig, Reply, Request
from searchrl.contracts import Address, JudgeCase, Traffic, Unscored, VariableName, Verdict
from searchrl_judge.asking.prompts import (
    MAX_RANKED,
    ask_better,
    ask_scores,
    ask_verdict,
    read_rubric,
)
from searchrl_judge.asking.replies import Unreadable, read_better, read_scores, read_verdict

T = TypeVar("T")

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"

MAX_DRAWS = 3
"""Times that a question is asked until its reply can be read."""

_CHARS_PER_TOKEN = 4
_REPLY_TOKENS = 60
"""For estimates: tokens of a reply (two short sentences and a verdict)."""
_TYPICAL = JudgeCase("x" * 120, "x" * 40, ("x" * 30,))
"""For estimates: a question and an answer of the usual length."""

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Price = Annotated[float, Field(ge=0)]


class Ranking(StrEnum):
    """How the answers of a group are ranked."""

    LIST = "list"
    """All in one question, each with a score: one call per group."""
    PAIRS = "pairs"
    """Every pair in both orders, so that the first place is worth nothing: n (n - 1) calls."""


class EndpointJudge:
    """Asks one model; safe to use from several threads.

    Args:
        client: where and how it is asked.
        rubric: when an answer is right.
        ranking_rubric: when an answer is better than another one.
        ranking: how a group is ranked.
    """

    absence = ""
    """Why it cannot be asked at all; empty if it can."""

    def __init__(
        self,
        client: Client,
        rubric: str,
        ranking_rubric: str,
        ranking: Ranking = Ranking.LIST,
    ) -> None:
        self._client = client
        self._rubric = rubric
        self._ranking_rubric = ranking_rubric
        self._ranking = ranking
        # Its threads and its cache end with it.
        weakref.finalize(self, client.close)

    @property
    def traffic(self) -> Traffic:
        """What was sent and spent so far."""
        return self._client.traffic

    def estimate(self, num_groups: int, group_size: int) -> Traffic:
        """About what judging would cost, if nothing were in the cache.

        Raises:
            ConfigError: if there is no key, and it needs one.
        """
        if self.absence:
            raise ConfigError(self.absence)
        cases, count = [_TYPICAL] * min(group_size, MAX_RANKED), 1
        if group_size == 1:
            request = ask_verdict(self._rubric, _TYPICAL)
        elif self._ranking is Ranking.LIST:
            request = ask_scores(self._ranking_rubric, cases)
        else:
            request = ask_better(self._ranking_rubric, _TYPICAL, _TYPICAL)
            count = group_size * (group_size - 1)
        calls = num_groups * count
        chars = sum(len(message.content) for message in request.messages)
        tokens = (calls * (chars // _CHARS_PER_TOKEN), calls * _REPLY_TOKENS)
        return self._client.estimate(calls, *tokens)

    def judge(self, case: JudgeCase) -> Verdict | Unscored:
        """Ask for one verdict.

        Raises:
            BudgetSpent: if nothing may be sent any more.
            EndpointFailure: if no reply comes, or none that can be read.
        """
        return self._ask(lambda draw: ask_verdict(self._rubric, case, draw), read_verdict)

    def rank(self, cases: Sequence[JudgeCase]) -> list[Verdict | Unscored]:
        """Ask how good the answers are compared with each other; a single one is judged.

        Equal answers are asked about once. Raises as `judge`.
        """
        distinct = list(dict.fromkeys(cases))
        said: list[Verdict | Unscored]
        if len(distinct) < 2:
            said = [self.judge(case) for case in distinct]
        elif self._ranking is Ranking.PAIRS:
            said = self._rank_pairs(distinct)
        else:
            said = self._rank_list(distinct)
        found = dict(zip(distinct, said, strict=True))
        return [found[case] for case in cases]

    def _rank_list(self, cases: list[JudgeCase]) -> list[Verdict | Unscored]:
        if len(cases) > MAX_RANKED:
            raise EndpointFailure(
                f"{len(cases)} answers cannot be ranked in one question (at most {MAX_RANKED}); "
                "use --set judge.ranking=pairs, or smaller groups"
            )
        said = self._ask(
            lambda draw: ask_scores(self._ranking_rubric, cases, draw),
            lambda text: read_scores(text, len(cases)),
        )
        return [said] * len(cases) if isinstance(said, Unscored) else [*said]

    def _rank_pairs(self, cases: list[JudgeCase]) -> list[Verdict | Unscored]:
        """The share of its comparisons that each answer wins; equal ones are half."""
        pairs = [pair for both in combinations(range(len(cases)), 2) for pair in (both, both[::-1])]
        asked = [self._start_pair(cases, *pair) for pair in pairs]
        points = [0.0] * len(cases)
        for (first, second), finish in zip(pairs, asked, strict=True):
            won = finish()
            if isinstance(won, Unscored):
                return [won] * len(cases)
            points[first] += won
            points[second] += 1 - won
        most = 2 * (len(cases) - 1)
        return [Verdict(point / most, f"wins {point:g} of {most}") for point in points]

    def _start_pair(
        self, cases: list[JudgeCase], first: int, second: int
    ) -> Callable[[], float | Unscored]:
        """Ask about a pair in the background; the result is what ends it."""

        def ask(draw: int) -> Request:
            return ask_better(self._ranking_rubric, cases[first], cases[second], draw)

        reply = self._start(ask(0))
        return lambda: self._ask(ask, read_better, reply)

    def _start(self, request: Request) -> Callable[[], Reply]:
        if self.absence:
            raise EndpointFailure(self.absence)
        return self._client.start(request).result

    def _ask(
        self,
        make: Callable[[int], Request],
        read: Callable[[str], T],
        first: Callable[[], Reply] | None = None,
    ) -> T | Unscored:
        """Ask until a reply can be read; `first` ends a question that is under way."""
        said = ""
        for draw in range(MAX_DRAWS):
            request = make(draw)
            wait = first if draw == 0 and first is not None else self._start(request)
            reply = wait()
            if reply.finish == "content_filter":
                return Unscored("the server withholds what its model says of this answer")
            try:
                return read(reply.text)
            except Unreadable as error:
                self._client.forget(request)  # else it could never be judged again
                said = str(error)
                if reply.finish == "length":
                    said = f"it was cut off at {request.max_tokens} tokens; {said}"
        raise EndpointFailure(
            f"{self._client.url} sent no verdict in {MAX_DRAWS} replies; the last: {said}"
        )


def make_endpoint(
    *,
    url: Address = "http://localhost:8000/v1",
    model: str = "default",
    rubric: str | None = None,
    ranking: Ranking = Ranking.LIST,
    ranking_rubric: str | None = None,
    key_env: VariableName = "SEARCHRL_API_KEY",
    concurrency: Count = 32,
    timeout_s: Annotated[float, Field(gt=0)] = 15.0,
    max_retries: NotNegative = 2,
    max_calls: NotNegative | None = None,
    max_tokens: NotNegative | None = None,
    max_cost: Price | None = None,
    prompt_price: Price | None = None,
    completion_price: Price | None = None,
    cache: str | bool = "auto",
    extra: dict[str, Any] | None = None,
) -> EndpointJudge:
    """Make the judge `endpoint`.

    Args:
        url: the address, such as that of vLLM: `http://localhost:8000/v1`.
        model: the name under which the server knows the model.
        rubric: a text file that says when an answer is right; None: that of the package.
        ranking: `list` or `pairs`, see `Ranking`.
        ranking_rubric: a text file that says which answer is better; None: that of the package.
        key_env: the environment variable with the key; without one, none is sent.
        concurrency: requests under way at the same time.
        timeout_s: seconds until a call with all its repetitions counts as failed. A verdict (up to
            three calls) should fit into `rollout.reward_timeout_s`.
        max_retries: repetitions of a call that failed in a way that may pass.
        max_calls, max_tokens, max_cost: the budget, as in the section `endpoint`.
        prompt_price, completion_price: of a million tokens.
        cache: file of the cache of replies; `auto`: in your own cache folder; `off`: none.
        extra: keys added to every body; null takes one out, such as `response_format`.

    Raises:
        ConfigError: a setting is wrong, or a rubric cannot be read.
    """
    given = {
        "key_env": key_env,
        "concurrency": concurrency,
        "timeout_s": timeout_s,
        "max_retries": max_retries,
        "max_calls": max_calls,
        "max_tokens": max_tokens,
        "max_cost": max_cost,
        "prompt_price": prompt_price,
        "completion_price": completion_price,
        "cache": cache,
        "extra": extra or {},
    }
    try:
        settings = EndpointConfig.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(["judge", *map(str, first["loc"])])
        text = str(first["msg"]).replace("endpoint.", "judge.")
        raise ConfigError(f"{place}: {text}") from error
    texts = (read_rubric(rubric, "rubric"), read_rubric(ranking_rubric, "ranking"))
    return EndpointJudge(Client(url, model, settings, "judge"), *texts, Ranking(ranking))


def make_gemini(
    *,
    model: str = "gemini-2.5-flash",
    url: Address = GEMINI_URL,
    key_env: VariableName = "GEMINI_API_KEY",
    concurrency: Count = 16,
    extra: dict[str, Any] | None = None,
    **settings: Any,
) -> EndpointJudge:
    """Make the judge `gemini`: `endpoint` with Google's address; its other settings are the same.

    Raises:
        ConfigError: as `make_endpoint`. Without a key it is made, and says so when it is asked.
    """
    made = make_endpoint(
        model=model, url=url, key_env=key_env, concurrency=concurrency, extra=extra, **settings
    )
    if not os.environ.get(key_env, "").strip():
        made.absence = (
            f"judge gemini: the environment variable {key_env} holds no key; set it to one of "
            "https://aistudio.google.com, or name another variable with --set judge.key_env=NAME"
        )
    return made
