"""Programs for a Cortex-M with an Ethos-U: Vela's delegates in a Cortex-M `.pte`."""
