"""Layout assignment, program inputs and outputs, and the order in which operators run."""
