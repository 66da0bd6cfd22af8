"""The implementation of the command line, `stepwell COMMAND`."""
