"""The textual format of programs in MLIR's syntax: lexer, parser, printer, and files on disk."""
