"""Views, permutations and broadcasts: elements keep their places in memory or change axes."""
