"""Programs in MLIR's own dialects, and in torch-mlir's, in as torch's operators and out again."""
