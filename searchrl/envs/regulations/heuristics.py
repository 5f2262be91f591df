"""`two_search_regex` of `regulations`, which matches words; tuned on training tasks."""

import re
from collections.abc import Iterator

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Action, Task
from searchrl.envs.regulations.questions import NOT_REGULATED_ANSWER

_WHO = "person|leader|head|supervisor|organiser|caretaker of|treasurer|(?:staff )?member of|teacher"
_NAME = r"\b(?!(?:The|Form|Otherwise|Now|If|In|At|On|For|Ask|By|\w+day)\b)[A-ZÀ-Þ][^\W\d_]+"
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
_STOP = f"""{_KINDS} {_IF.pattern} about after back before charge children circle club daughter find
from give group hand have help here highest keep know largest learner money must need office
question required return school take team that towards turn until used want"""
_GROUPS = """exam examination, trip excursion, complaint appeal, course transfer, newspaper press,
coding programming, assembly gathering, radio broadcast, robotic robot, refund expense fare, meal
lunch canteen dinner food, choir singing, book textbook novel, sport athletic race relay, astronomy
stargazing, film cinema, climbing bouldering, laptop computer, photo yearbook photography memories,
allerg nut milk, meeting evening talk, volunteer community helping, wifi online, kitchen cooking,
orchestra string, plant water flower garden, sick ill, nurse medical dizz bandage, worr counsellor,
theft thief steal stolen, uniform jacket blazer, resit retake, art paint, music instrument, bike
bicycle, snow weather closure ice, fire siren, absence absent, leave off, lost found item thing,
clean broom sweep, locker empt clear, mobile phone"""
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
        question = _IF.sub("", question)
        self._name = " ".join(re.findall(r"(?<=[a-z] )[^\W\d_a-zß-ÿа-яα-ω]\w+(?: \d+)?", question))
        self._actions = self._play(question.lower())

    def act(self, observation: str) -> str:
        self._observed += observation
        return self._protocol.render_turn(next(self._actions), "I match words.")

    def _play(self, question: str) -> Iterator[Action]:
        kind = name = ""
        described = rf"\bthe (?=(?:form|paper|fund|building|place|home|venue|{_WHO})\b \w)"
        for text in reversed(re.split(described, question)):
            last_part = re.split(r"[,.:] (?:so )?(?=(?:\w+ )?(?:who|wh[aei]|how))", text)[-1]
            starts = {k: len(re.split(rf"\b(?:{_KINDS[k][0]})", last_part)[0]) for k in _KINDS}
            kinds = [one for one in _KINDS if starts[one] == min(starts.values())]
            if kind and (kinds[0] == kind or kinds == [*_KINDS]):
                continue
            forms = re.sub(r"(\w+)", r"\1 \1e \1s \1ed \1ing \1y \1er", " ".join(_words(text)))
            first = f"{name or self._name} " * 2 + ("room limit deadline closing" if name else text)
            known = " ".join(word for word in _words(text) if " " in word) or forms or text
            for query in (f"{first} {forms}", name or known, forms)[: 2 + (text == question)]:
                yield Action(SEARCH, (query,))
                score, value = max(self._values(kinds, text, name), default=(0.0, ""))
                if score >= (0.3 if name or self._name else 1.0):
                    break
            else:
                yield Action(ANSWER, NOT_REGULATED_ANSWER)
            kind, name = kinds[0], value
        yield Action(ANSWER, name)

    def _values(self, kinds: list[str], text: str, name: str) -> Iterator[tuple[float, str]]:
        shown = re.findall(r"\bDoc \d+(?:\(Title: (.*?)\)|:) ([^\n<]*)", self._observed)
        docs = {d: _words(" ".join(d)) for d in shown if (name or self._name) in " ".join(d)}
        seen = {word: sum(word in words for words in docs.values()) for word in _words(text)}
        weights = {word: (n or 8) ** -0.7 * (1 if " " in word else 0.4) for word, n in seen.items()}
        total = sum(weights.values()) or 1
        for (_, body), words in docs.items():
            for clause in re.split(r"[.!?] |[;:] |, (?:although|but|while) |, (?=after)", body):
                here = _words(clause)
                score = sum(weights[w] * ((w in words) + 0.7 * (w in here)) for w in seen) / total
                score -= 0.8 * bool(re.search(r"\b(was|were|took|had been|used to|once)\b", clause))
                if only := _IF.match(clause):
                    score += 1.5 if only[0].lower().split()[-1][:4] in self._only else -0.8
                for rank, kind in enumerate(kinds):
                    for value in re.findall(_KINDS[kind][1], clause):
                        yield score + 0.5 * (name in clause) - 0.1 * rank, value
