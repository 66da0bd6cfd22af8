"""Other projects' own interfaces over stepwell: ExecuTorch's flow, xDSL's driver and interpreter."""
