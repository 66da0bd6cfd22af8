"""What several files quantize by."""

from collections.abc import Iterator

import pytest
from torchao.quantization.pt2e.observer import HistogramObserver


@pytest.fixture(scope="module")
def ranges_as_seen() -> Iterator[None]:
    """Ranges that torchao's search would narrow are whole: it takes two thirds of a small net."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            HistogramObserver, "_non_linear_param_search", lambda it: (it.min_val, it.max_val)
        )
        yield
