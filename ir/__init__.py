"""What every level shares: types, weights, programs, rewriting, verification, interpretation."""
