"""Block-scaled (MX) arithmetic, and operators that use it before they are lowered to TOSA's."""
