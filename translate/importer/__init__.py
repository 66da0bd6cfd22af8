"""Import of PyTorch programs: one module for each part of an `ExportedProgram`."""
