"""Export of programs as `linalg` on tensors, generated from the declarations of their ops."""
