"""Lower a quantized program to an Ethos-U, and the remaining ops to the CPU."""

from stepwell.translate.rewrites.ethosu.lower_for_npu import LowerForNpu
from stepwell.translate.rewrites.ethosu.partition_ethosu import PartitionEthosu
from stepwell.translate.rewrites.ethosu.rescale_constant import RescaleConstant
from stepwell.translate.rewrites.ethosu.shuffled_by_phases import ShuffledByPhases
from stepwell.translate.rewrites.ethosu.spread_constant import SpreadConstant
from stepwell.translate.rewrites.ethosu.transpose_few_axes import FewestAxes, WithoutUnits
from stepwell.translate.rewrites.ethosu.transposed_by_phases import TransposedByPhases

__all__ = [
    "FewestAxes",
    "LowerForNpu",
    "PartitionEthosu",
    "RescaleConstant",
    "ShuffledByPhases",
    "SpreadConstant",
    "TransposedByPhases",
    "WithoutUnits",
]
