"""`stepwell opt`, and what xDSL's own tools see of stepwell."""
