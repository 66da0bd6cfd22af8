"""A quantised op becomes an operator of CMSIS-NN."""
