"""Programs out as `linalg` on tensors, from what their ops declare."""
