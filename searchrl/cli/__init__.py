"""The command line: argument handling and everything a person sees.

Owns the `searchrl` command. Commands live in `commands/` and load on first use, so that `searchrl
--help`, `plugins` and `play` never import torch. No logic of training or scoring lives here.
"""

from __future__ import annotations

from searchrl.cli.group import main as main
