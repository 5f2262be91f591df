"""Boundary errors: what a user or plugin author can do something about.

Every error that crosses a boundary (config, plugin, environment, retriever, generation, scoring,
data) is one of these. Its text says what happened, where, what was expected and what to do next.
Programming errors inside SearchRL stay ordinary exceptions. The CLI prints a `SearchRLError` as
one message and exits with `exit_code`; all other errors keep their traceback.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path

_MAX_VALUE = 60
"""Characters of a value that an error shows."""


class SearchRLError(Exception):
    """Root of all boundary errors. `exit_code` is what the CLI exits with."""

    exit_code = 2


class ConfigError(SearchRLError):
    """A setting, flag, file or name is wrong."""


class ExpressionError(ConfigError):
    """A reward expression is malformed; the text shows the place with a caret."""


class UnknownNameError(ConfigError):
    """A name is not registered; the text lists near matches."""


class PluginError(SearchRLError):
    """A plugin could not be loaded or registered something invalid; names its owner and line."""


class DataError(SearchRLError):
    """A data file holds rows that cannot be used; lists every bad row with file and line."""


class EnvironmentFailure(SearchRLError):
    """An environment raised, hung or broke its contract during an episode."""


class RetrieverFailure(SearchRLError):
    """A retriever could not answer. Never reported as an empty result."""


class ProtocolFailure(SearchRLError):
    """A protocol plugin raised an error on a turn, or returned a wrong type."""


class GenerationFailure(SearchRLError):
    """The policy could not produce tokens."""


class EndpointFailure(SearchRLError):
    """A model that is asked over HTTP gave no answer that can be used."""


class BudgetSpent(EndpointFailure):
    """The calls, tokens or money that an endpoint or a judge may cost are spent.

    Where it ends training, everything up to the last whole step is kept.
    """

    exit_code = 4


class ScoringFailure(SearchRLError):
    """A reward component raised, hung or returned a value outside its declared set."""


class PolicyError(SearchRLError):
    """A model, tokenizer or adapter could not be loaded."""


class RunFolderError(SearchRLError):
    """A run folder exists already, cannot be written, is incomplete, or the disk is full."""


class RunInUseError(RunFolderError):
    """Another process works on the run folder; the text says which."""


class ChangedError(RunFolderError):
    """Data, an environment or a plugin of a run has changed since it began; names which."""


class DamagedError(RunFolderError):
    """A file of a run is not what the run wrote: empty, cut off, changed, missing, unreadable."""

    @classmethod
    def of(cls, path: str | Path, fault: str, way_on: str) -> DamagedError:
        """The error about the file at `path`: what is wrong with it, and what to do."""
        return cls(f"'{path}' is damaged: {fault}. {way_on}")


class WorkerError(SearchRLError):
    """Another process of the same training failed, ended or does not respond."""


class FailureLimitError(SearchRLError):
    """More episodes failed than `rollout.max_failure_frac` allows, or none could be scored."""

    exit_code = 3


class CheckError(SearchRLError):
    """A check of tokens, log-probs or weights does not hold: going on would train on garbage.

    `check` is its name, `excerpt` the tokens around the place, if there is one (its text is part
    of the message); a terminal shows it in colours.
    """

    exit_code = 1

    def __init__(self, what: str, check: str, excerpt: object = None) -> None:
        self.what = what
        self.check = check
        self.excerpt = excerpt
        shown = "" if excerpt is None else f"\n{excerpt}"
        super().__init__(f"check '{check}': {what}{shown}")


class AlarmStop(SearchRLError):
    """An alarm with the action `stop` ended a training run; its checkpoint is kept."""

    exit_code = 4


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGHUP asked the program to end, as Ctrl-C does. `number` is the signal's.

    A text in it has been shown already. The CLI exits with 128 + `number`.
    """

    def __init__(self, number: int, *words: str) -> None:
        super().__init__(*words)
        self.number = number


def suggest(name: str, known: Iterable[str], if_none: str = "There are none.") -> str:
    """Return `" Did you mean 'x'?"` for near matches of `name`, else the list of known names.

    `if_none` is the sentence to use when there are no known names.
    """
    every = set(known)
    # `searchrl:em` is `em` by its whole name.
    names = sorted(one for one in every if one.partition(":")[2] not in every)
    folded = {one.casefold(): one for one in names}
    if near := [folded[one] for one in _near(name.casefold(), folded)]:
        return " Did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
    return f" Known: {', '.join(names)}." if names else f" {if_none}"


def suggest_path(path: str | Path) -> str:
    """Return `" Did you mean 'x'?"` for near matches of a missing path in its folder, else ""."""
    wanted = Path(path)
    try:
        names = [entry.name for entry in wanted.parent.iterdir()]
    except OSError:  # no such folder either: nothing is near
        return ""
    near = [repr(str(wanted.parent / name)) for name in _near(wanted.name, names)]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _near(name: str, known: Iterable[str]) -> list[str]:
    """At most three names that are nearly as like as the likest; never the name itself."""
    near = difflib.get_close_matches(name, [one for one in known if one != name], 3, cutoff=0.55)
    likeness = [difflib.SequenceMatcher(None, one, name).ratio() for one in near]
    return [one for one, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - 0.15]


def show_value(value: object) -> str:
    """A value for an error text: as JSON and YAML have it on one line, cut if it is long."""
    if isinstance(value, str):
        text = repr(value[: _MAX_VALUE + 1])
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except (ValueError, TypeError, RecursionError):
            text = f"a {type(value).__name__}"
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
