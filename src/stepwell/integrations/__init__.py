"""stepwell through the interfaces of ExecuTorch's flow and of xDSL's driver and interpreter."""
