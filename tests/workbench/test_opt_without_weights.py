"""`stepwell opt` of a text without its weights: elements that nobody knows decide nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.integrations.xdsl.opt import opt

CHOICE = """func.func @forward(%x: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {{
  %m = stepwell.weight <"{name}"> "constant" : tensor<1xi1>
  %y = aten.where.self(%m, %x, %z) : (tensor<1xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}}
"""


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_no_mask_is_read_from_its_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "choice.mlir"
    path.write_text(CHOICE.format(name=name))
    assert opt([str(path), "-p", "select-by-constant-mask"]) == 0
    assert "aten.where.self" in capsys.readouterr().out
