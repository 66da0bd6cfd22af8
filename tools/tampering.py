"""Tamper with certificates, programs and weights in every known way; print what is refused.

python tools/tampering.py        # the table of docs/proofs.md; -v: each with the reason
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "tests" / "certifying"

if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    runpy.run_path(str(HERE / "tampering.py"), run_name="__main__")
