"""Which casts between reals and integers TOSA has no operators for, each with its reason."""

from rewrite_cases import cases

from stepwell.translate.lowerings.tosa import borders

test_lower_quantized_casts = cases(borders)("""
no elements -> refused: no empty tensors
    %y = quant.qcast(%x: f32[0, 3]) -> i8<0.5>[0, 3]
what tosa does not quantize -> refused: TOSA has no element type float64
    %y = quant.qcast(%x: f64[3]) -> !quant.uniform<i8:f64, 0.5>[3]
unsigned integers -> refused: TOSA has no type uint8
    %y = quant.qcast(%x: f32[3]) -> !quant.uniform<u8:f32, 0.5>[3]
integers of 32 bits -> refused: activations are int32
    %y = quant.qcast(%x: f32[3]) -> i32<0.5>[3]
a zero point of 16 bits -> refused: zero points for 8-bit integers only
    %y = quant.qcast(%x: f32[3]) -> i16<0.5:3>[3]
zero points along an axis -> refused: one zero point
    %y = quant.qcast(%x: f32[2, 3]) -> i8<:0, {0.5:1, 0.25:2}>[2, 3]
unsigned integers as reals -> refused: TOSA has no type uint8
    %y = quant.dcast(%x: !quant.uniform<u8:f32, 0.5>[3])
a zero point -> applied 2 times; tosa.mul, tosa.cast, tosa.rescale, tosa.cast, tosa.sub, tosa.mul
    %q = quant.qcast(%x: f32[2, 3]) -> i8<0.1:-5>[2, 3]; %y = quant.dcast(%q)
a narrow range -> applied 2 times; tosa.mul, tosa.cast, tosa.rescale, tosa.clamp, tosa.cast, tosa.sub, tosa.mul
    %q = quant.qcast(%x: f32[2, 3]) -> i8<-7:7; 0.1:2>[2, 3]; %y = quant.dcast(%q)
a scale of one -> applied 2 times; tosa.cast, tosa.cast
    %q = quant.qcast(%x: f32[2, 3]) -> i8<1.0>[2, 3]; %y = quant.dcast(%q)
16 bits -> applied 2 times; tosa.mul, tosa.cast, tosa.cast, tosa.mul
    %q = quant.qcast(%x: f32[2, 3]) -> i16<0.001>[2, 3]; %y = quant.dcast(%q)
scales along an axis -> applied 2 times; tosa.mul, tosa.cast, tosa.cast, tosa.mul
    %q = quant.qcast(%x: f32[2, 3]) -> i8<:0, {0.5, 0.25}>[2, 3]; %y = quant.dcast(%q)
reals of the integers are the same to the bit -> applied 2 times; tosa.cast, tosa.mul, tosa.cast, tosa.rescale, tosa.cast, tosa.sub, tosa.mul, tosa.cast
    %q = quant.qcast(%x: f16[2, 3]) -> !quant.uniform<i8:f16, 0.1:3>[2, 3]; %y = quant.dcast(%q)
zero points along an axis are subtracted -> quant.scast, tosa.cast, tosa.sub, tosa.mul
    %y = quant.dcast(%x: i8<:0, {0.5:1, 0.25:2}>[2, 3])
""")
