"""What stands for an operator that PyTorch has no decomposition of computes what eager computes."""

import inspect
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eager import lower
from torch import nn

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.torch_private import (
    FakeTensorMode,
    TorchDispatchMode,
    pytree,
    schema_of,
)
from stepwell.translate.decompositions.traced import DECOMPOSITIONS
from stepwell.translate.decompositions.traced.curves import CURVES, Series
from stepwell.translate.decompositions.traced.draws import DRAWS

RELATIVE, ABSOLUTE = 2e-5, 1e-5
"""The bound of `decompose-for-kernels`."""
CALLS = 5
"""Of each operator, for each element type."""
DTYPES = (torch.float32, torch.float64, torch.int64)
TIES = ("kthvalue", "median", "nanmedian")
"""They promise nothing of which of equal numbers they name the place of."""


class Calls(TorchDispatchMode):
    """Keeps the first calls of the operators under test, as PyTorch's own samples make them."""

    def __init__(self, kept: dict[Any, list[Any]], dtype: torch.dtype) -> None:
        super().__init__()
        self.kept, self.dtype = kept, dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if (
            func in DECOMPOSITIONS
            and func not in DRAWS
            and len(self.kept[func, self.dtype]) < CALLS
        ):
            self.kept[func, self.dtype].append((args, kwargs, pytree.tree_leaves(result)))
        return result


NAMED = frozenset(schema_of(o).name.split("::")[1].strip("_") for o in DECOMPOSITIONS)


def is_of_them(name: str) -> bool:
    """Whether PyTorch's samples of an operator are of one under test."""
    last = name.rpartition(".")[2].strip("_")
    return bool(NAMED & {last, f"special_{last}"}) or last in ("conv3d", "conv_transpose3d")


@cache
def calls() -> dict[Any, list[Any]]:
    """The calls that samples of operators make, by overload and element type."""
    kept: dict[Any, list[Any]] = defaultdict(list)
    for info in torch_private.op_db:  # Imported here: two CPU seconds, in each worker.
        if not is_of_them(info.name):
            continue
        for dtype in DTYPES:
            if not info.supports_dtype(dtype, "cpu"):
                continue
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # `sample_inputs` itself looks through the whole stack at each sample.
                for sample in islice(info.sample_inputs_func(info, "cpu", dtype, False), CALLS):
                    try:
                        with Calls(kept, dtype):
                            info.op(sample.input, *sample.args, **sample.kwargs)
                    except Exception:  # Some samples are to fail.
                        continue
    return kept


def agree(found: Any, wanted: torch.Tensor) -> bool:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    finite = wanted[wanted.isfinite()].double().abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return torch.allclose(found, wanted, RELATIVE, ABSOLUTE * scale, equal_nan=True)


def composed(overload: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    try:
        result = DECOMPOSITIONS[overload](*args, **kwargs)
    except NotImplementedError:
        return
    if result is not NotImplemented:
        yield pytree.tree_leaves(result)


def in_double(overload: Any, args: Any) -> list[torch.Tensor]:
    """Near a pole PyTorch's kernel of single precision is wrong in the fourth digit."""
    made = overload(*(v.double() if isinstance(v, torch.Tensor) else v for v in args))
    return [made.float()]


@pytest.mark.parametrize("overload", [o for o in DECOMPOSITIONS if o not in DRAWS], ids=str)
def test_a_composition_computes_what_the_kernel_does(overload: Any) -> None:
    for dtype in DTYPES:
        for args, kwargs, wanted in calls()[overload, dtype]:
            for found in composed(overload, args, kwargs):
                if overload in CURVES and dtype == torch.float32:
                    wanted = in_double(overload, args)
                has_ties = any(name in str(overload) for name in TIES)
                pairs = list(zip(found, wanted, strict=True))[: 1 if has_ties else None]
                assert all(agree(one, other) for one, other in pairs), (args, kwargs)


@pytest.mark.parametrize("overload", DECOMPOSITIONS, ids=str)
def test_a_composition_takes_what_its_operator_takes(overload: Any) -> None:
    taken = inspect.signature(DECOMPOSITIONS[overload])
    schema = schema_of(overload).arguments
    positional = [a for a in schema if not a.kwarg_only]
    named = {a.name: object() for a in schema if a.kwarg_only}
    needed = {a.name: object() for a in schema if a.kwarg_only and not a.has_default_value()}
    taken.bind(*(object() for a in positional if not a.has_default_value()), **needed)
    taken.bind(*(object() for _ in positional), **named)


NUMBERS = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, -2.0, -2.5, 3.0, 8.0, 1e-38)
LARGE = (3e38, 1e5, 88.0, -100.0, 1e-7)
ONE = [
    o
    for o in DECOMPOSITIONS
    if [str(a.type) for a in schema_of(o).arguments] == ["Tensor"] and o not in DRAWS
]


@pytest.mark.parametrize("overload", ONE, ids=str)
def test_special_numbers_become_what_eager_makes_of_them(overload: Any) -> None:
    x = torch.tensor([*NUMBERS, *LARGE, *torch.linspace(-12, 12, 97).tolist()])
    for found in composed(overload, (x,), {}):
        wanted = pytree.tree_leaves(overload(x))
        assert all(agree(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("function", [torch.fmin, torch.fmax, torch.hypot, torch.copysign])
def test_pairs_of_special_numbers_become_what_eager_makes_of_them(
    function: Callable[..., Any],
) -> None:
    numbers = torch.tensor([*NUMBERS, 1e-45, 3e38])
    a, b = (v.contiguous() for v in torch.meshgrid(numbers, numbers, indexing="ij"))
    b = torch.where(b.isnan(), b.abs(), b)  # A NaN's sign is nothing that comparisons see.
    assert agree(lowered(function, a, b)[0], function(a, b))


def lowered(function: Callable[..., Any], *given: torch.Tensor) -> Any:
    return lower(function, *given).run(*given)


VOLUME = (2, 4, 5, 6, 7)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a kernel of volumes that is computed": (
        lambda x, w: F.conv3d(x, w, None, (2, 1, 1), (1, 0, 1), (1, 2, 1), 2),
        (VOLUME, (6, 2, 3, 2, 2)),
    ),
    "a transposed convolution of volumes": (
        lambda x, w, b: F.conv_transpose3d(x, w, b, (3, 2, 1), (2, 1, 0), (1, 1, 0), 2, (2, 1, 1)),
        (VOLUME, (4, 3, 3, 2, 2), (6,)),
    ),
    "means of boxes that reach over the edge": (
        lambda x: F.avg_pool3d(x, (3, 2, 2), 2, 1, True, False),
        (VOLUME,),
    ),
    "means of parts that overlap": (lambda x: F.adaptive_avg_pool3d(x, (3, 4, 2)), (VOLUME,)),
    "the places of greatest numbers": (
        lambda x: F.adaptive_max_pool3d(x, (3, 4, 2), return_indices=True),
        (VOLUME,),
    ),
    "a response in its neighbors": (lambda x: F.local_response_norm(x, 3), ((2, 6, 4, 4),)),
    "sorted rows": (lambda x: torch.sort(x, 0, descending=True), ((9, 4),)),
    "a running maximum": (lambda x: torch.cummax(x, 1), ((3, 11),)),
    "a form in two inputs": (F.bilinear, ((5, 3), (5, 4), (2, 3, 4), (2,))),
}


@pytest.mark.parametrize("case", CASES)
def test_it_runs_on_the_runtime(case: str) -> None:
    function, shapes = CASES[case]
    torch.manual_seed(0)
    given = tuple(torch.randn(shape) for shape in shapes)
    wanted = pytree.tree_leaves(function(*given))
    assert all(agree(*pair) for pair in zip(lowered(function, *given), wanted, strict=True))


def test_a_loss_with_its_projection_needs_no_parts() -> None:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    x, weight, target = torch.randn(8, 3), torch.randn(4, 3), torch.arange(8) % 4
    options = LinearCrossEntropyOptions(batch_chunk_size=2)

    def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.linear_cross_entropy(x, weight, target, options=options)

    assert agree(lowered(loss, x, weight, target)[0], loss(x, weight, target))


def test_what_adds_up_nowhere_else_is_compared_on_tosa() -> None:
    x, index, values = torch.randn(3, 4), torch.tensor([2, 0, 2]), torch.randn(3, 4)

    def add(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.index_put((index,), values, accumulate=True)

    low = lower(add, x, index, values, target="tosa-1.0+fp+int", ranges={"inputs_1": (-3, 2)})
    assert agree(low.run(x, index, values)[0], add(x, index, values))


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp+int"])
def test_a_nan_stays_in_what_runs_over_it(target: str) -> None:
    x = torch.tensor([[0.0, 1.0, math.nan, 3.0, -1.0, math.inf], [math.inf, 2, 2, -math.inf, 0, 1]])

    def running(x: torch.Tensor) -> Any:
        return x.logcumsumexp(1), *x.cummax(1), *x.cummin(1), *x.median(1), *x.sort(1)

    found = lower(running, x, target=target).run(x)
    for one, other in zip(found, running(x), strict=True):
        torch.testing.assert_close(
            one, other, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True, check_dtype=False
        )  # TOSA's places are 32 bits wide.


def test_a_copy_to_another_layout_holds_the_same_numbers() -> None:
    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.to("cpu", torch.float64, True, True, memory_format=torch.channels_last)

    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(lowered(copied, x)[0], copied(x))


def test_equal_numbers_keep_their_order() -> None:
    x = torch.tensor([[3, 1, 3, 1, 2, 1], [0, 0, 0, 0, 0, 0]])
    for found, wanted in zip(lowered(torch.sort, x), torch.sort(x, stable=True), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_what_is_written_twice_is_reduced(reduce: str, include_self: bool) -> None:
    x, src = torch.randn(4, 5), torch.randn(3, 3)
    index = torch.tensor([[0, 4, 0], [1, 1, 1], [2, 0, 2]])

    def write(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        return torch.scatter_reduce(x, 1, index, src, reduce, include_self=include_self)

    assert agree(lowered(write, x, index, src)[0], write(x, index, src))


def test_terms_of_a_series_are_numbers_where_operators_are_traced() -> None:
    quantile = torch.special.ndtri
    with FakeTensorMode():
        traced = Series(quantile, 0.1, 0.9).terms
    assert traced == Series(quantile, 0.1, 0.9).terms


RECURRENT: dict[str, tuple[Any, nn.RNNBase]] = {
    "long memory": (torch.ops.aten.lstm.input, nn.LSTM(3, 4, 2, batch_first=True)),
    "a projection, both ways": (
        torch.ops.aten.lstm.input,
        nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2, bias=False),
    ),
    "gates": (torch.ops.aten.gru.input, nn.GRU(3, 4, 2, bidirectional=True, batch_first=True)),
    "a tanh": (torch.ops.aten.rnn_tanh.input, nn.RNN(3, 4, bias=False)),
    "a clamp": (torch.ops.aten.rnn_relu.input, nn.RNN(3, 4, 3, nonlinearity="relu")),
}


def called(net: nn.RNNBase, train: bool = False) -> tuple[Any, ...]:
    """A call of the operator behind a layer, of a batch of two and five steps."""
    ways = 1 + net.bidirectional
    sizes = [net.proj_size or 4, 4][: 1 + isinstance(net, nn.LSTM)]
    state = [torch.randn(net.num_layers * ways, 2, size) for size in sizes]
    x = torch.randn(2, 5, 3) if net.batch_first else torch.randn(5, 2, 3)
    held = state if len(state) == 2 else state[0]
    flags = (net.bias, net.num_layers, 0.5 if train else 0.0, train)
    return x, held, [*net.parameters()], *flags, net.bidirectional, net.batch_first


@pytest.mark.parametrize("case", RECURRENT)
@torch.no_grad()
def test_the_steps_of_a_recurrence_are_the_layer(case: str) -> None:
    overload, net = RECURRENT[case]
    given = called(net)
    for found, wanted in zip(DECOMPOSITIONS[overload](*given), overload(*given), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("made", [nn.LSTMCell, nn.GRUCell, nn.RNNCell, "relu", "no bias"])
@torch.no_grad()
def test_a_step_that_a_model_calls_is_the_cell(made: Any) -> None:
    options: dict[str, Any] = {"relu": {"nonlinearity": "relu"}, "no bias": {"bias": False}}
    cell = nn.RNNCell(3, 4, **options[made]) if isinstance(made, str) else made(3, 4)
    state = torch.randn(2, 2, 4)
    held = (state[0], state[1]) if isinstance(cell, nn.LSTMCell) else state[0]
    kinds = {nn.LSTMCell: "lstm_cell", nn.GRUCell: "gru_cell", nn.RNNCell: "rnn_tanh_cell"}
    name = "rnn_relu_cell" if made == "relu" else kinds[type(cell)]
    overload = getattr(torch.ops.aten, name).default
    given = (torch.randn(2, 3), held, *cell.parameters())
    torch.testing.assert_close(DECOMPOSITIONS[overload](*given), overload(*given))


def test_a_recurrence_that_drops_out_is_left() -> None:
    overload, net = RECURRENT["gates"]
    assert DECOMPOSITIONS[overload](*called(net, train=True)) is NotImplemented
