"""What TOSA computes of the integers between casts."""
