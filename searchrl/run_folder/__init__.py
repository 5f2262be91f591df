"""The run folder: what a run leaves behind, and how to read it.

Owns the layout, atomic writing, checksums and the `Run` reader. Everything is plain YAML, JSON or
JSONL (gzip), so a folder can be read without this package. It does not know models.
"""

from searchrl.run_folder.checkpoints import (
    checkpoint_fault,
    clean_partial,
    list_checkpoints,
    newest_checkpoint,
    read_state,
    rotate_checkpoints,
)
from searchrl.run_folder.lock import holding
from searchrl.run_folder.place import choose_folder, guarding, save_beside
from searchrl.run_folder.policies import choose_policy, is_policy_of_run
from searchrl.run_folder.reader import (
    Run,
    find_damage,
    looks_like_run,
    read_config_file,
)
from searchrl.run_folder.writer import RunWriter

__all__ = [
    "Run",
    "RunWriter",
    "checkpoint_fault",
    "choose_folder",
    "choose_policy",
    "clean_partial",
    "find_damage",
    "guarding",
    "holding",
    "is_policy_of_run",
    "list_checkpoints",
    "looks_like_run",
    "newest_checkpoint",
    "read_config_file",
    "read_state",
    "rotate_checkpoints",
    "save_beside",
]
