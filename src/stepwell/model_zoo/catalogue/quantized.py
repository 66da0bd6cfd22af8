"""Examples with integers or block-scaled floats, each quantized for its target."""

from collections.abc import Iterator
from dataclasses import replace

from stepwell.model_zoo.catalogue.examples import FOLDER
from stepwell.model_zoo.catalogue.models import Entry, Made, of_file

MX_TARGET = "tosa-1.1+fp+mxfp"
FOR = {
    "int8-xnnpack": "xnnpack",
    "int8-xnnpack-dynamic": "xnnpack",
    "8da4w": "xnnpack",
    "8da8w": "xnnpack",
    "int8-cortex-m": "cortex-m55",
    "int8-tosa": "tosa-1.0+int",
    "int16-tosa": "tosa-1.0+int+int16",
    "mxfp8": MX_TARGET,
}
"""The target of each quantizer's programs in a replay; `mxfp8` is that of `to_mxfp`."""
NETS = "tiny.ds_cnn tiny.mlp_autoencoder resnet.resnet8 mobilenet.mobilenet_v2_035"
PARTS = "quantized.small_conv_net microcontrollers.crnn_gru microcontrollers.tcn vision.unet"
ATTENTION = "transformer.transformer_encoder_2layers vision.vit_with_registers"
OF = {
    "int8-xnnpack": f"{NETS} {PARTS} {ATTENTION} mobilenet.mobilenet_v3_small",
    "int8-xnnpack-dynamic": f"tiny.mlp {ATTENTION}",
    "8da4w": f"decoders.qwen3_block {ATTENTION}",
    "8da8w": "decoders.gemma2 whisper.whisper_encoder",
    "int8-cortex-m": f"{NETS} {PARTS} microcontrollers.mcunet_like",
    "int8-tosa": f"{NETS} {PARTS} {ATTENTION} mobilenet.mobilenet_v3_small",
    "int16-tosa": f"{NETS} vision.vit_with_registers",
    "mxfp8": f"tiny.mlp_autoencoder quantized.small_conv_net resnet.resnet8 {ATTENTION}",
}
"""Which examples, `FILE.CALLABLE`, each quantizer is applied to."""


def entries() -> Iterator[Entry]:
    """Yield the quantized examples, named `quantized/FILE.CALLABLE@QUANTIZER`.

    An installed package has none, because it does not contain the folder of examples.
    """
    for quantizer, examples in OF.items():
        for example in examples.split():
            stem, callable_ = example.split(".")
            file = FOLDER / f"{stem}.py"
            if not file.exists():
                return
            floats = of_file(f"{file}:{callable_}", file)
            yield replace(
                floats,
                name=f"quantized/{example}@{quantizer}",
                kind="quantized",
                make=lambda floats=floats, quantizer=quantizer: quantized(floats, quantizer),
                distributions=("torch", "torchao", "executorch"),
                target=FOR[quantizer],
            )


def quantized(floats: Entry, quantizer: str) -> Made:
    """Return a model with quantize and dequantize operators, calibrated on its example inputs."""
    made = floats.make()
    assert made.module is not None
    if quantizer == "mxfp8":
        from stepwell.translate.mxfp import to_mxfp

        return replace(made, module=to_mxfp(made.module))
    from stepwell.quantization.quantizers import find_quantizer

    return replace(made, module=find_quantizer(quantizer)(made.module, made.inputs))
