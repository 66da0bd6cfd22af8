"""Large tensors that wait in a file."""

import tempfile
from pathlib import Path

import pytest
import torch

from stepwell.ir.platform.paged_tensors import LARGE, below_each_other
from stepwell.quantization.quantizers import by_torchao, quantize

KINDS = (torch.int8, torch.float32, torch.bfloat16)


def parts(dtype: torch.dtype) -> list[torch.Tensor]:
    columns = LARGE // dtype.itemsize // 4
    return [torch.arange(rows * columns).view(rows, columns).to(dtype) for rows in (3, 1)]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_large_rows_are_mapped_from_a_file_without_a_name(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = below_each_other(parts(dtype))
    assert torch.equal(made, torch.cat(parts(dtype)))
    assert made.is_shared()  # torch's word for what is mapped.
    assert list(tmp_path.iterdir()) == []
    made += 1  # The file is not written to, and nobody else reads it.
    assert torch.equal(made, torch.cat(parts(dtype)) + 1)


def test_small_rows_stay_in_memory() -> None:
    assert not below_each_other([torch.ones(1, 4), torch.ones(2, 4)]).is_shared()


def test_without_room_for_a_file_rows_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    made = below_each_other(parts(torch.int8))
    assert torch.equal(made, torch.cat(parts(torch.int8)))
    assert not made.is_shared()


def test_a_quantized_layer_is_the_same_in_a_file_and_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = torch.nn.Linear(2048, LARGE // 2048)
    x = torch.randn(2, 2048)
    in_file = quantize(layer, "8da4w", [x])(x)
    monkeypatch.setattr("stepwell.ir.platform.paged_tensors.LARGE", 2 * LARGE)
    assert torch.equal(in_file, by_torchao(4, 32)(layer, (x,))(x))
