"""Import and export of programs in MLIR's own dialects and torch-mlir's `torch` dialect."""
