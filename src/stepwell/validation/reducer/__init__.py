"""Steps that fail: reproduced and made small."""
