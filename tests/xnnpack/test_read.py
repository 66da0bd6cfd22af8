"""Payloads read back: ours, the stock flow's, and hostile ones."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from dialect_building import interpreted
from dialect_cases import all_cases
from isolated_run import Trial, container_of
from xdsl.dialects.test import TestOp

import stepwell
from stepwell.backends.executorch.container import Container, DelegateCall, TensorValue
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.reading.readers import ReadContext
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.xnnpack.emit import payload
from stepwell.backends.xnnpack.read import XnnpackReader, read_payload
from stepwell.dialects.xnnpack import DelegateOp, XnnpackOp
from stepwell.ir.diagnostics import ParseFailure, StepwellError
from stepwell.ir.dtypes import element_type
from stepwell.ir.types import AnyTensor, dims, tensor
from stepwell.ir.weights import WeightStore

DATA = Path(__file__).parent / "data"
STOCK = ("stock_float", "stock_static_int8", "stock_dynamic_int8")


def reread(trial: Trial, data: Any = None, named: Any = None) -> Trial:
    """The trial with its delegate written and read back."""
    made = payload(trial.delegate, trial.weights, embed_unpacked_constants=True)
    weights = WeightStore()
    body = read_payload(
        made.payload if data is None else data,
        [value.type for value in trial.delegate.operands],
        [result.type for result in trial.delegate.results],
        weights,
        {key: held.data for key, held in made.named_data.items()} if named is None else named,
    )
    made_types = [result.type for result in trial.delegate.results]
    return Trial(DelegateOp.make(trial.delegate.operands, made_types, body), weights, trial.inputs)


def nodes(trial: Trial) -> list[tuple[str, Any, Any]]:
    """What the nodes are: names, fields, and the shapes of their results."""
    return [
        (op.name, op.properties, [dims(result.type) for result in op.results])
        for op in trial.delegate.block.ops
        if isinstance(op, XnnpackOp)
    ]


def types(trial: Trial) -> list[Any]:
    """The types of all results."""
    return [result.type for op in trial.delegate.block.ops for result in op.results]


def test_what_is_written_is_read_back() -> None:
    for case in all_cases():
        trial = case.trial()
        again = reread(trial)
        again.delegate.verify()
        assert nodes(trial) == nodes(again), case.name
        assert types(again) == types(reread(again)), case.name  # Scales are float32 by now.
        for want, got in zip(interpreted(trial), interpreted(again), strict=True):
            assert torch.equal(want, got) or torch.equal(want.isnan(), got.isnan()), case.name


def stock_trials(name: str) -> tuple[Container, list[Trial], bytes]:
    """The delegates of a stock program as trials with random inputs."""
    data = (DATA / f"{name}.pte").read_bytes()
    container = read_container(data)
    (method,) = container.methods
    trials: list[Trial] = []
    for number, call in enumerate(method.instructions):
        if not isinstance(call, DelegateCall):
            continue
        weights = WeightStore()
        context = ReadContext(weights, container.named_data, f"forward.{number}")
        delegate = method.delegates[call.delegate]
        reader = XnnpackReader()
        count = reader.input_count(delegate, context)

        def laid_out(index: int) -> AnyTensor:
            value = method.values[index]
            assert isinstance(value, TensorValue)
            shape = [value.sizes[axis] for axis in value.dim_order]
            return tensor(shape, element_type(torch_dtype(value.scalar_type)))

        given = [laid_out(index) for index in call.args[:count]]
        made = [laid_out(index) for index in call.args[count:]]
        op = reader.read(delegate, TestOp(result_types=given).results, made, context)
        inputs = tuple(torch.randn(type_.get_shape()) for type_ in given)
        trials.append(Trial(op, weights, inputs))
    return container, trials, data


@pytest.mark.parametrize("name", STOCK)
def test_stock_delegates_read_and_verify(name: str) -> None:
    _, trials, _ = stock_trials(name)
    assert len(trials) == 2
    for trial in trials:
        trial.delegate.verify()
        for op in trial.delegate.block.ops:
            op.verify()


@pytest.mark.parametrize("name", STOCK)
def test_stock_delegates_run_alike_when_we_emit_them_and_when_we_interpret_them(name: str) -> None:
    """The stock payloads themselves, in a container of ours, against our payloads of them."""
    container, trials, _ = stock_trials(name)
    ours = container_of(trials)
    (method,) = container.methods
    calls = [call for call in method.instructions if isinstance(call, DelegateCall)]
    import dataclasses

    stock = dataclasses.replace(
        ours,
        named_data=container.named_data,
        methods=tuple(
            dataclasses.replace(mine, delegates=(method.delegates[call.delegate],))
            for mine, call in zip(ours.methods, calls, strict=True)
        ),
    )
    first, second = PteSession.load(to_bytes(ours)), PteSession.load(to_bytes(stock))
    for number, trial in enumerate(trials):
        mine = first.run(*trial.inputs, method=f"trial_{number}")
        theirs = second.run(*trial.inputs, method=f"trial_{number}")
        meant = interpreted(trial)
        for got, want, model in zip(mine, theirs, meant, strict=True):
            assert torch.equal(got, want)
            torch.testing.assert_close(got, model, rtol=1e-5, atol=1e-6)


def test_damaged_payloads_are_refused_or_read_never_worse() -> None:
    chance = random.Random(0)
    refused = 0
    for case in all_cases()[::8]:
        trial = case.trial()
        made = payload(trial.delegate, trial.weights, embed_unpacked_constants=True)
        named = {key: held.data for key, held in made.named_data.items()}
        for _ in range(25):
            damaged = bytearray(made.payload)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            try:
                reread(trial, bytes(damaged), named)
            except StepwellError:
                refused += 1
    assert refused > 100


def test_cut_payloads_are_refused() -> None:
    trial = all_cases()[0].trial()
    data = payload(trial.delegate, trial.weights).payload
    for size in range(0, len(data) - 16, 7):
        with pytest.raises(ParseFailure):
            reread(trial, data[:size], {})


def test_a_payload_whose_constants_are_missing_is_refused() -> None:
    trial = next(c for c in all_cases() if c.name == "xnnpack.fully_connected fp32").trial()
    data = payload(trial.delegate, trial.weights).payload
    with pytest.raises(ParseFailure, match="no data named"):
        reread(trial, data, {})


def test_a_call_of_other_types_than_the_payload_s_is_refused() -> None:
    trial = all_cases()[0].trial()
    data = payload(trial.delegate, trial.weights).payload
    wrong = tensor([2, 2], element_type(torch.int8))
    with pytest.raises(ParseFailure, match="an input is"):
        read_payload(data, [wrong], [wrong], WeightStore(), {})


def test_a_file_without_the_data_that_a_payload_names_is_not_run() -> None:
    """The runtime ends its process there; a name that is no UTF-8 ends it too."""
    x = torch.ones(1, 3)
    pte = stepwell.lower(torch.export.export(torch.nn.Linear(3, 2), (x,)), "xnnpack").to_pte()
    stepwell.run_pte(pte, [x])
    key = next(iter(read_container(bytearray(pte)).named_data)).encode()
    at = pte.index(key)
    for other, said in ((b"?" * len(key), "has no data named"), (b"\xff" * len(key), "UTF-8")):
        with pytest.raises(ParseFailure, match=said):
            stepwell.run_pte(pte[:at] + other + pte[at + len(key) :], [x])
