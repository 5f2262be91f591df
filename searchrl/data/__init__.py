"""Data files of other people, as questions and passages; for environments and packages.

What it exports is public. `rows` reads files of rows, `arrow` those that need pyarrow or
`datasets`; `questions` and `passages` say what a row means, `gold` which passages are gold, and
`dataset` puts a whole data set together.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
