"""Run a .pte with ExecuTorch's runtime, without stepwell: python run.py model.pte x.npy …

Writes each output of the method `forward` to output_0.npy, … in this folder.
"""

import sys

import numpy
import torch
from executorch.runtime import Runtime, Verification


def main() -> None:
    """Read the inputs, run the program, and write the outputs."""
    path, *files = sys.argv[1:]
    program = Runtime.get().load_program(path, verification=Verification.Minimal)
    method = program.load_method("forward")
    if method is None:
        raise SystemExit(f"{path} has no method forward, but {', '.join(program.method_names)}")
    wanted = method.metadata.num_inputs()
    if len(files) != wanted:
        raise SystemExit(f"{path} takes {wanted} inputs, not {len(files)}")
    inputs = [torch.from_numpy(numpy.load(file)) for file in files]
    for at, output in enumerate(method.execute(inputs)):
        numpy.save(f"output_{at}.npy", output.numpy())
        print(f"output_{at}.npy: {output.dtype}, {list(output.shape)}")


if __name__ == "__main__":
    main()
