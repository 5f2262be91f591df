"""A script for `facts` that knows its names and the wordings of the training and validation splits.
`_RELATIONS`: what has what, words of facts alone, descriptions (of the name `_`, the person `who`).
It resolves the innermost first; other wordings by kind, shared words, and what is left over.
"""

import re
from typing import Any

from searchrl.contracts import ANSWER, SEARCH, Action, TagProtocol, Task
from searchrl_r3.facts import WORDS

_KINDS = {kind: " ".join(last) for kind, (_, last) in WORDS.items() if kind != "person"}
_RELATIONS = """
person town: where _ was born; birthplace of _; in which _ spent the first days of life
person town: where _ lives; home of _; in which the house of _ stands
person person: teacher of _; whose lessons _ went to; who taught _ to read
person person: best friend of _; that _ goes for walks with; that _ trusts with every secret
person company job: that _ works for; that pays the wages of _; employer of _
company person founded: founder of _; who started _; in whose kitchen _ began
company town: where _ has its seat; office of _; over which the chimneys of _ smoke
book person written: author of _; who wrote _; whose work is _
book company published: publisher of _; that printed _; at which _ came out
town person elect: mayor of _; who governs _; that _ elected
town town hold: that is twinned with _; partner of _; with which _ holds a feast
"""
_NAME = re.compile(r"[A-Z][a-z]+ [A-Z][a-z]+")
_WORD = re.compile(r"\b(?!(?:the|that|with|for|wh\w+)\b)([a-z]{2,}[a-rt-z])s*\b")
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split()}
# Description, kind of its subject, kind of its object, words of its facts, as a query.
_KNOWN: list[tuple[str, str, str, set[str], str]] = []
for _of, _to, _said in re.findall(r"(\w+) (\w+)(.*)", _RELATIONS):
    for _text in _said.partition(": ")[2].split("; "):
        _text = f"the {_to} {_text}" if re.search("wh|that", _text) else f"the {_text}"
        _KNOWN.append((_text, _of, _to, {*_WORD.findall(_said)}, _said))


class ChainSolver:
    """Resolves a nested description from within."""

    def __init__(self, env: Any, task: Task, protocol: TagProtocol) -> None:
        self._env, self._protocol = env.unwrapped, protocol
        self._left = re.sub(r"\A.*? (?=the )", "", task.question.rstrip("?."), count=1)
        self._best: tuple[float, str] = (0.0, "")
        self._queries: list[str] = []
        self._words: set[str] = set()
        self._rivals: set[str] = set()
        self._asked, self._kind = "", ""
        self._find_next()

    def act(self, observation: str) -> str:
        """Take in the best name of the right kind, then ask for the next thing or answer."""
        for passage in self._env.last_passages:
            fact = passage.text.partition(". ")[0]
            words = {*_WORD.findall(fact)}
            score = 3.0 * len(words & self._words) - len(words & self._rivals)
            score -= 0.5 * bool(re.search(r"is the [a-z]+ of", fact))
            for name in _NAME.findall(fact):
                is_kind = self._kind in ("", _KIND_OF.get(name.split()[1], "person"))
                if is_kind and name != self._name == passage.title:
                    self._best = max(self._best, (score, name))
        if self._best[0] > 0 or not self._queries:
            self._left = self._left.replace(self._asked, self._best[1])
            self._find_next()
        query = Action(SEARCH, (self._queries.pop(0),))
        action = Action(ANSWER, self._name) if self._left == self._name else query
        return self._protocol.render_turn(action, f"What is left of the question: {self._left}.")

    def _find_next(self) -> None:
        """The description to look up next, the kind of what it means, the words of its fact."""
        name = self._name = _NAME.findall(self._left)[0]
        self._best = (-9.0, name)
        subject, asked, kind = _KIND_OF.get(name.split()[1], "person"), self._left, ""
        for text, of, *_ in _KNOWN * 2:
            if outer := re.fullmatch(text.replace("_", "(the .+)"), asked):
                asked, kind = outer[1], of
        noun = re.search(rf"the (\w+) of {name}|the \w+ that {name} (\w+)s\b(?! with)", asked)
        is_new = noun is not None and not re.search(rf"\b({noun[1] or noun[2]})", _RELATIONS)
        if noun and is_new:
            asked, kind = noun[0], ""
        for text, of, to, *_ in _KNOWN:
            if of == subject and text.replace("_", name) in self._left:
                asked, kind = text.replace("_", name), to
        words = {*_WORD.findall(asked)}
        kind = asked.split()[1] if asked.split()[1] in _KINDS else kind
        same = [known for known in _KNOWN if known[1] == subject and kind in ("", known[2])]
        best = max(same, key=lambda known: len(words & known[3]), default=_KNOWN[0])
        if is_new or (not words & best[3] and len({known[4] for known in same}) != 1):
            best = asked, subject, kind, words, asked
        self._asked, (_, _, self._kind, self._words, cues) = asked, best
        self._rivals = set().union(*(known[3] for known in same if known[2] == self._kind))
        others = [f"{name} {name} {name} {_KINDS[kind]}" for kind in _KINDS if kind == self._kind]
        others += [f"{name} {text}" for text in cues.split("; ")]
        self._queries = [f"{name} {name} {cues}", *others][:3]
