"""Canonicalization of ops: neutral arithmetic is removed, and variants become one form."""
