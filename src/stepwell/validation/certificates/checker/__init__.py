"""The checker of certificates: it imports the levels alone, neither the pipeline nor the prover."""
