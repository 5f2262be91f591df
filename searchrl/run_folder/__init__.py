"""The run folder: its layout, atomic writing, checksums and the `Run` reader.

Everything is plain YAML, JSON or JSONL (gzip), so a folder can be read without this package.
"""

from searchrl.run_folder.checkpoints import checkpoint_fault as checkpoint_fault
from searchrl.run_folder.checkpoints import clean_partial as clean_partial
from searchrl.run_folder.checkpoints import list_checkpoints as list_checkpoints
from searchrl.run_folder.checkpoints import newest_checkpoint as newest_checkpoint
from searchrl.run_folder.checkpoints import read_state as read_state
from searchrl.run_folder.checkpoints import rotate_checkpoints as rotate_checkpoints
from searchrl.run_folder.place import choose_folder as choose_folder
from searchrl.run_folder.place import guarding as guarding
from searchrl.run_folder.place import holding as holding
from searchrl.run_folder.place import save_beside as save_beside
from searchrl.run_folder.policies import choose_policy as choose_policy
from searchrl.run_folder.policies import is_policy_of_run as is_policy_of_run
from searchrl.run_folder.reader import Run as Run
from searchrl.run_folder.reader import find_damage as find_damage
from searchrl.run_folder.reader import looks_like_run as looks_like_run
from searchrl.run_folder.reader import read_config_file as read_config_file
from searchrl.run_folder.writer import RunWriter as RunWriter
