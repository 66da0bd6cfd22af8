"""MX models compute in PyTorch, bit for bit, what the reference model computes."""

from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch
from eager import Function, exported
from torch import nn

import stepwell
from deit import deit_small_depth2
from stepwell.dialects.tosa.targets import MX_EXTENSIONS
from stepwell.dialects.tosa_mxfp import operators as mx
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.translate.mxfp import MxConv2d, MxLinear, MxMatmul, to_mxfp
from stepwell.translate.mxfp.attention import MxMultiheadAttention

from .graphs import Of, bits

OPERATORS = "tosa-1.1+fp+mxfp+mxfp_conv"
TARGET = "+".join([OPERATORS, "mx_common", *sorted(set(MX_EXTENSIONS.values()))])
EVERYTHING: dict[str, Any] = {"attention": True, "convolutions": True}
every_payload = pytest.mark.parametrize("payload", PAYLOADS)


def of_types(*payloads: str) -> str:
    """The target with block-scaled types of these payloads, and without the operators."""
    return "+".join(["tosa-1.1+fp+mx_common", *sorted({MX_EXTENSIONS[p] for p in payloads})])


def mlp() -> nn.Module:
    """Two linear layers with a relu between; 100 and 160 inputs: one padded, one whole."""
    layers = {"first": nn.Linear(100, 160), "relu": nn.ReLU(), "second": nn.Linear(160, 40)}
    return nn.Sequential(OrderedDict(layers))


def layer(x: torch.Tensor, norm: Any, qkv: Any, out: Any, up: Any, down: Any) -> torch.Tensor:
    parts = qkv(norm(x)).reshape(*x.shape[:2], 3, 2, 32).permute(2, 0, 3, 1, 4)
    y = nn.functional.scaled_dot_product_attention(*parts.unbind(0))
    x = x + out(y.transpose(1, 2).reshape(x.shape))
    return x + down(nn.functional.gelu(up(x)))


def encoder() -> nn.Module:
    """One layer of a transformer."""
    sizes = (64, 192), (64, 64), (64, 96), (96, 64)
    return Function(layer, nn.LayerNorm(64), *(nn.Linear(*size) for size in sizes))


def lowered(module: nn.Module, *inputs: torch.Tensor, target: str = TARGET) -> "stepwell.Lowered":
    return stepwell.lower(torch.export.export(module.eval(), inputs), target)


def operators(low: "stepwell.Lowered") -> Counter[str]:
    return Counter(op.name for op in low.program.method().body.block.ops)


def assert_same_bits(module: nn.Module, *inputs: torch.Tensor, target: str = TARGET) -> Any:
    """The eager module, the interpreter and the reference model give the same bits."""
    low = lowered(module, *inputs, target=target)
    with torch.no_grad():
        eager = module(*inputs)
    assert torch.equal(bits(low.program.run(*inputs)[0]), bits(eager))
    assert torch.equal(bits(low.run(*inputs)[0]), bits(eager))
    return low


@every_payload
def test_an_eager_mx_model_equals_the_reference_model(payload: str) -> None:
    assert_same_bits(to_mxfp(mlp(), payload), torch.randn(2, 7, 100))


@every_payload
def test_block_scaled_types_add_up_over_the_axis_and_equal_the_reference_model(
    payload: str,
) -> None:
    model = to_mxfp(mlp(), payload, form="types")
    low = assert_same_bits(model, torch.randn(2, 7, 100), target=of_types(payload))
    assert operators(low)["tosa.matmul_t"] == 2


@pytest.mark.parametrize("weights", ["fp4e2m1", "fp8e5m2", "mxint8"])
def test_mixed_payloads_equal_the_reference_model(weights: str) -> None:
    model = to_mxfp(mlp(), "fp8e4m3", weight_payload=weights)
    low = assert_same_bits(model, torch.randn(3, 100), target=of_types("fp8e4m3", weights))
    assert operators(low)["tosa.matmul_t"] == 2


@pytest.mark.parametrize("form", ["operators", "types"])
@every_payload
def test_convolutions_equal_the_reference_model(payload: str, form: str) -> None:
    if payload == "mxint8" and form == "operators":
        pytest.skip("CONV2D_BLOCK_SCALED has no mxint8")
    layers = nn.Sequential(nn.Conv2d(40, 16, (3, 2), padding=1, stride=(1, 2), groups=2), nn.ReLU())
    model = to_mxfp(layers, payload, convolutions=True, form=form)
    target = TARGET if form == "operators" else of_types(payload)
    low = assert_same_bits(model, torch.randn(1, 40, 7, 7), target=target)
    name = "tosa.conv2d_block_scaled" if form == "operators" else "tosa.conv2d"
    assert operators(low)[name] == 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([40], [40]),
        ([40], [40, 3]),
        ([3, 40], [40]),
        ([3, 40], [40, 5]),
        ([2, 3, 40], [40, 5]),
        ([1, 3, 40], [2, 40, 5]),
        ([2, 1, 3, 40], [2, 40, 5]),
        ([2, 1, 2, 3, 40], [2, 1, 40, 5]),
    ],
)
def test_products_of_ranks_1_to_5_broadcast_as_torch_does(a: list[int], b: list[int]) -> None:
    x, y = torch.randn(a), torch.randn(b)
    assert MxMatmul("mxint8")(x, y).shape == torch.matmul(x, y).shape
    assert_same_bits(MxMatmul("fp8e5m2"), x, y)


@pytest.mark.parametrize("shape", [[100], [3, 100], [2, 3, 100], [2, 1, 3, 100], [1, 2, 1, 3, 100]])
def test_linear_layers_take_ranks_1_to_5(shape: list[int]) -> None:
    assert_same_bits(to_mxfp(nn.Linear(100, 8), "fp6e3m2"), torch.randn(shape))


@pytest.mark.parametrize(
    ("dtype", "form"),
    [
        (torch.float16, "operators"),
        (torch.bfloat16, "operators"),
        (torch.float16, "types"),
        (torch.bfloat16, "types"),
        (torch.bfloat16, "types-bf16"),
    ],
)
def test_models_of_16_bits_equal_the_reference_model(dtype: torch.dtype, form: str) -> None:
    model = to_mxfp(mlp().to(dtype), "fp8e4m3", form=form)
    target = TARGET if form == "operators" else of_types("fp8e4m3")
    target += "+bf16" if dtype == torch.bfloat16 else ""
    low = assert_same_bits(model, torch.randn(3, 100).to(dtype), target=target)
    if form == "types-bf16":
        assert operators(low)["tosa.cast"] == 2, "the product itself gives bf16"


def test_rows_that_no_window_reads_change_nothing() -> None:
    model = to_mxfp(nn.Conv2d(32, 8, 3, stride=2), "fp8e5m2", convolutions=True)
    assert_same_bits(model, torch.randn(1, 32, 6, 8))


def test_a_16_bit_convolution_equals_the_reference_model() -> None:
    model = to_mxfp(nn.Conv2d(32, 8, 3).half(), "fp6e2m3", convolutions=True)
    assert_same_bits(model, torch.randn(1, 32, 5, 5).half())


def special_numbers(rows: int, columns: int) -> torch.Tensor:
    """Rows of zeros, subnormals, huge numbers, an inf and a NaN beside ordinary ones."""
    x = torch.randn(rows, columns)
    x[0], x[1], x[2] = 0.0, x[1] * 2.0**-140, x[2] * 2.0**120
    x[3, 5], x[4, columns - 1] = torch.inf, torch.nan
    x[5, :40] = -0.0
    return x


@pytest.mark.parametrize("form", ["operators", "types"])
@every_payload
def test_special_blocks_and_padded_tails_go_through_layers_as_on_the_device(
    payload: str, form: str
) -> None:
    linear = nn.Linear(72, 8)
    with torch.no_grad():
        linear.weight.copy_(special_numbers(8, 72))
    target = TARGET if form == "operators" else of_types(payload)
    x = special_numbers(8, 72)
    assert_same_bits(to_mxfp(linear, payload, form=form), x, target=target)
    assert_same_bits(MxMatmul(payload, form=form), x, special_numbers(8, 72).t(), target=target)


@every_payload
def test_special_blocks_go_through_convolutions_as_on_the_device(payload: str) -> None:
    conv = nn.Conv2d(40, 8, 3, padding=1)
    with torch.no_grad():
        conv.weight.copy_(special_numbers(8 * 9, 40).reshape(8, 3, 3, 40).permute(0, 3, 1, 2))
    model = to_mxfp(conv, payload, convolutions=True)
    x = special_numbers(16, 40).reshape(1, 4, 4, 40).permute(0, 3, 1, 2).contiguous()
    assert_same_bits(model, x, target=of_types(payload) if payload == "mxint8" else TARGET)


def test_a_whole_mx_transformer_equals_the_reference_model() -> None:
    x = torch.randn(1, 9, 64)
    program = to_mxfp(torch.export.export(encoder().eval(), (x,)), attention=True)
    low = stepwell.lower(program, TARGET)
    counts = operators(low)
    assert counts["tosa.matmul"] == 0 and counts["tosa.matmul_t"] == 6
    assert counts["tosa.erf"] and counts["tosa.exp"] and counts["tosa.rsqrt"]
    (found,) = low.program.run(x)
    assert torch.equal(bits(low.run(x)[0]), bits(found))


def test_every_product_of_a_vision_transformer_in_mx_equals_the_reference_model() -> None:
    model, (x,) = deit_small_depth2()
    exported = torch.export.export(model.eval(), (x,))
    program = to_mxfp(exported, {"patch_embed": "fp8e4m3", "*": "fp6e2m3"}, **EVERYTHING)
    low = stepwell.lower(program, TARGET)
    counts = operators(low)
    assert counts["tosa.conv2d"] == 1 and counts["tosa.matmul_t"] == 13
    assert not counts["tosa.matmul"]
    (found,) = low.program.run(x)
    assert torch.equal(bits(low.run(x)[0]), bits(found))


def test_the_patches_of_an_eager_vision_transformer_equal_the_reference_model() -> None:
    model, (x,) = deit_small_depth2()
    patches = to_mxfp(model, "fp4e2m1", layers="patch_embed", convolutions=True).patch_embed
    low = assert_same_bits(patches, x)
    assert operators(low)["tosa.pad"] == 1, "3 channels are filled to a block of 32"


@pytest.mark.parametrize("form", ["operators", "types"])
def test_a_bias_of_zeros_is_not_added_and_no_bit_changes(form: str) -> None:
    linear = nn.Linear(40, 8)
    nn.init.zeros_(linear.bias)
    target = TARGET if form == "operators" else of_types("fp8e4m3")
    x = torch.cat([special_numbers(8, 40), -torch.rand(2, 40) * 1e-40])
    low = assert_same_bits(to_mxfp(linear, form=form), x, target=target)
    assert not operators(low)["tosa.add"]


def test_a_quantized_value_comes_back_as_a_tensor() -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return mx.quantize_dequantize(x, "fp6e2m3") + 1

    model = Of(rounded)
    low = assert_same_bits(model, torch.randn(2, 3, 40))
    assert operators(low)["tosa.cast_from_block_scaled"] == 1


def test_no_weight_is_cast_at_run_time_and_a_shared_activation_once() -> None:
    shared = Function(lambda x, a, b: a(x) + b(x), nn.Linear(64, 32), nn.Linear(64, 32))
    model = to_mxfp(shared, form="operators")
    counts = operators(lowered(model, torch.randn(1, 4, 64), target=OPERATORS))
    assert counts["tosa.cast_to_block_scaled"] == 1
    assert counts["tosa.matmul_t_block_scaled"] == 2
    model = to_mxfp(shared)
    counts = operators(lowered(model, torch.randn(1, 4, 64), target=of_types("fp8e4m3")))
    assert counts["tosa.cast"] == 1 and counts["tosa.matmul_t"] == 2


def test_a_weight_is_cast_once_however_often_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stepwell.translate.lowerings.tosa import block_scaled

    calls = 0
    cast = block_scaled.cast_to_block_scaled

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return cast(*arguments)

    monkeypatch.setattr(block_scaled, "cast_to_block_scaled", counted)
    low = lowered(to_mxfp(mlp()), torch.randn(3, 100))
    assert calls == 0, "lowering computes no weight"
    low.to_tosa()
    low.to_tosa()
    low.program.run(torch.randn(3, 100))
    assert calls == 4, "codes and scales of two weights"


def test_attention_products_become_mx_in_a_program() -> None:
    inputs = tuple(torch.randn(1, 2, 8, 32) for _ in range(3))
    program = to_mxfp(
        torch.export.export(Of(nn.functional.scaled_dot_product_attention), inputs), attention=True
    )
    low = stepwell.lower(program, TARGET)
    counts = operators(low)
    assert counts["tosa.matmul_t"] == 2 and counts["tosa.matmul"] == 0
    (found,), (expected,) = low.program.run(*inputs), program.run(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["operators", "types"])
def test_rows_may_be_open_where_the_blocks_axis_is_known(form: str) -> None:
    x, rows = torch.randn(2, 3, 40), torch.export.Dim("rows", min=1, max=16)
    model = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    exported = torch.export.export(model, (x,), dynamic_shapes=({1: rows},))
    program = stepwell.to_mxfp(exported, form=form)
    target = (of_types("fp8e4m3") if form == "types" else TARGET) + "+shape"
    low = stepwell.lower(program, target)
    for count in (3, 7):
        x = torch.randn(2, count, 40)
        (found,) = low.run(x)
        assert torch.equal(found, low.program.run(x)[0])
        assert torch.equal(found, program.run(x)[0])


def test_why_no_layer_matches_is_said() -> None:
    x, depth = torch.randn(3, 40), torch.export.Dim("depth", min=2, max=64)

    own = exported(lambda x: nn.functional.linear(x, x[:2]), x, dynamic={1: depth})
    with pytest.raises(stepwell.StepwellError, match="the weight is computed at run time"):
        stepwell.to_mxfp(own)


MASK = torch.ones(5, 7, dtype=torch.bool).triu(3)


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"batch_first": True}, {"need_weights": False}),
        ({}, {"attn_mask": MASK, "average_attn_weights": False}),
        ({"bias": False, "kdim": 16, "vdim": 16}, {"attn_mask": torch.randn(8, 5, 7)}),
        ({}, {"key_padding_mask": torch.arange(14).reshape(2, 7) > 11, "attn_mask": MASK}),
    ],
    ids=["batch first", "a mask", "other keys", "padding"],
)
def test_attention_converted_whole_is_attention(options: Any, call: Any) -> None:
    attention = nn.MultiheadAttention(32, 4, **options).eval()
    q, k = torch.randn(5, 2, 32), torch.randn(7, 2, options.get("kdim", 32))
    if "batch_first" in options:
        q, k = q.transpose(0, 1), k.transpose(0, 1)
    converted = MxMultiheadAttention(attention, lambda linear: linear)  # type: ignore
    found, wanted = (module.eval()(q, k, k, **call) for module in (converted, attention))
    assert (found[1] is None) == (wanted[1] is None)
    for one, other in zip(found, wanted, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_an_encoder_module_has_its_attention_in_mx_and_the_reference_models_bits() -> None:
    layer = nn.TransformerEncoderLayer(32, 2, 48, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    low = lowered(stepwell.to_mxfp(encoder), torch.randn(1, 4, 32))
    assert operators(low)["tosa.matmul_t"] == 6
    x = torch.randn(1, 4, 32)
    assert torch.equal(low.run(x)[0], low.program.run(x)[0])


def test_gpt2s_linear_layer_is_mx_as_a_module_and_as_an_addmm() -> None:
    layers = pytest.importorskip("transformers.pytorch_utils", reason="the extra hf is absent")
    model, x = nn.Sequential(layers.Conv1D(48, 32)).eval(), torch.randn(2, 3, 32)
    whole = stepwell.to_mxfp(model)
    low = lowered(whole, x)
    assert operators(low)["tosa.matmul_t"] == 1
    assert torch.equal(low.run(x)[0], whole(x))
    program = stepwell.to_mxfp(torch.export.export(model, (x,)))
    assert torch.equal(program.run(x)[0], whole(x))


def test_attention_with_learnt_keys_is_refused() -> None:
    attention = nn.MultiheadAttention(32, 4, add_bias_kv=True)
    with pytest.raises(stepwell.StepwellError, match="add_bias_kv"):
        stepwell.to_mxfp(attention)


def chosen(program: "stepwell.Program") -> list[str]:
    return [op.name for op in program.method().walk() if op.name.startswith("stepwell_mx")]


def test_layers_are_chosen_by_name_and_the_original_keeps_its_own() -> None:
    original = mlp()
    model = to_mxfp(original, layers="sec*")
    assert type(model.first) is nn.Linear and type(model.second) is MxLinear
    assert type(original.second) is nn.Linear
    assert model.second.weight is original.second.weight


def test_layers_are_chosen_by_type_and_by_predicate() -> None:
    net = nn.Sequential(nn.Conv2d(32, 32, 1), nn.Flatten(2), nn.Linear(16, 4), nn.Linear(4, 4))
    by_type = to_mxfp(net, layers=nn.Conv2d, convolutions=True)
    assert [type(m) for m in by_type] == [MxConv2d, nn.Flatten, nn.Linear, nn.Linear]
    by_size = to_mxfp(net, layers=lambda name, m: isinstance(m, nn.Linear) and m.in_features > 8)
    assert [type(m) for m in by_size] == [nn.Conv2d, nn.Flatten, MxLinear, nn.Linear]

    exported = torch.export.export(net.eval(), (torch.randn(1, 32, 4, 4),))
    program = to_mxfp(exported, layers=nn.Conv2d, convolutions=True)
    assert chosen(program) == ["stepwell_mx.conv2d.default"]
    program = to_mxfp(exported, layers=lambda name, op: name == "3")
    assert chosen(program) == ["stepwell_mx.linear.default"]


def test_a_mapping_gives_each_layer_its_payload() -> None:
    exported = torch.export.export(mlp().eval(), (torch.randn(3, 100),))
    for model in (mlp(), exported, stepwell.from_exported_program(exported)):
        given = to_mxfp(model, {"first": "fp4e2m1", "*": "mxint8"})
        if isinstance(given, nn.Module):
            found = [given.first.payload, given.second.payload]  # pyright: ignore
        else:
            ops = [op for op in given.method().walk() if op.name.startswith("stepwell_mx")]
            found = [op.arg("payload") for op in ops]  # pyright: ignore
        assert found == ["fp4e2m1", "mxint8"]


def test_a_depthwise_convolution_stays_float() -> None:
    net = nn.Sequential(nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 8, 1))
    assert [type(m) for m in to_mxfp(net, convolutions=True)] == [nn.Conv2d, MxConv2d]


def test_without_the_extension_an_mx_model_is_refused() -> None:
    exported = torch.export.export(to_mxfp(mlp()).eval(), (torch.randn(3, 100),))
    with pytest.raises(stepwell.StepwellError, match="mx_fp8e4m3"):
        stepwell.lower(exported, "tosa-1.1+fp")


def test_types_of_two_payloads_need_their_extensions() -> None:
    model = to_mxfp(mlp(), "fp8e4m3", weight_payload="fp4e2m1")
    for target in (OPERATORS, of_types("fp8e4m3")):
        with pytest.raises(stepwell.StepwellError, match="mx_fp4e2m1"):
            lowered(model, torch.randn(3, 100), target=target)


def test_a_target_with_types_alone_gets_types() -> None:
    model, x = to_mxfp(mlp(), "fp8e4m3"), torch.randn(3, 100)
    low = lowered(model, x, target=of_types("fp8e4m3"))
    assert operators(low)["tosa.matmul_t"] == 2
    torch.testing.assert_close(low.run(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_a_form_that_does_not_exist_is_an_error() -> None:
    x = torch.randn(3, 100)
    with pytest.raises(stepwell.StepwellError, match="needs block-scaled types"):
        to_mxfp(mlp(), "fp8e4m3", weight_payload="mxint8", form="operators")(x)
    with pytest.raises(stepwell.StepwellError, match="bfloat16"):
        to_mxfp(mlp(), form="types-bf16")(x)
    with pytest.raises(stepwell.StepwellError, match="forms are"):
        to_mxfp(torch.export.export(mlp().eval(), (x,)), form="tensors")


def test_a_model_without_a_layer_that_matches_is_an_error() -> None:
    with pytest.raises(stepwell.StepwellError, match="no layer"):
        to_mxfp(nn.ReLU())
