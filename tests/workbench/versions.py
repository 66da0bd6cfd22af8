"""What a supported version of ExecuTorch has not; `docs/versions.md` says so too."""

from importlib.metadata import version

import pytest

IS_1_4 = version("executorch").startswith("1.4.")

undecomposed = pytest.mark.skipif(
    IS_1_4, reason="ExecuTorch 1.4 decomposes programs before its partitioners see them"
)
"""For tests of `StepwellPartitioner` and of the recipes, which have it."""
channels_last = pytest.mark.skipif(
    IS_1_4, reason="Cortex-M of ExecuTorch 1.4 has no quantized_conv2d_nhwc"
)
"""For tests of convolutions on Cortex-M."""
