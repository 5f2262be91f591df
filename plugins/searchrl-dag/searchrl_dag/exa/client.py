"""The retriever `exa`: passages from the web, found by Exa.

`searchrl.api_client` sends, repeats and limits; `wire` has bodies and answers. Whatever goes wrong
is a `RetrieverFailure`, which makes an episode unscored; never an empty result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from searchrl import ConfigError, EndpointFailure, RetrieverFailure
from searchrl.api_client import Server, read_key
from searchrl.contracts import Address, Passage, make_encodable
from searchrl_dag.exa.wire import MAX_RESULTS, Content, read_passages

KEY_ENV = "EXA_API_KEY"
"""The environment variable with the key. It is no setting: the run folder of somebody else could
send another key to Exa."""
ADDRESS = "https://api.exa.ai/search"

_ADVICE = (
    (400, "look at the settings retriever.category and retriever.extra"),
    (401, f"the key is read from the environment variable {KEY_ENV}"),
    (402, "the credit of the account or the budget of the key is used up (dashboard.exa.ai)"),
    (404, "look at the address"),
)

Count = Annotated[int, Field(ge=1)]

_shared_server = lru_cache(maxsize=16)(Server)
"""With the same settings, connections and limits are the same, too."""


class ExaRetriever:
    """Searches the web; safe to use from several threads.

    Args:
        passages: not looked at: the corpus is the web.
        category: what Exa looks for: `news`, `research paper`, …; null: everything.
        content: what a passage holds: `highlights`, the excerpts closest to the query, or `text`,
            the beginning of the page.
        max_chars: characters of a passage, at most.
        concurrency: calls under way at the same time, over connections that are kept.
        timeout_s: seconds until a call, with its repetitions, counts as failed.
        max_retries: repetitions of a call that failed in a way that may pass.
        max_query_chars: longer queries are cut: a search that fails ends an episode.
        extra: keys that are added to every body, such as `{type: fast, includeDomains: […]}`; null
            takes one out.
        url: the address, where Exa is reached through a server of your own.

    Raises:
        ConfigError: a setting is wrong, or there is no key.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        category: str | None = None,
        content: Content = "highlights",
        max_chars: Count = 1000,
        concurrency: Count = 4,
        timeout_s: Annotated[float, Field(gt=0)] = 15.0,
        max_retries: Annotated[int, Field(ge=0)] = 3,
        max_query_chars: Count = 1000,
        extra: Mapping[str, Any] | None = None,
        url: Address = ADDRESS,
    ) -> None:
        self.url, self.max_chars, self.max_query_chars = url, max_chars, max_query_chars
        contents = {content: {"maxCharacters": max_chars}}
        self._body = {"contents": contents, "category": category, **(extra or {})}
        self._num_threads = concurrency
        if (key := read_key(KEY_ENV)) is None:
            raise ConfigError(
                f"retriever exa: the environment variable {KEY_ENV} is not set; set it to your key "
                "(dashboard.exa.ai), or replay what the retriever 'recorded' has kept"
            )
        self._server: Server = _shared_server(
            url,
            "retriever",
            key=key,
            timeout_s=timeout_s,
            concurrency=concurrency,
            max_retries=max_retries,
            advice=_ADVICE,
        )

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k passages per query, best first. Each query is one call.

        A blank query finds nothing and is not sent.

        Raises:
            RetrieverFailure: if Exa does not answer every query as it should.
        """
        # Not too long, and text that UTF-8 can hold.
        fitted = [make_encodable(query[: self.max_query_chars]).strip() for query in queries]
        different = list(dict.fromkeys(filter(None, fitted))) if k > 0 else []
        with ThreadPoolExecutor(max(1, min(len(different), self._num_threads))) as pool:
            results = pool.map(self._find, different, [k] * len(different))
            passages = dict(zip(different, results, strict=True))
        return [list(passages.get(query, ())) for query in fitted]

    def stored(self, ids: Sequence[str]) -> None:
        """The passages are on the web, and Exa is not asked which it has."""

    def _find(self, query: str, k: int) -> list[Passage]:
        """The passages of a query."""
        whole: dict[str, Any] = {
            "query": query,
            "type": "auto",
            "numResults": min(k, MAX_RESULTS),
        }
        whole |= self._body
        body = {name: value for name, value in whole.items() if value is not None}
        try:
            return read_passages(self._server.post(body), k, self.max_chars)
        except (EndpointFailure, RetrieverFailure) as error:
            raise RetrieverFailure(f"retriever exa: {error}") from error
