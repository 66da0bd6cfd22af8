"""The catalogue of models, sweeps over it and regression tests between versions."""
