"""A first look, in a notebook: lower a model, look at what became of it, check it, measure it.

    pip install 'stepwell[notebook]'
    marimo edit examples/notebooks/first_look.py

Results render as short tables, `to_frame()` returns dataframes, and lines of the model's source are
those of the cell in which it was typed.
"""

import marimo

app = marimo.App()


@app.cell
def _():
    import torch

    import stepwell

    return stepwell, torch


@app.cell
def _(torch):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(32)
            self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

        def forward(self, x):
            hidden = torch.nn.functional.gelu(self.up(self.norm(x)))
            return torch.atan(x + self.down(hidden))

    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(2, 8, 32)
    return model, x


@app.cell
def _(model, stepwell, torch, x):
    program = stepwell.from_exported_program(torch.export.export(model, (x,)))
    program
    return (program,)


@app.cell
def _(program, stepwell):
    lowered = stepwell.lower(program, "xnnpack")
    lowered
    return (lowered,)


@app.cell
def _(program, stepwell):
    # Which ops stayed outside of delegates, in which line of the model, and why.
    explanation = stepwell.explain(program, "xnnpack")
    explanation.to_frame().query("where == 'kernel'")[["op", "line", "why"]]
    return (explanation,)


@app.cell
def _(program, stepwell, x):
    result = stepwell.check(program, "xnnpack", inputs=(x,))
    result
    return (result,)


@app.cell
def _(lowered, model, torch, x):
    difference = (lowered.run(x)[0] - model(x)).abs().max().item()
    assert difference < 1e-4
    f"largest difference from eager PyTorch: {difference:.1e}"
    return (difference,)


@app.cell
def _(model, stepwell, x):
    # The error of each layer in each block-scaled format.
    accuracy = stepwell.mx_accuracy(model, [(x,)])
    accuracy.to_frame().round(4)
    return (accuracy,)


@app.cell
def _(stepwell):
    stepwell.PIPELINES["xnnpack"]
    return


if __name__ == "__main__":
    app.run()
