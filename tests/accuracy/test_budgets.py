"""An error budget takes as few bits as any choice of payloads can."""

from itertools import pairwise, product

import torch
from torch import nn

import stepwell
from stepwell.dialects.tosa_mxfp.numerics import fake_quantize
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS, payload_named
from stepwell.ir.knapsack import least_cost, least_loss
from stepwell.quantization.sensitivity.grids import rounded

WIDTHS = (24, 48, 16, 40, 32, 8)


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(WIDTHS):
        layers += [nn.Linear(wide, narrow), nn.GELU()]
    return nn.Sequential(*layers[:-1]).eval()


def bits(payloads: tuple[str, ...] | list[str | None]) -> int:
    sizes = [a * b for a, b in pairwise(WIDTHS)]
    held = [32 if name is None else payload_named(name).bits for name in payloads]
    return sum(size * count for size, count in zip(sizes, held, strict=True))


def error(model: nn.Sequential, x: torch.Tensor, payloads: tuple[str, ...]) -> float:
    y, names = x, iter(payloads)
    for layer in model:
        if isinstance(layer, nn.Linear):
            name = next(names)
            weight = rounded(layer.weight.detach(), name, -1)
            y = nn.functional.linear(rounded(y, name, -1), weight, layer.bias)
        else:
            y = layer(y)
    wanted = model(x)
    return float((y - wanted).norm() / wanted.norm())


def test_bits_are_within_three_per_cent_of_every_choice_tried() -> None:
    names = ("fp4e2m1", "fp6e2m3", "mxint8")
    for seed in range(2):
        model, x = net(seed), torch.randn(64, WIDTHS[0])
        with torch.no_grad():
            tried = {chosen: error(model, x, chosen) for chosen in product(names, repeat=5)}
            for budget in (0.1, 0.03):
                least = min(bits(chosen) for chosen, moved in tried.items() if moved <= budget)
                given = stepwell.to_mxfp(model, error_budget=budget, samples=[(x,)])
                found = [getattr(layer, "payload", None) for layer in list(given)[::2]]  # pyright: ignore
                assert bits(found) <= 1.03 * least, (budget, found)


def test_a_knapsack_is_exact() -> None:
    things = [[(4.0, 3.0), (8.0, 0.0)], [(4.0, 5.0), (8.0, 1.0)], [(1.0, 1.0), (9.0, 0.0)]]
    sums = {
        picks: (sum(t[p][0] for t, p in zip(things, picks, strict=True)),
                sum(t[p][1] for t, p in zip(things, picks, strict=True)))
        for picks in product(range(2), repeat=3)
    }  # fmt: skip
    for limit in range(9, 26):
        fit = [loss for cost, loss in sums.values() if cost <= limit]
        picks = least_loss(things, limit)
        assert (sums[tuple(picks)][1] if picks else None) == (min(fit) if fit else None)
    assert least_cost(things, 2.0) == [1, 1, 0] and least_cost(things, -1.0) is None


def test_rounding_in_float32_has_the_bits_of_the_cast() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(64, 96, generator=random) * torch.logspace(-20, 20, 64, 2)[:, None]
    x[3] = 0
    for name, kind in PAYLOADS.items():
        assert torch.equal(rounded(x, name, -1), fake_quantize(x, kind)), name
    gray = torch.randn(2, 1, 5, 5, generator=random)
    padded = torch.nn.functional.pad(gray.permute(0, 2, 3, 1), (0, 31))
    kind = PAYLOADS["fp4e2m1"]
    assert torch.equal(rounded(gray, "fp4e2m1", 1)[:, 0], fake_quantize(padded, kind)[..., 0])
