"""Torch programs into IR: one module for each part of an `ExportedProgram`."""
