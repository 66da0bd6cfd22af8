"""Legalization of quantized ops to operators of CMSIS-NN."""
