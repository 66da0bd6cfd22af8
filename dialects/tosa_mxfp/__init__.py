"""Block-scaled (MX) arithmetic, and the operators that use it before they become TOSA's."""
