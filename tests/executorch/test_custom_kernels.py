"""ExecuTorch's operators for language models: their kernels write caches where they lie."""

from importlib import import_module
from typing import Any

import pytest
import torch
from eager import assert_as_eager, lower
from torch import Tensor, nn

import stepwell
from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects.aten.registry import op_class

CONTEXT, HEADS, HEAD = 8, 2, 4


def llama(name: str) -> Any:
    op_class(f"llama.{name}.default")  # Loads the library.
    return getattr(torch.ops.llama, name).default


class Attends(nn.Module):
    """A step of attention with ExecuTorch's operators: keys and values written, then read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, CONTEXT, HEADS, HEAD))
        self.register_buffer("values", torch.zeros(1, CONTEXT, HEADS, HEAD))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        at = position[0].item()
        torch._check(at >= 0)
        torch._check(at < CONTEXT)
        llama("update_cache")(x * 2, self.keys, at)
        llama("update_cache")(x * 3, self.values, at)
        return llama("custom_sdpa")(x, self.keys, self.values, at, None, 0.0, True)


class Both(Attends):
    """The same with the operator that does both."""

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        at = position[0].item()
        torch._check(at >= 0)
        torch._check(at < CONTEXT)
        return llama("sdpa_with_kv_cache")(
            x, x * 2, x * 3, self.keys, self.values, at, x.shape[1], None, 0.0, True
        )


def exported(model: type[nn.Module], *, dynamic: bool = False) -> Any:
    length = {1: torch.export.Dim("n", min=1, max=CONTEXT - 1)} if dynamic else None
    inputs = (torch.randn(1, 3 if dynamic else 1, HEADS, HEAD), torch.tensor([0]))
    model()(*inputs)  # A trace cannot load the library.
    return torch.export.export(model(), inputs, dynamic_shapes=(length, None), strict=True)


def steps(dynamic: bool) -> list[tuple[Tensor, Tensor]]:
    lengths = [3, 1, 2] if dynamic else [1, 1, 1, 1]
    found, at = list[tuple[Tensor, Tensor]](), 0
    for length in lengths:
        found.append((torch.randn(1, length, HEADS, HEAD), torch.tensor([at])))
        at += length
    return found


@pytest.mark.parametrize("dynamic", [False, True], ids=["a token", "tokens of any number"])
@pytest.mark.parametrize("model", [Attends, Both])
def test_attention_over_a_cache_is_eagers_wherever_it_runs_and_when_it_is_read_back(
    model: type[nn.Module], dynamic: bool
) -> None:
    lowered = stepwell.lower(exported(model, dynamic=dynamic), "xnnpack")
    programs: list[Any] = [lowered.program.start(), PteSession.load(lowered.to_pte())]
    if not dynamic:
        programs.append(stepwell.read_pte(lowered.to_pte()).start())
    for program in programs:
        eager = model()
        for step in steps(dynamic):
            assert_as_eager(program, eager, *step)


@pytest.mark.parametrize("model", [Attends, Both])
def test_no_cache_is_copied_or_takes_place_in_the_file(model: type[nn.Module]) -> None:
    container = read_container(stepwell.lower(exported(model, dynamic=True), "xnnpack").to_pte())
    called = [c.kernel for c in container.methods[0].instructions if isinstance(c, KernelCall)]
    assert not {"aten::clone.out", "aten::copy_"} & set(called)
    assert sum(map(len, container.mutable_data)) == 0


def test_a_cache_that_is_read_as_it_was_is_copied_first() -> None:
    class Late(Attends):
        def forward(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
            before = self.keys.clone()
            llama("update_cache")(x, self.keys, 1)
            return self.keys.sum(2), before.sum(2)

    x = torch.randn(1, 1, HEADS, HEAD)
    lowered = stepwell.lower(torch.export.export(Late(), (x, torch.tensor([0]))), "xnnpack")
    eager, runtime = Late(), PteSession.load(lowered.to_pte())
    for _ in range(2):
        assert_as_eager(runtime, eager, x, torch.tensor([0]))


@pytest.mark.parametrize("overload", ["", ".dtype"])
@pytest.mark.parametrize("bits", ["byte", "4bit", "2bit"])
def test_quantized_embeddings_are_called_as_kernels(bits: str, overload: str) -> None:
    import_module("executorch.exir.passes._quant_patterns_and_replacements")  # Registers them.
    packet = getattr(torch.ops.quantized_decomposed, f"embedding_{bits}")
    op = getattr(packet, overload[1:] or "default")
    most = {"byte": 127, "4bit": 7, "2bit": 1}[bits]
    kind = torch.int8 if bits == "byte" else torch.uint8
    extra = {"dtype": torch.float32} if overload else {}

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            low, high = (-128, 128) if kind == torch.int8 else (0, 256)
            self.register_buffer("table", torch.randint(low, high, (5, 8), dtype=kind))
            self.register_buffer("scales", torch.rand(5, 2))

        def forward(self, tokens: Tensor) -> Tensor:
            return op(self.table, self.scales, None, -most - 1, most, tokens, **extra) * 2

    table, tokens = Table(), torch.tensor([[4, 0, 3]])
    assert_as_eager(lower(table, tokens), table, tokens)


def test_caches_that_begin_alike_are_kept_once_where_all_of_them_is_read() -> None:
    class Reads(Attends):
        def forward(self, x: Tensor, position: Tensor) -> Tensor:
            llama("update_cache")(x, self.keys, 1)
            llama("update_cache")(x, self.values, 1)
            return self.keys.sum(2) + self.values.sum(2)

    given = (torch.randn(1, 1, HEADS, HEAD), torch.tensor([0]))
    pte = stepwell.lower(torch.export.export(Reads(), given), "xnnpack").to_pte()
    assert sum(map(len, read_container(pte).mutable_data)) == CONTEXT * HEADS * HEAD * 4
    assert_as_eager(PteSession.load(pte), Reads(), *given)
