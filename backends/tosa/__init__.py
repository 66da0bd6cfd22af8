"""TOSA flatbuffers: reading, writing, running on the reference model."""
