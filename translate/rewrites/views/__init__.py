"""Views, permutations and broadcasts: ops that keep elements in place in memory or change axes."""
