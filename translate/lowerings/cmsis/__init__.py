"""What CMSIS-NN computes of the integers between casts."""
