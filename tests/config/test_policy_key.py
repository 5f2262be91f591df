"""The key `policy`: which names there are."""

from __future__ import annotations

import pytest

from searchrl.config import build_config
from searchrl.errors import ConfigError


def test_a_policy_that_is_none_is_refused() -> None:
    for name in ("model", "scripted", "scripted:random", "endpoint:http://x"):
        assert build_config({"policy": name}).policy == name
    with pytest.raises(ConfigError, match="policy.*'mlp'.*scripted:NAME or endpoint:URL"):
        build_config({"policy": "mlp"})
