"""`lower-matmul`: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import layers

test_lower_matmul = cases(
    layers,
    """
lower-matmul: products of any rank lower -> contains cmsis.quantized_batch_matmul
    - %ar = quant.dcast(%a: i8<0.5>[2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[2, 4]
    - %ar = quant.dcast(%a: i8<0.5>[2, 2, 3, 4]); %br = quant.dcast(%b: i8<0.25:1>[2, 2, 4, 5])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[2, 2, 3, 5]
lower-matmul: products of any rank lower -> cmsis.transpose, cmsis.quantized_batch_matmul
    %ar = quant.dcast(%a: i8<0.5>[5, 2, 3]); %br = quant.dcast(%b: i8<0.25:1>[5, 3, 4])
    %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[5, 2, 4]
lower-matmul: vectors and broadcast batches -> refused: broadcasts no batch
    - %ar = quant.dcast(%a: i8<0.5>[3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[4]
    - %ar = quant.dcast(%a: i8<0.5>[2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[2]
    - %ar = quant.dcast(%a: i8<0.5>[5, 2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[5, 2, 4]
lower-matmul: a constant right side is a linear layers business -> unchanged
    %b = quant.scast(%bs: weight "b" i8[3, 4]) -> i8<0.25>[3, 4]; %br = quant.dcast(%b)
    %ar = quant.dcast(%a: i8<0.5>[2, 3]); %z = aten.mm.default(%ar, %br)
    %y = quant.qcast(%z) -> i8<1.0>[2, 4]
lower-matmul: a dot product that can overflow -> refused: can overflow int32
    %ar = quant.dcast(%a: i8<0.5>[1, 33026]); %br = quant.dcast(%b: i8<0.25:1>[33026, 1])
    %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[1, 1]
lower-matmul: a result scale far too fine -> refused: int32
    %ar = quant.dcast(%a: i8<0.5>[2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
    %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<1.0e-06>[2, 4]
lower-matmul: a shape known only at run time -> refused: known only at run time
    %ar = quant.dcast(%a: i8<0.5>[s0, 4]); %t = aten.permute.default(%ar, [1, 0])
    %z = aten.mm.default(%ar, %t); %y = quant.qcast(%z) -> i8<4.0>[s0, s0]
""",
)
