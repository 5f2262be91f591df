"""What `searchrl new` writes: plugins that work, are tested and are short enough to learn from.

`kinds` says what each example is about, `names` which names are possible, `layout` turns a kind
and a name into texts, `writer` puts them on disk. The texts are the templates in
`assets/scaffold/`; they use the hooks and contracts that any plugin uses and nothing else.
"""

from searchrl.scaffold.kinds import KINDS
from searchrl.scaffold.layout import Scaffold, hook_of, make_scaffold
from searchrl.scaffold.names import TIDY_NAME_LENGTH, ensure_free
from searchrl.scaffold.writer import write_scaffold

__all__ = [
    "KINDS",
    "TIDY_NAME_LENGTH",
    "Scaffold",
    "ensure_free",
    "hook_of",
    "make_scaffold",
    "write_scaffold",
]
