"""Adapters to xDSL: `stepwell opt`, and stepwell's dialects and passes for xDSL's own tools."""
