"""An op becomes operators of TOSA."""
