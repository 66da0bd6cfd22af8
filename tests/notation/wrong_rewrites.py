"""Rewrites that are wrong, for tests of what finds them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.ir.rewriting.rewrite import Rewrite, Rewriter


@dataclass(frozen=True)
class HalveRelu(Rewrite[Any]):
    """relu(x) becomes x / 2."""

    name: ClassVar[str] = "halve-relu"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ReluDefault,)

    def match(self, op: Operation, program: Any) -> Any:
        return op

    def build(self, match: Any, rw: Rewriter) -> None:
        half = aten.MulScalar.make(match.operands[0], 0.5, result_types=[match.results[0].type])
        rw.replace(match, [rw.insert(half).results[0]])
