"""The dialects: one package for each level's operations."""
