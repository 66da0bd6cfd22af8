"""The core IR of all levels: types, weights, programs, rewriting, verification, interpretation."""
