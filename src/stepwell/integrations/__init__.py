"""Adapters of stepwell to the interfaces of ExecuTorch's flow and xDSL's driver and interpreter."""
