"""torch's private names. No other module of stepwell uses one (`tests/test_private_names.py`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from stepwell.ir.compat.private_names import PrivateName, look_up

__all__ = [
    "NAMES",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "TorchDispatchMode",
    "TrainingIRVerifier",
    "UnsupportedOperatorException",
    "ValueRanges",
    "core_aten_decompositions",
    "decomposition_table",
    "disable_current_modes",
    "enable_python_dispatcher",
    "has_kernel_for_key",
    "int_oo",
    "is_functorch_wrapped_tensor",
    "is_traceable_wrapper_subclass",
    "memory_of",
    "module_db",
    "neg_view",
    "op_db",
    "operator_and_overload",
    "operator_names",
    "overloads_of",
    "package",
    "packing_by",
    "program_of",
    "pytree",
    "replaced",
    "scan",
    "schema",
    "schema_of",
    "serialize",
    "sym_sqrt",
    "sympy_functions",
    "traced_by",
    "weights_and_constants",
    "without_elements",
]

_TRACING = "decomposing operators with PyTorch's own decompositions"
_SHAPES = "symbolic sizes"
_PACKED = "export of packed sequences"
_PT2 = "reading a .pt2 without its sample inputs"
_ZOO = "the zoo's catalogue of PyTorch's own samples"

NAMES: dict[str, PrivateName] = {
    "FakeTensorMode": PrivateName(
        "torch._subclasses.fake_tensor:FakeTensorMode", "inference of result types"
    ),
    "HigherOrderOperator": PrivateName("torch._ops:HigherOrderOperator", "import of control flow"),
    "OpOverload": PrivateName("torch._ops:OpOverload", "the type of register_op's argument"),
    "TorchDispatchMode": PrivateName(
        "torch.utils._python_dispatch:TorchDispatchMode", "recording of decompositions"
    ),
    "TrainingIRVerifier": PrivateName(
        "torch._export.verifier:TrainingIRVerifier", "to_exported_program()"
    ),
    "UnsupportedOperatorException": PrivateName(
        "torch._subclasses.fake_tensor:UnsupportedOperatorException", "inference of result types"
    ),
    "ValueRanges": PrivateName("torch.utils._sympy.value_ranges:ValueRanges", _SHAPES),
    "composite_key": PrivateName(
        "torch:_C.DispatchKey.CompositeImplicitAutograd", "export of recurrent layers of any length"
    ),
    "core_aten_decompositions": PrivateName("torch._decomp:core_aten_decompositions", _TRACING),
    "decomposition_table": PrivateName("torch._decomp:decomposition_table", _TRACING),
    "disable_current_modes": PrivateName(
        "torch.utils._python_dispatch:_disable_current_modes", _TRACING
    ),
    "enable_python_dispatcher": PrivateName(
        "torch._dispatch.python:enable_python_dispatcher", _TRACING
    ),
    "has_kernel_for_key": PrivateName(
        "torch:_C._dispatch_has_kernel_for_dispatch_key", "recognizing composite operators"
    ),
    "int_oo": PrivateName("torch.utils._sympy.numbers:int_oo", _SHAPES),
    "is_functorch_wrapped_tensor": PrivateName(
        "torch:_C._functorch.is_functorch_wrapped_tensor", "checking the inputs of a call"
    ),
    "is_traceable_wrapper_subclass": PrivateName(
        "torch.utils._python_dispatch:is_traceable_wrapper_subclass", "import of torchao's weights"
    ),
    "module_db": PrivateName("torch.testing._internal.common_modules:module_db", _ZOO),
    "neg_view": PrivateName("torch:_neg_view", "saving of conjugate weights"),
    "op_db": PrivateName("torch.testing._internal.common_methods_invocations:op_db", _ZOO),
    "operator_names": PrivateName("torch:_C._dispatch_get_all_op_names", "the list of operators"),
    "packing": PrivateName("torch.nn.utils.rnn:_VF", _PACKED),
    "package": PrivateName("torch.export.pt2_archive._package", _PT2),
    "pytree": PrivateName("torch.utils._pytree", "nested inputs and outputs"),
    "scan": PrivateName("torch._higher_order_ops:scan", _PACKED),
    "schema": PrivateName("torch._export.serde.schema", _PT2),
    "serialize": PrivateName("torch._export.serde.serialize", _PT2),
    "sym_sqrt": PrivateName("torch:_sym_sqrt", _SHAPES),
    "sympy_functions": PrivateName("torch.utils._sympy.functions", _SHAPES),
}

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C import _dispatch_get_all_op_names as operator_names  # pyright: ignore
    from torch._C import _dispatch_has_kernel_for_dispatch_key as has_kernel_for_key
    from torch._decomp import core_aten_decompositions as core_aten_decompositions
    from torch._decomp import decomposition_table as decomposition_table
    from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
    from torch._export.serde import schema as schema
    from torch._export.serde import serialize as serialize
    from torch._export.verifier import TrainingIRVerifier as TrainingIRVerifier
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.fake_tensor import (
        UnsupportedOperatorException as UnsupportedOperatorException,
    )
    from torch.testing._internal.common_methods_invocations import op_db as op_db
    from torch.testing._internal.common_modules import module_db as module_db
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._python_dispatch import (
        _disable_current_modes as disable_current_modes,  # pyright: ignore[reportPrivateUsage]
    )
    from torch.utils._python_dispatch import (
        is_traceable_wrapper_subclass as is_traceable_wrapper_subclass,
    )
    from torch.utils._sympy import functions as sympy_functions
    from torch.utils._sympy.numbers import int_oo as int_oo
    from torch.utils._sympy.value_ranges import ValueRanges as ValueRanges

    package: Any
    is_functorch_wrapped_tensor: Callable[[Tensor], bool]
    scan: Any
    neg_view: Callable[[Tensor], Tensor]
    sym_sqrt: Callable[[Any], Any]
else:

    def __getattr__(name: str) -> Any:
        return look_up(NAMES, name)


def schema_of(overload: Any) -> Any:
    """Return the schema of an overload, as torch parsed it."""
    return overload._schema


def overloads_of(overload: Any) -> list[Any]:
    """List all overloads of an overload's operator, including itself."""
    packet = overload._overloadpacket
    return [getattr(packet, name) for name in packet.overloads()]


def operator_and_overload(overload: Any) -> tuple[str, str]:
    """Return `("add", "Tensor")` for `aten.add.Tensor`."""
    return overload._opname, overload._overloadname


def program_of(text: bytes) -> Any:
    """Parse the program of a `.pt2` into the classes of torch's schema."""
    kind = look_up(NAMES, "schema").ExportedProgram
    return look_up(NAMES, "serialize")._bytes_to_dataclass(kind, text)


def weights_and_constants(archive: Any, model: str) -> tuple[Any, Any]:
    """Load a model's weights and constants from the archive of a `.pt2`."""
    package = look_up(NAMES, "package")
    return package._load_state_dict(archive, model), package._load_constants(archive, model)


def without_elements(cls: Any, shape: Any, dtype: Any) -> Any:
    """Create a tensor of a subclass with a shape and an element type, but no memory."""
    return cls._make_wrapper_subclass(cls, shape, dtype=dtype)


def memory_of(storage: Any) -> int:
    """Return an address that identifies a storage; all views of the storage have the same one."""
    return int(storage._cdata)


@contextmanager
def traced_by(function: Callable[..., Any], overloads: Sequence[Any]) -> Generator[None]:
    """Let traces compute composite operators by a function of the same arguments."""
    key = look_up(NAMES, "composite_key")
    before = [overload.py_kernels.pop(key, None) for overload in overloads]
    for overload in overloads:
        overload.py_impl(key)(function)
    try:
        yield
    finally:
        for overload, kernel in zip(overloads, before, strict=True):
            del overload.py_kernels[key]
            overload.py_impl(key)(kernel or function)  # It forgets what it dispatched to.
            if kernel is None:
                del overload.py_kernels[key]


@contextmanager
def packing_by(pack: Callable[..., Any], unpack: Callable[..., Any]) -> Generator[None]:
    """Let `pack_padded_sequence` and `pad_packed_sequence` call functions instead of kernels."""
    kernels = SimpleNamespace(_pack_padded_sequence=pack, _pad_packed_sequence=unpack)
    module, _, name = NAMES["packing"].place.partition(":")
    with replaced(import_module(module), name, kernels):
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Generator[None]:
    """Replace an attribute of a module or class in the context."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
