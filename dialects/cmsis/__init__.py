"""CMSIS-NN's int8 operators on quantised tensor types."""
