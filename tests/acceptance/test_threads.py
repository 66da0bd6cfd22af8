"""Nothing is process-wide: in any order and thread, the same program gives the same bytes."""

import gc
import logging
import random
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from eager import Function
from torch import Tensor, nn
from torch.nn import functional

import stepwell
from stepwell.ir.platform.process_settings import without_collection, without_logs, without_warnings

THREADS = 8
RANGE = (0.05, 3, -128, 127, torch.int8)


def rounded(x: Tensor) -> Tensor:
    aten = torch.ops.quantized_decomposed
    stored = aten.quantize_per_tensor.default(x, *RANGE)
    return aten.dequantize_per_tensor.default(stored, *RANGE)


FLOATS, INTEGERS = ("xnnpack", "tosa-1.0+fp"), ("xnnpack", "cortex-m55", "tosa-1.0+int")
IMAGE, ROWS, HEADS = (1, 4, 8, 8), (2, 6, 16), (1, 2, 6, 8)
MODELS: dict[str, tuple[nn.Module, tuple[int, ...], tuple[str, ...]]] = {
    "convolution": (
        Function(lambda x, c: functional.relu(c(x)), nn.Conv2d(4, 8, 3)),
        IMAGE,
        FLOATS,
    ),
    "norms": (
        nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)), ROWS, ("xnnpack", "tosa-1.1+fp"),
    ),
    "lstm": (Function(lambda x, c: c(x)[0], nn.LSTM(16, 8, batch_first=True)), ROWS, FLOATS),
    "zero": (Function(lambda x: functional.threshold(x, 0.5, 0.0)), ROWS, FLOATS),
    "negative zero": (Function(lambda x: functional.threshold(x, 0.5, -0.0)), ROWS, FLOATS),
    "gelu": (nn.Sequential(nn.Linear(16, 16), nn.GELU()), ROWS, FLOATS),
    "attention": (
        Function(lambda x: functional.scaled_dot_product_attention(x, x, x)),
        HEADS, ("xnnpack", "tosa-1.1+fp+mxfp"),
    ),
    "scan": (Function(lambda x: x.cumsum(1).sin()), ROWS, ("xnnpack",)),
    "addition": (Function(lambda x: rounded(rounded(x) + rounded(x * 1))), ROWS, INTEGERS),
    "rectified": (Function(lambda x: rounded(functional.relu(rounded(x)))), ROWS, INTEGERS),
}  # fmt: skip
LOGGERS = ("torch", "torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")


def switches() -> dict[str, Any]:
    """What a lowering must leave as it was."""
    return {
        "collection": gc.isenabled(),
        "oneDNN": torch._C._get_mkldnn_enabled(),
        "lifting": torch._C._only_lift_cpu_tensors(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "seed": torch.random.get_rng_state().sum().item(),
        "warnings": list(warnings.filters),
        "loggers": [
            (logger.disabled, logger.level, list(logger.filters), list(logger.handlers))
            for logger in map(logging.getLogger, LOGGERS)
        ],
    }


@contextmanager
def unchanged() -> Iterator[None]:
    before = switches()
    yield
    assert switches() == before


def in_threads(work: Callable[[Any], None], todo: list[Any], count: int = THREADS) -> list[str]:
    """Do all of it in threads that change places often; what was raised, with its trace."""
    failures: list[str] = []
    left, often = list(todo), sys.getswitchinterval()

    def worker() -> None:
        while True:
            try:
                item = left.pop()
            except IndexError:
                return
            try:
                work(item)
            except Exception:
                failures.append(f"{item}: {traceback.format_exc()}")

    threads = [threading.Thread(target=worker) for _ in range(count)]
    sys.setswitchinterval(1e-4)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(often)
    return failures


def test_twenty_lowerings_in_eight_threads_give_the_bytes_of_one_after_the_other() -> None:
    exported: dict[str, Any] = {}
    for name, (module, shape, _) in MODELS.items():
        exported[name] = torch.export.export(module.eval(), (torch.randn(shape),))
    jobs = [(name, target) for name, (*_, targets) in MODELS.items() for target in targets]
    assert len(jobs) >= 20
    shuffled = jobs * 2
    random.Random(0).shuffle(shuffled)
    given: list[tuple[tuple[str, str], bytes]] = []

    def work(job: tuple[str, str]) -> None:
        name, target = job
        given.append((job, stepwell.lower(exported[name], target).artifact))

    with unchanged():
        failures = in_threads(work, shuffled)
    assert not failures, failures[0]
    alone = {(name, target): stepwell.lower(exported[name], target) for name, target in jobs}
    different = [job for job, data in given if data != alone[job].artifact]
    assert len(given) == len(shuffled) and not different
    for name in ("zero", "negative zero"):
        (out,) = alone[name, "tosa-1.0+fp"].program.run(torch.zeros(ROWS))
        assert bool(torch.signbit(out).all()) == (name == "negative zero")


def test_a_lowering_that_fails_leaves_every_switch_as_it_was() -> None:
    exported = torch.export.export(
        Function(lambda x, c: c(x)[0], nn.LSTM(16, 8)), (torch.ones(ROWS),)
    )
    last = stepwell.PIPELINES["xnnpack"].steps[-1]

    def fail(step: Any, program: Any, applied: int) -> None:
        if step is last:
            raise KeyboardInterrupt

    with unchanged(), pytest.raises(KeyboardInterrupt):
        stepwell.lower(exported, "xnnpack", observer=fail)


def test_switches_that_are_held_at_once_are_put_back_in_any_order() -> None:
    """One holder leaves before the other, who came later: not as blocks in one thread nest."""
    logger = logging.getLogger(LOGGERS[1])
    for make in (
        without_collection,
        lambda: without_logs([logger]),
        lambda: without_warnings("something", FutureWarning),
    ):
        before = switches()
        first, second = make(), make()
        first.__enter__()
        second.__enter__()
        assert switches() != before
        first.__exit__(None, None, None)
        assert switches() != before
        second.__exit__(None, None, None)
        assert switches() == before


def test_one_thread_is_silent_and_the_others_are_heard(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger(LOGGERS[1])
    # Whatever other tests, or torch, did to the loggers above this one.
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "disabled", False)
    with caplog.at_level(logging.WARNING, logger.name), without_logs([logger]):
        logger.warning("from here")
        other = threading.Thread(target=lambda: logger.warning("from elsewhere"))
        other.start()
        other.join()
    heard = [record.getMessage() for record in caplog.records]
    assert heard == ["from elsewhere"]


def test_a_class_that_many_threads_ask_for_is_made_once() -> None:
    from stepwell.dialects.aten.registry import find

    classes: list[Any] = []
    name = "aten._linalg_check_errors.default"
    in_threads(lambda _: classes.append(find(name)), list(range(THREADS)))
    assert len(classes) == THREADS and len(set(classes)) == 1 and classes[0] is not None
