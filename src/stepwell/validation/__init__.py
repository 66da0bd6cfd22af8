"""`stepwell check`: translation validation of every step of a lowering, and of its artifact."""
