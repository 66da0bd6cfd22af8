"""A quantized op becomes an operator of CMSIS-NN."""
