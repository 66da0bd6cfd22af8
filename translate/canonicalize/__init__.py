"""Canonicalization of ops: remove neutral arithmetic, and give variants of an op one form."""
