from .inline import InlineProtocol as InlineProtocol
from .inline import invalid as invalid
from .inline import load_instruction as load_instruction
from .tags import Part as Part
from .tags import Tags as Tags
from .tags import ensure_tag_names as ensure_tag_names
from .think_search_answer import ThinkSearchAnswer as ThinkSearchAnswer
from .wrapping import Line as Line
