"""Export to PyTorch programs: one module for each part of an `ExportedProgram`."""
