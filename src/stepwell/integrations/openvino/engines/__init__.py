"""The target `xnnpack+openvino`: each part of a program on the engine that computes it faster."""
