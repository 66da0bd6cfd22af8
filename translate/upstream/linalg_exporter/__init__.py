"""Export of programs as `linalg` on tensors, from the declarations of their ops."""
