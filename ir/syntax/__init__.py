"""The text of programs, as MLIR spells it: lexer, parser, printer, and files on disk."""
