"""What these tests share: two nodes on this machine, and no token of Ray in the user's home."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["RAY_AUTH_MODE"] = "disabled"
REPO = Path(__file__).resolve().parents[3]
OWN = REPO / "plugins" / "searchrl-ray"
PATHS = [str(REPO), str(REPO / "tests"), str(OWN), str(OWN / "tests")]
sys.path += PATHS[1:]
# Workers find the package where it is not installed, too.
os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A head where nothing runs and two nodes with room for one worker each; whoever removes one
    of them adds another."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()
