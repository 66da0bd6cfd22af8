"""Layout assignment, narrowing of computations, and partitioning into delegates."""
