"""The device of a test: the CPU in every run, a card under `pytest -m gpu`."""

from collections.abc import Iterator

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return torch.device(request.param)


@pytest.fixture
def same_bits() -> Iterator[None]:
    """The order of every sum is the same in each pass: by itself only a CPU sees to that."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    with sdpa_kernel(SDPBackend.MATH):  # other kernels of a card only warn
        yield
    torch.use_deterministic_algorithms(False)
