"""ExecuTorch's private names, which no other module of stepwell uses."""

from __future__ import annotations

from typing import Any

from stepwell.ir.compat.private_names import PrivateName, look_up

NAMES: dict[str, PrivateName] = {
    "edge_ops": PrivateName("executorch.exir.dialects._ops:ops", "import of edge programs"),
    "named_data": PrivateName(
        "executorch.exir._serialize._named_data_store:NamedDataStore",
        "delegates inside the stock flow",
    ),
    "kernel_names": PrivateName(
        "executorch.extension.pybindings.portable_lib:_get_operator_names",
        "the generated list of kernels",
    ),
    "count_threads": PrivateName(
        "executorch.extension.pybindings.portable_lib:_threadpool_get_thread_count",
        "latencies of tuning, by the clock of one thread",
    ),
    "reset_threadpool": PrivateName(
        "executorch.extension.pybindings.portable_lib:_unsafe_reset_threadpool",
        "latencies of a sweep on one thread",
    ),
}


def __getattr__(name: str) -> Any:
    return look_up(NAMES, name)


def instruction_of(event: Any) -> int:
    """Return the number of a profiler event's instruction; 0 if it has none."""
    return event._instruction_id or 0


def constant_methods(manager: Any) -> dict[str, Any]:
    """Return the plain values that methods of an edge program manager return, by name."""
    return manager._config_methods or {}
