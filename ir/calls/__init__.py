"""The calling convention: marshalling of a caller's arguments and of results."""
