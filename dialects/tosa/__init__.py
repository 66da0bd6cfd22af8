"""TOSA's operators, declared from the schema its serialiser ships."""
