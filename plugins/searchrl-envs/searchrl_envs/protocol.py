"""The tag protocol for one answer: a thought, then the answer; there is nothing to search."""

from searchrl.contracts import ANSWER, INVALID, Action
from searchrl.protocols import InlineProtocol, Tags, load_instruction

INSTRUCTION = """\
Think inside <think> and </think> first. Then write only the answer inside <answer> and </answer>. \
Messages come inside <information> and </information>; never write these yourself. Example:
<think> 4 + 4 is 8. </think>
<answer> 8 </answer>"""


class ThinkAnswer(InlineProtocol):
    """Protocol `think-answer`. `instruction` replaces the default; `@path` reads it from a file."""

    replier = "the environment"

    def __init__(self, *, instruction: str | None = None) -> None:
        super().__init__("think-answer", Tags("think", "", "information", "answer"))
        self.instruction = load_instruction(instruction or INSTRUCTION, self.name)

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`."""
        if action.kind not in (ANSWER, INVALID):
            raise ValueError(f"{self.name} has answers only, no {action.kind}")
        think = f"<think>{self.neutralise(thought)}</think>"
        if action.kind == INVALID:
            return think
        return f"{think}\n<answer> {self.neutralise(str(action.payload))} </answer>"

    def opening(self, kind: str) -> str:
        """The text that commits a turn to an answer; ValueError for any other kind."""
        if kind != ANSWER:
            raise ValueError(f"{self.name} has answers only, no {kind}")
        return "<think>I know the answer.</think>\n<answer>"
