"""Programs for a Cortex-M with an Ethos-U beside it: Vela's delegates in a Cortex-M `.pte`."""
