"""Import and export of programs in MLIR's own dialects and in torch-mlir's `torch` dialect."""
