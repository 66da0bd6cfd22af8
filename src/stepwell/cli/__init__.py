"""The command line, `stepwell COMMAND`."""
