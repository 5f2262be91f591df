"""The judges `endpoint` and `gemini`: a model behind an OpenAI-compatible address.

Owns how verdicts and rankings are asked for, what is asked again, and the estimate. Cache,
budget, repetitions, time limits and the key are those of `searchrl.api_client`; Gemini is asked
through Google's OpenAI-compatible address, so there is one client. Registered by the package.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from searchrl import ConfigError, EndpointFailure
from searchrl.api_client import Client, EndpointConfig, Request
from searchrl.contracts import Address, JudgeCase, Traffic, Unscored, VariableName, Verdict
from searchrl_judge.prompts import MAX_RANKED, ask_scores, ask_verdict, clean, read_rubric
from searchrl_judge.replies import Unreadable, read_scores, read_verdict

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
Share = Annotated[float, Field(gt=0, le=1)]


class EndpointJudge:
    """Asks one model; safe to use from several threads.

    Args:
        client: where and how it is asked.
        rubric: when an answer is right.
        ranking_rubric: when an answer is better than another one.
        thresholds: it is asked for numbers, which are partly right, and right, from these on;
            none: for words.
    """

    absence = ""
    """Why it cannot be asked at all; empty if it can."""

    def __init__(
        self, client: Client, rubric: str, ranking_rubric: str, thresholds: Sequence[float] = ()
    ) -> None:
        self._client = client
        self._rubric = rubric
        self._ranking_rubric = ranking_rubric
        self._thresholds = thresholds
        # Its threads and its cache end with it.
        weakref.finalize(self, client.close)

    @property
    def traffic(self) -> Traffic:
        """Requests, tokens and cost so far."""
        return self._client.traffic

    def estimate(self, num_groups: int, group_size: int) -> Traffic:
        """About what judging would cost, if nothing were in the cache.

        Raises:
            ConfigError: if there is no key, and it needs one.
        """
        if self.absence:
            raise ConfigError(self.absence)
        if group_size == 1:
            request = ask_verdict(self._rubric, _TYPICAL, as_number=bool(self._thresholds))
        else:
            cases = [_TYPICAL] * min(group_size, MAX_RANKED)
            request = ask_scores(self._ranking_rubric, cases)
        chars = sum(len(message.content) for message in request.messages)
        tokens = (num_groups * (chars // _CHARS_PER_TOKEN), num_groups * _REPLY_TOKENS)
        return self._client.estimate(num_groups, *tokens)

    def judge(self, case: JudgeCase) -> Verdict | Unscored:
        """Ask for one verdict.

        Raises:
            BudgetSpent: if nothing may be sent any more.
            EndpointFailure: if no reply comes, or none that can be read.
        """
        make = partial(ask_verdict, self._rubric, case, as_number=bool(self._thresholds))
        read = partial(read_verdict, thresholds=self._thresholds, answers=[clean(case.answer)])
        return self._ask(make, read)

    def rank(self, cases: Sequence[JudgeCase]) -> list[Verdict | Unscored]:
        """Ask how good the answers are compared with each other; a single one is judged.

        Equal answers are asked about once. Raises as `judge`.
        """
        distinct = list(dict.fromkeys(cases))
        said: list[Verdict | Unscored]
        if len(distinct) > MAX_RANKED:
            raise EndpointFailure(
                f"{len(distinct)} answers cannot be ranked in one question (at most {MAX_RANKED}); "
                "use smaller groups, or the reward judge in place of judge_rank"
            )
        if len(distinct) < 2:
            said = [self.judge(case) for case in distinct]
        else:
            make = partial(ask_scores, self._ranking_rubric, distinct)
            answers = [clean(case.answer) for case in distinct]
            scores = self._ask(make, partial(read_scores, count=len(distinct), answers=answers))
            said = [scores] * len(distinct) if isinstance(scores, Unscored) else [*scores]
        found = dict(zip(distinct, said, strict=True))
        return [found[case] for case in cases]

    def _ask(self, make: Callable[[int], Request], read: Callable[[str], T]) -> T | Unscored:
        """Ask until a reply can be read."""
        if self.absence:
            raise EndpointFailure(self.absence)
        said = ""
        for draw in range(MAX_DRAWS):
            request = make(draw)
            reply = self._client.start(request).result()
            if reply.finish == "content_filter":
                return Unscored("the server withholds what its model says of this answer")
            try:
                if reply.finish == "length":
                    raise Unreadable(f"it was cut off at {request.max_tokens} tokens")
                return read(reply.text)
            except Unreadable as error:
                self._client.forget(request)  # else it could never be judged again
                said = str(error)
        raise EndpointFailure(
            f"{self._client.url} sent no verdict in {MAX_DRAWS} replies; the last: {said}"
        )


def make_endpoint(
    *,
    url: Address = "http://localhost:8000/v1",
    model: str = "default",
    scale: Literal["discrete", "continuous"] = "discrete",
    thresholds: tuple[Share, Share] = (0.25, 0.75),
    rubric: str | None = None,
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
        scale: `discrete`: wrong, partly right or right; `continuous`: a number from 0 to 1.
        thresholds: from which number on an answer is partly right, and right, for whoever wants
            0, 0.5 or 1.
        rubric: a text file that says when an answer is right; None: that of the package.
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
        ConfigError: a setting is wrong, or a rubric cannot be read. Without a key for Google the
            judge is made, and says so when it is asked.
    """
    given = {key: value for key, value in locals().items() if key in EndpointConfig.model_fields}
    try:
        settings = EndpointConfig.model_validate(given | {"extra": extra or {}})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(["judge", *map(str, first["loc"])])
        text = str(first["msg"]).replace("endpoint.", "judge.")
        raise ConfigError(f"{place}: {text}") from None  # it may hold a key
    as_number = scale == "continuous"
    own = read_rubric(rubric, "scale" if as_number else "rubric")
    client, ranking = Client(url, model, settings, "judge"), read_rubric(ranking_rubric, "ranking")
    made = EndpointJudge(client, own, ranking, thresholds if as_number else ())
    if url == GEMINI_URL and not os.environ.get(key_env, "").strip():
        made.absence = (
            f"judge: the environment variable {key_env} holds no key; set it to one of "
            "https://aistudio.google.com, or name another variable with --set judge.key_env=NAME"
        )
    return made


make_gemini = partial(
    make_endpoint,
    model="gemini-2.5-flash",
    url=GEMINI_URL,
    key_env="GEMINI_API_KEY",
    concurrency=16,
)
"""Makes the judge `gemini`: `endpoint` with Google's address; its other settings are the same."""
