"""The retriever `http`: passages from a retrieval server instead of the corpus of an environment.

Owns its settings, how queries are made fit to be sent, and how many go into one body. Sending and
repeating is `searchrl.api_client`; what is sent is `wire`. Whatever goes wrong is a
`RetrieverFailure`, which makes an episode unscored; never an empty result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from searchrl import ConfigError, EndpointFailure, RetrieverFailure
from searchrl.api_client import Server, read_key
from searchrl.contracts import Address, Passage, VariableName
from searchrl_retrieval.http.wire import read_answer, write_request

Count = Annotated[int, Field(ge=1)]

_shared_server = lru_cache(maxsize=16)(Server)
"""With the same settings, connections and limits are the same, too."""


class HttpRetriever:
    """Asks a server of Search-R1's form; safe to use from several threads.

    Args:
        passages: not looked at: the corpus is the server's. Rewards and metrics compare ids, so
            the gold passages of tasks must have the ids that the server gives them.
        url: the address, with its path: `http://localhost:8000/retrieve`. https works as well.
        key_env: the environment variable with the key; it is sent as `Authorization: Bearer KEY`,
            or as it is if it has two words (`Basic …`). Empty: no key.
        batch_size: queries in one body, at most.
        concurrency: calls under way at the same time, each over a connection that is kept. More
            wait.
        timeout_s: seconds until a call, with its repetitions, counts as failed.
        max_retries: repetitions of a call that failed in a way that may pass.
        max_query_chars: longer queries are cut: a search that fails ends an episode.

    Raises:
        ConfigError: a setting is wrong, or the variable that `key_env` names is not set.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        url: Address,
        key_env: VariableName = "",
        batch_size: Count = 64,
        concurrency: Count = 64,
        timeout_s: Annotated[float, Field(gt=0)] = 15.0,
        max_retries: Annotated[int, Field(ge=0)] = 2,
        max_query_chars: Count = 8000,
    ) -> None:
        self.url = url
        self.batch_size = batch_size
        self.max_query_chars = max_query_chars
        key = read_key(key_env) if key_env else None
        if key_env and key is None:
            raise ConfigError(
                f"retriever http: the environment variable {key_env}, which retriever.key_env "
                "names, is not set; set it to the key, or leave key_env out"
            )
        self._server = _shared_server(
            url,
            "retriever",
            key=key,
            timeout_s=timeout_s,
            concurrency=concurrency,
            max_retries=max_retries,
        )

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k passages per query, in the order of the queries and of the server.

        A blank query finds nothing and is not sent.

        Raises:
            RetrieverFailure: if the server does not answer every query as it should.
        """
        found: list[list[Passage]] = [[] for _ in queries]
        if k < 1:
            return found
        # Not too long, and text that UTF-8 can hold.
        cut = [query[: self.max_query_chars].encode("utf-8", "replace") for query in queries]
        asked = [(at, text) for at, data in enumerate(cut) if (text := data.decode().strip())]
        for start in range(0, len(asked), self.batch_size):
            batch = asked[start : start + self.batch_size]
            results = self._ask([text for _, text in batch], k)
            for (at, _), passages in zip(batch, results, strict=True):
                found[at] = passages
        return found

    def stored(self, ids: Sequence[str]) -> None:
        """The passages are the server's, and it does not tell which it has."""

    def _ask(self, queries: list[str], k: int) -> list[list[Passage]]:
        try:
            return read_answer(self._server.post(write_request(queries, k)), len(queries), k)
        except EndpointFailure as error:
            raise RetrieverFailure(f"retriever http: {error}") from error
        except RetrieverFailure as error:
            raise RetrieverFailure(f"{self.url}: {error}") from None
