"""Tables of tables: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.cmsis.layout.merge_movement import RULES

(COMPOSE,) = (rule() for rule in RULES if rule.name == "compose-tables")

S = '%s = stepwell.weight <"s"> "constant" : tensor<256xi8>'
T = '%t = stepwell.weight <"t"> "constant" : tensor<256xi8>'
A = "%a = cmsis.quantized_activation(%x, %s) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>"
Y = "%y = cmsis.quantized_activation(%a, %t) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>"
X, I8 = "%x: tensor<4xi8>", "tensor<4xi8>"


def test_three_tables_are_one(apply: Any, method: Any):
    b = "%b = cmsis.quantized_activation(%a, %t) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>"
    y = "%y = cmsis.quantized_activation(%b, %s) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>"
    done = apply(method(X, S, T, A, b, y, gives=I8), COMPOSE)
    assert done.ops() == ["cmsis.quantized_activation"]


def test_one_table_is_one(refused: Any, method: Any):
    refused(method(X, S, A.replace("%a", "%y"), gives=I8), COMPOSE)


def test_a_value_between_that_is_used_twice_is_kept(refused: Any, method: Any):
    b = "%b = cmsis.quantized_activation(%a, %t) : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>"
    y = "%y = cmsis.minimum(%a, %b) : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>"
    refused(method(X, S, T, A, b, y, gives=I8), COMPOSE)


def test_a_table_that_is_an_input_is_not_known(refused: Any, method: Any):
    refused(method(f"{X}, %t: tensor<256xi8>", S, A, Y, gives=I8), COMPOSE)
    refused(method(f"{X}, %s: tensor<256xi8>", T, A, Y, gives=I8), COMPOSE)
