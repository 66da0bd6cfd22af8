"""Resizing, order, scatters, pools, norms, … compute what PyTorch does, where it could go wrong."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stepwell.translate.rewrites.tosa.operators.places import ResizedAxis

from .arm_quantized import dequantize, quantize
from .graphs import Function, Of, agree, lowered, operators

NEAREST: dict[str, Function] = {
    "doubled": lambda x: F.interpolate(x, scale_factor=2),
    "a size": lambda x: F.interpolate(x, size=(13, 20)),
    "half pixels": lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest-exact"),
    "a line": lambda x: F.interpolate(x[0], size=20),
    "smaller": lambda x: F.interpolate(x, size=(3, 4)),
}
NEAREST_GATHERED: dict[str, Function] = {
    "a volume": lambda x: F.interpolate(x[None], size=(4, 3, 20)),
    "a twentieth": lambda x: F.interpolate(x.repeat(1, 1, 20, 1), size=(7, 9)),
}
LINEAR: dict[str, Function] = {
    "doubled": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "corners": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "a size": lambda x: F.interpolate(x, size=(5, 300), mode="bilinear"),
    "a scale that is stated": lambda x: F.interpolate(x, scale_factor=(1.5, 0.3), mode="bilinear"),
    "a line": lambda x: F.interpolate(x[0], scale_factor=1.5, mode="linear"),
    "one pixel": lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=True),
}
LINEAR_GATHERED: dict[str, Function] = {
    "a volume": lambda x: F.interpolate(x[None], scale_factor=2, mode="trilinear"),
    "a large numerator": lambda x: F.interpolate(x, size=(2047, 3), mode="bilinear"),
}


@pytest.mark.parametrize(
    ("cases", "tolerance"), [(NEAREST, 0.0), (LINEAR, 2e-6)], ids=["nearest", "linear"]
)
def test_resizing_is_one_resize_an_image(cases: dict[str, Function], tolerance: float) -> None:
    low = agree(cases, torch.randn(2, 3, 7, 9), rtol=tolerance)
    assert len(operators(low, "resize")) == len(cases)


def test_what_resize_has_no_numbers_for_is_gathered() -> None:
    x = torch.randn(2, 3, 7, 9)
    for cases, tolerance in ((NEAREST_GATHERED, 0.0), (LINEAR_GATHERED, 2e-6)):
        low = agree(cases, x, rtol=tolerance)
        assert not operators(low, "resize")
        assert operators(low, "gather")


def test_resizes_numbers_give_torchs_places() -> None:
    missing: list[ResizedAxis] = []
    for size in (1, 2, 3, 5, 7, 16, 33):
        for wanted in (1, 2, 3, 6, 7, 14, 26, 66, 224):
            modes = (("nearest", False), ("nearest-exact", False), ("linear", False))
            for mode, corners in (*modes, ("linear", True)):
                axis = ResizedAxis(size, wanted, mode, None, corners)
                if axis.parameters() is None:
                    missing.append(axis)
    # Below a sixteenth, or 16 pixels from the last corner, TOSA allows no such numbers.
    assert all(axis.size - 1 >= 16 * (axis.wanted - 1) for axis in missing), missing


def test_an_image_between_infinities_has_no_nan_where_torch_has_none() -> None:
    x = torch.zeros(1, 1, 4, 4)
    x[..., 2, 2] = torch.inf
    agree({"a volume": lambda x: F.interpolate(x[None], scale_factor=2)}, x)


TIES = torch.tensor(
    [
        [1.0, 2, torch.nan, 2, -torch.inf, torch.inf, torch.inf, 0.0, -0.0],
        [-torch.inf] * 4 + [torch.nan] * 3 + [1.0, 1.0],
    ]
)


def test_order_and_places_are_torchs_for_ties_infinities_and_nan() -> None:
    cases: dict[str, Function] = {
        "max": lambda x: x.max(1),
        "min": lambda x: x.min(1, keepdim=True),
        "all": lambda x: (x[:, :2].max(), x[:, :2].min()),
        "sort": lambda x: x.sort(1),
        "sort down": lambda x: x.sort(1, descending=True),
        "argsort": lambda x: torch.argsort(x, dim=0, stable=True),
        "topk": lambda x: x.topk(6)[0],
        "lowest": lambda x: x.topk(6, largest=False)[0],
    }
    agree(cases, TIES)


def test_the_greatest_of_long_rows_are_taken_one_by_one() -> None:
    x = torch.randn(2, 300)
    x[0, 7], x[1, 9] = torch.nan, -torch.inf
    cases: dict[str, Function] = {
        "greatest": lambda x: x.topk(3),
        "least": lambda x: x.topk(3, largest=False),
        "of a first axis": lambda x: x.T.topk(1, 0),
    }
    agree(cases, x)


PERMUTED = torch.stack([torch.randperm(5) for _ in range(12)]).reshape(3, 4, 5).mT.contiguous()


def test_scatters_write_and_add_in_torchs_order() -> None:
    x, s = torch.randn(3, 5, 4), torch.randn(3, 50, 4)
    i, j = torch.randint(0, 5, (3, 7, 4)), torch.randint(0, 5, (3, 50, 4))
    exact: dict[str, Function] = {
        "gather": lambda x, s, i, j: x.gather(1, i[:, :, :3]),
        "tokens": lambda x, s, i, j: x.gather(1, i[:, :, :1].expand(-1, -1, 4)),
        "take_along_dim": lambda x, s, i, j: torch.take_along_dim(x, i[:, :, :1], 1),
        "take of all": lambda x, s, i, j: torch.take_along_dim(x, i),
        "src": lambda x, s, i, j: x.scatter(1, i, s),
        "one write": lambda x, s, i, j: x.scatter(1, i[:, :1], s),
        "known places": lambda x, s, i, j: x.scatter(1, PERMUTED[:, :4], s),
        "value": lambda x, s, i, j: x.scatter(1, j, 2.5),
        "add": lambda x, s, i, j: x.scatter_add(1, i, s),
        "known sums": lambda x, s, i, j: x.scatter_add(1, PERMUTED, s),
        "products": lambda x, s, i, j: x.scatter_reduce(1, i, s, "prod"),
        "least": lambda x, s, i, j: x.scatter_reduce(1, i, s, "amin"),
        "integers": lambda x, s, i, j: x.int().scatter_add(1, i, s.int()),
    }
    agree(exact, x, s, i, j)
    agree({"many": lambda x, s, i, j: x.scatter_add(1, j, s)}, x, s, i, j, rtol=1e-5)


def test_rows_are_added_to_the_same_row_more_than_once() -> None:
    x, rows = torch.randn(3, 5), torch.randint(0, 3, (7,))
    agree({"rows": lambda x, r, s: x.index_add(0, r, s)}, x, rows, torch.randn(7, 5))


def test_whole_quotients_are_torchs_for_every_sign() -> None:
    x = torch.arange(-20, 20, dtype=torch.int32)
    y = torch.tensor([1, -1, 2, -2, 3, -7, 5, -20], dtype=torch.int32).repeat(5)
    f = torch.cat([torch.arange(-40, 40) / 8, torch.tensor([torch.inf, -torch.inf, 1e30])])
    cases: dict[str, Function] = {
        "tensors": lambda x, y, f: (x // y, x % y, torch.fmod(x, y)),
        "cut off": lambda x, y, f: torch.div(x, y, rounding_mode="trunc"),
        "numbers": lambda x, y, f: (x // 3, x % 3, x // -4, torch.fmod(x, 5), x.remainder(-3)),
        "floats": lambda x, y, f: [
            torch.div(f, n, rounding_mode=m) for n in (2.0, -0.25) for m in ("floor", "trunc")
        ],
        "bits": lambda x, y, f: (x & y, x | 6, x ^ y, ~x),
        "types": lambda x, y, f: (x[:4] * f[:4], f[:4] > y[:4], torch.cat([x[:3], f[:3]])),
        "row of an order": lambda x, y, f: f[:80].reshape(2, 40).topk(3)[1] // 7,
    }
    agree(cases, x, y, f)


def test_bounds_that_cross_give_the_upper_one() -> None:
    x = torch.tensor([-torch.inf, 1.0, 2.7, 4.0, torch.nan])
    agree({"clamp": lambda x: (x.clamp(3.0, 2.5), x.clamp(2.5, 3.0))}, x)


def test_shapes_pools_and_norms_are_torchs() -> None:
    x, w = torch.randn(2, 4, 6, 7), torch.rand(4)
    exact: dict[str, Function] = {
        "triangles": lambda x, w: (x.tril(-1), x.triu(2)),
        "diagonal": lambda x, w: x.diagonal(-1, 3, 1) + 0,
        "windows": lambda x, w: x.unfold(2, 3, 2) + 0,
        "columns": lambda x, w: F.unfold(x, (2, 3), dilation=(1, 2), padding=1, stride=(2, 1)),
        "added": lambda x, w: F.fold(
            x.flatten()[:288].reshape(2, 16, 9), (5, 4), 2, (2, 1), (1, 0), (2, 1)
        ),
        "unshuffled": lambda x, w: F.pixel_unshuffle(x[..., :6], 2),
        "maxima of a volume": lambda x, w: F.max_pool3d(x, (2, 3, 2), 2, 1),
        "of one image": lambda x, w: F.max_pool2d(x[0], 3),
        "of a line": lambda x, w: F.max_pool1d(x[0], 3),
        "adaptive maxima": lambda x, w: F.adaptive_max_pool2d(x, (4, 5)),
        "adaptive maxima of a volume": lambda x, w: F.adaptive_max_pool3d(x, (3, 4, 5)),
        "places": lambda x, w: F.max_pool2d(
            x.round(), (3, 2), (2, 1), 1, (1, 2), True, return_indices=True
        ),
        "places in a volume": lambda x, w: F.max_pool3d(x[None], 2, 2, 1, return_indices=True),
        "adaptive places": lambda x, w: F.adaptive_max_pool2d(x.round(), (4, 5), True),
        "places on a line": lambda x, w: F.adaptive_max_pool1d(x[0], 3, True),
        "truths of floats": lambda x, w: ((x > 0).float().any(3), x.all(2), x.round().all()),
        "truths of integers": lambda x, w: (x.round().int().any(1), x.argmax(1).all(1)),
        "integers": lambda x, w: (-x.argmax(1), x.argmax(2).clamp(1, 3)),
        "how many are not 0": lambda x, w: torch.linalg.vector_norm(x.round(), 0, 1),
        "a row is written": lambda x, w: torch.select_scatter(x, x[0], 0, -1),
        "rows are written": lambda x, w: torch.slice_scatter(x, x[:, :2], 1, 2, 9),
    }  # fmt: skip
    agree(exact, x, w)
    rounded: dict[str, Function] = {
        "averages of a volume": lambda x, w: F.avg_pool3d(x, (2, 3, 2), 2, 1, True),
        "padding not counted": lambda x, w: F.avg_pool3d(x, 3, 2, 1, False, False),
        "adaptive": lambda x, w: F.adaptive_avg_pool2d(x, (4, 5)),
        "instances": lambda x, w: F.instance_norm(x, weight=w, bias=w),
        "rows": lambda x, w: F.layer_norm(x, (6, 7), x[0, 0], x[0, 1]),
        "groups": lambda x, w: F.group_norm(x, 2, w, w),
        "batch": lambda x, w: F.batch_norm(x, w - w, w, w, w),
        "of the batch": lambda x, w: torch.native_batch_norm(x, w, w, None, None, True, 0, 1)[0],
        "scaled": lambda x, w: torch.baddbmm(x[0], x[0], x[0].mT @ x[0], beta=0.5, alpha=2),
        "a norm of order 3": lambda x, w: torch.linalg.vector_norm(x, 3, (1, 2)),
        "norms of other orders": lambda x, w: (x.norm(-1.5, 2), x.norm(0.3, 2), x.norm(65, 2)),
        "classes": lambda x, w: F.cross_entropy(x, x.argmax(1), reduction="none"),
        "softplus": lambda x, w: (F.softplus(x, 2.0), F.softplus(x, 0.5, -100)),
        "distances": lambda x, w: torch.cdist(x, x[:, :, :3]),
        "composites": lambda x, w: (F.cosine_similarity(x, x + w[0], 1), x.repeat_interleave(2, 1)),
    }  # fmt: skip
    agree(rounded, x, w, rtol=2e-5)


def test_one_hot_and_tokens_by_number() -> None:
    agree({"one hot": lambda x: F.one_hot(x.argmax(1), 9)}, torch.randn(3, 5))


@pytest.mark.parametrize(
    ("how", "units"),
    [
        ({"scale_factor": 2}, 0),
        ({"size": (13, 10), "mode": "nearest-exact"}, 0),
        ({"scale_factor": 2, "mode": "bilinear"}, 1),
        ({"size": (13, 10), "mode": "bilinear", "align_corners": True}, 1),
    ],
    ids=["nearest", "nearest-exact", "bilinear", "corners"],
)
def test_quantized_images_are_resized_as_integers(how: dict[str, Any], units: int) -> None:
    x = torch.randint(-128, 128, (1, 3, 7, 8), dtype=torch.int8)
    for made in ((0.1, 5), (0.2, -7)):
        model = Of(lambda x, to=made: quantize(F.interpolate(dequantize(x, 0.1, 5), **how), *to))
        low = lowered(model, x, target="tosa-1.0+int")
        (found,), (own,), wanted = low.run(x), low.program.run(x), model(x)
        assert torch.equal(found, own)
        is_same = made == (0.1, 5)
        allowed = units if is_same else 1
        assert ("tosa.sub" in str(low.program)) == (units == 1 and not is_same)
        assert (found.int() - wanted.int()).abs().max() <= allowed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_halves_are_moved_exactly_and_interpolated_in_single(dtype: torch.dtype) -> None:
    x = torch.randn(1, 3, 5, 5).to(dtype)
    cases: dict[str, Function] = {
        "nearest": lambda x: F.interpolate(x, scale_factor=2),
        "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "order": lambda x: x.sort(3)[0],
        "greatest": lambda x: x.max(2),
    }
    agree(cases, x, target="tosa-1.0+fp+int+bf16")
