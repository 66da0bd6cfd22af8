"""Tables of tables: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.cmsis.layout.merge_movement import RULES

test_compose_tables = cases(
    RULES,
    """
compose-tables: three tables are one -> cmsis.quantized_activation
    %a = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
    %b = cmsis.quantized_activation(%a, %t: constant i8[256]) -> i8[4]
    %y = cmsis.quantized_activation(%b, %s) -> i8[4]
compose-tables: one table is one -> unchanged
    %y = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
compose-tables: a value between that is used twice -> unchanged
    %a = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
    %b = cmsis.quantized_activation(%a, %t: constant i8[256]) -> i8[4]
    %y = cmsis.minimum(%a, %b) -> i8[4]
compose-tables: a table that is an input is not known -> unchanged
    - %a = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
      %y = cmsis.quantized_activation(%a, %t: i8[256]) -> i8[4]
    - %a = cmsis.quantized_activation(%x: i8[4], %s: i8[256]) -> i8[4]
      %y = cmsis.quantized_activation(%a, %t: constant i8[256]) -> i8[4]
""",
)
