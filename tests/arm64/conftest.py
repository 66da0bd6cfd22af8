"""Tests on emulated Arm64 cores; skipped, with the reason, where `make arm64` has put none."""

import pytest

from stepwell.backends.executorch.running import arm64


@pytest.fixture(params=["cortex-a53", "cortex-a76", "neoverse-v1"])
def core(request: pytest.FixtureRequest) -> str:
    """A core without half arithmetic, one with it, one with SVE."""
    return there(request.param)


@pytest.fixture
def a76() -> str:
    """The core of most phones of the last years."""
    return there("cortex-a76")


def there(name: str) -> str:
    """A core's name, if programs run on it here."""
    if why := arm64.missing(name):
        pytest.skip(why)
    return name
