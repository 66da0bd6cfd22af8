"""IR back into torch programs: one module for each part of an `ExportedProgram`."""
