"""`two_search_regex` of `regulations`, which matches words; tuned on training tasks."""

import re
from collections.abc import Iterator

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Action, Task
from searchrl.envs.regulations.questions import NOT_REGULATED_ANSWER

_WHO = "person|leader|head|supervisor|organiser|caretaker of|treasurer|(?:staff )?member of|teacher"
_NAME = r"\b(?!(?:The|Form|Otherwise|Now|If|In|At|On|For|Ask|By|Until)\b)[A-ZÀ-Þ][^\W\d_]+"
_KINDS = {  # how a question asks for a kind or describes it, and the shape of its values
    "form": (r"forms?\b|paper|fill", r"\b[A-Z]\d\d\b"),
    "fund": ("fund|where [^?]* from", rf"{_NAME} Fund\b"),
    "room": ("room|where|place", r"\b[A-Z]\d{3}\b"),
    "building": ("building|place|home|venue|where", rf"{_NAME} (?:House|Hall|Lodge|Wing)\b"),
    "person": (f"who|contact|{_WHO}", rf"{_NAME} (?!Fund|House|Hall|Lodge|Wing){_NAME}"),
    "code": ("code|password|extension|number|line", r"(?:code|extension) (\d{4})"),
    "grant": ("how (?:much|large)|cost|price|fee|fine|deposit|pay|grant|sum|most|charge", r"£\d+"),
    "days": ("how (?:many|much time|long|soon)|deadline|limit|score", r"(?<![£:])\b\d\d(?= [a-z])"),
    "time": ("time(?! limit)|how (?:late|early|long|soon)|when|start", r"\b\d\d:\d\d\b"),
    "date": ("date|(?:which|what|last) day|when|deadline|how long", r"\b\d\d? [A-Z][a-z]+"),
}
_IF = re.compile(  # a phrase that says when or for whom something is different
    r"(?i)\b(?:(?:in|on|at|during|for) (?:(?!(?:in|on|for|how|is)\b|wh)\w+[- ]){,2}?(?:summer|week"
    r"|winter|spring|\w+ber|\w+uary|term|\w*day|pupil|student|child|boarder|sister|staff|\w+-\w+"
    r"|guest|teacher|visitor|year)s?(?: of (?:the )?\w+)?|(?:if|when) (?:it|there is an?) \w+)\b"
)
_ENDING = re.compile(r"(?<=\w{3})(ations?|ings?|ions?|ie[ds]?|[eo]rs?|ed|[ey]s?|als?|(?<![su])s)$")
_STOP = f"""about after back before charge children circle club daughter find from give group hand
have help here highest keep know largest learner money must need office question required return
school take team that towards turn until used want {_KINDS} {_IF.pattern}"""
_GROUPS = """exam examination, trip excursion, complaint appeal, transfer change, newspaper press,
coding programming, assembly assemblies gathering, radio broadcast, off absence leave, robotic
robot, refund expense, exhibition display, lunch canteen meal, book textbook, sport athletic race,
visitor guest, astronomy stargazing, meeting evening talk, laptop computer, photo photography,
allerg nut, volunteer community, choir singing, kitchen cooking, orchestra string, plant water, sick
ill unwell, worr counsellor, theft stealing stolen, jacket uniform, resit retake, art paint"""
_SAME = {_ENDING.sub("", word): "" for word in re.findall(r"\w{4,}", _STOP)}  # tell nothing
_SAME |= {_ENDING.sub("", w): group for group in _GROUPS.split(",") for w in group.split()}


def make_two_search_regex(env: object, task: Task, protocol: TagProtocol) -> Expert:
    """Search for what is described, then by its name; reads only what is asked and shown."""
    return _WordMatcher(task.question, protocol)


def _words(text: str) -> list[str]:
    words = re.findall(r"\w{4,}|[a-z]\d\d|bus|car|key|kit|lab|art|aid|off|ill", text.lower())
    return sorted({_SAME.get(stem := _ENDING.sub("", word), stem) for word in words} - {""})


class _WordMatcher:
    def __init__(self, question: str, protocol: TagProtocol) -> None:
        self._protocol, self._observed = protocol, ""
        self._only = " ".join(_IF.findall(question)).lower()
        self._actions = self._play(_IF.sub("", question).lower())

    def act(self, observation: str) -> str:
        self._observed += observation
        return self._protocol.render_turn(next(self._actions), "I match words.")

    def _play(self, question: str) -> Iterator[Action]:
        kind = name = ""
        described = rf"\bthe (?=(?:form|paper|fund|building|place|home|venue|{_WHO})\b)"
        for text in reversed(re.split(described, question)):
            last_part = re.split(r"[,.:] (?:so )?(?=(?:\w+ )?(?:who|wh[aei]|how))", text)[-1]
            starts = {
                one: len(re.split(rf"\b(?:{_KINDS[one][0]})", last_part)[0]) for one in _KINDS
            }
            kinds = [one for one in _KINDS if starts[one] == min(starts.values())]
            if kind and (kinds[0] == kind or kinds == [*_KINDS]):
                continue
            forms = re.sub(r"(\w+)", r"\1 \1e \1s \1ed \1ing \1y \1er", " ".join(_words(text)))
            first = f"{name} {kinds[0]}" if name else f"{text} {forms}"
            for query in (first, forms or text)[: 1 + (text == question)]:  # look twice
                yield Action(SEARCH, (query,))
                score, value = max(self._values(kinds, text, name), default=(0.0, ""))
                if score >= (0.3 if name else 1.0):
                    break
            else:
                yield Action(ANSWER, NOT_REGULATED_ANSWER)
            kind, name = kinds[0], value
        yield Action(ANSWER, name)

    def _values(self, kinds: list[str], text: str, name: str) -> Iterator[tuple[float, str]]:
        shown = re.findall(r"\bDoc \d+(?:\(Title: (.*?)\)|:) ([^\n<]*)", self._observed)
        docs = {doc: _words(" ".join(doc)) for doc in shown if name in " ".join(doc)}
        seen = {word: sum(word in words for words in docs.values()) for word in _words(text)}
        weights = {word: (n or 8) ** -0.7 * (1 if " " in word else 0.4) for word, n in seen.items()}
        total = sum(weights.values()) or 1
        for (_, body), words in docs.items():
            for clause in re.split(r"[.!?] |[;:] |, (?:although|but|while) |, (?=after)", body):
                clause_words = _words(clause)
                score = (
                    sum(weights[w] * ((w in words) + 0.7 * (w in clause_words)) for w in seen)
                    / total
                )
                score -= 0.8 * bool(re.search(r"\b(was|were|took|had been|used to|once)\b", clause))
                if only := _IF.match(clause):
                    score += 0.8 if only[0].lower().split()[-1][:4] in self._only else -0.8
                score *= 1.5 if re.search("s of this|change|term on|replaces|void", body) else 1
                for rank, kind in enumerate(kinds):
                    for value in re.findall(_KINDS[kind][1], clause):
                        yield score + 0.5 * (name in clause) - 0.1 * rank, value
