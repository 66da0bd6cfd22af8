"""From a quantised program to what an Ethos-U runs, and the CPU beside it."""

from stepwell.translate.rewrites.ethosu.lower_for_npu import LowerForNpu
from stepwell.translate.rewrites.ethosu.lower_softmax_by_table import LowerSoftmaxByTable
from stepwell.translate.rewrites.ethosu.partition_ethosu import PartitionEthosu

__all__ = ["LowerForNpu", "LowerSoftmaxByTable", "PartitionEthosu"]
