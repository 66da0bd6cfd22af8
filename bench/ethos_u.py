"""Vela's own estimates of what each Ethos-U takes: cycles, SRAM, flash, delegates, CPU ops.

    python bench/ethos_u.py [model ...] [--accelerators ethos-u55-128,ethos-u65-256,ethos-u85-256]

The programs are quantised by this project's quantizer and lowered with int8 at the border. Nothing
runs: there is no simulator of the NPU on the package indices.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from cortex_m import MEMORY, MODELS, prepared, quantised

DEFAULT = (
    "ds_cnn", "mobilenet_v1_025", "resnet8", "mlp_autoencoder", "mobilenet_v2_035", "tcn", "unet",
    "transformer_encoder",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(DEFAULT), help=", ".join(MODELS | MEMORY))
    parser.add_argument("--accelerators", default="ethos-u55-128,ethos-u65-256,ethos-u85-256")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    import stepwell
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    for name in options.models:
        exported = quantised(*prepared(name), CortexMQuantizer())
        for accelerator in options.accelerators.split(","):
            try:
                lowered = stepwell.lower(exported, accelerator, io="int8")
                found = lowered.estimate()
            except stepwell.StepwellError as error:
                print(f"{name:20} {accelerator:14} {str(error).splitlines()[0]}", flush=True)
                continue
            beside = dict(lowered.report.outside) or "none"
            print(
                f"{name:20} {accelerator:14} {sum(e.cycles for e in found):9} cycles, "
                f"SRAM {max(e.sram for e in found):7}, off chip {sum(e.flash for e in found):8}, "
                f"{len(found)} delegates, CPU: {beside}",
                flush=True,
            )


if __name__ == "__main__":
    main()
