"""Pages that browser tests look at, and what they ask of every page."""

from pathlib import Path

import torch

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.inspection.viewer import tell, to_html
from stepwell.inspection.viewer.differences import differences
from stepwell.inspection.viewer.memory import memory_plans
from stepwell.inspection.viewer.side_by_side import with_beside
from stepwell.inspection.viewer.story import OpLine, PassSnapshot, Story, replace
from stepwell.inspection.viewer.weights import weight_numbers
from stepwell.inspection.viewer.workspace import workspace_plans
from stepwell.ir.program import Program

TABS = ("levels", "graph", "rewrites", "fates", "profile", "memory", "steps", "weights", "notes")
WIDTHS = ((1440, 900), (820, 1100), (390, 844))
OVERLAY = {
    "results": {
        "gelu": {"value": 3},
        "%linear": {"value": 0.5, "bgColor": "navy", "textColor": "white"},
    },
    "thresholds": [{"value": 1, "bgColor": "gold"}, {"value": 5, "bgColor": "#400"}],
}


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """Two blocks and an op that no delegate takes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.atan(self.blocks(x)))


class Longer(Model):
    """The same between two more ops."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(torch.relu(x)))


def program_of(model: torch.nn.Module) -> Program:
    """A model of rows of eight as a program."""
    exported = torch.export.export(model.eval(), (torch.randn(2, 8),))
    return stepwell.from_exported_program(exported)


def two_blocks() -> Story:
    """`Model` on its way to XNNPACK, with times, memory, differences and a reader's numbers."""
    program = program_of(Model())
    story = tell(program, "xnnpack", title="two blocks", notes={"check": "fine"})
    assert story.lowered is not None
    plans = memory_plans(read_container(story.lowered.to_pte()))
    return replace(
        story,
        memory=(*plans, *workspace_plans(story.lowered.program)),
        times={fate.node: 0.25 for fate in story.fates[:4]},
        latency=0.0015,
        added=0.2,
        differences=differences(program, story.lowered.program, (torch.randn(2, 8),)),
        overlays={"mine.json": OVERLAY},
        numbers=weight_numbers(story.lowered.program),
    )


def write_two_blocks(path: Path) -> Path:
    """The page of `two_blocks`, with links to an editor."""
    path.write_text(to_html(two_blocks(), "editor://{path}:{line}"))
    return path


def write_beside(path: Path) -> Path:
    """`Model` and `Longer`, both lowered."""
    lowered = stepwell.lower(program_of(Longer()), "xnnpack").program
    path.write_text(to_html(with_beside(tell(program_of(Model()), "xnnpack"), lowered, "longer")))
    return path


def chain(count: int) -> Program:
    """Ops in a row, without modules."""
    lines = ["func.func @forward(%v: tensor<4xf32>) -> tensor<4xf32> {"]
    for index in range(count):
        kind = ("relu", "tanh", "sigmoid")[index % 3]
        source = "%v" if index == 0 else f"%n{index - 1}x"
        lines.append(
            f"%n{index}x = aten.{kind}.default({source}) : (tensor<4xf32>) -> tensor<4xf32>"
        )
    lines.append(f"func.return %n{count - 1}x : tensor<4xf32>\n}}")
    return stepwell.parse("\n".join(lines))


def layers(count: int) -> Story:
    """A network of so many ops, a hundred a layer, each around a residual, as it would print."""
    type_ = "tensor<1x64x256xf32>"
    lines = [OpLine(-1, f"func.func @forward(%v: {type_}) -> ({type_}) {{", 0)]
    last = start = "%v"
    for op in range(count):
        layer, at = divmod(op, 100)
        kind = ("linear", "gelu", "softmax", "mul")[at % 4] if at < 99 else "add"
        reads = f"{last}, {start}" if at == 99 else last
        last = f"%n{op}"
        text = f"{last} = aten.{kind}.default({reads}) : ({type_}) -> {type_}"
        path = (
            f"layers.{layer}.{('norm', 'attn', 'mlp')[at // 40]}" if at < 99 else f"layers.{layer}"
        )
        lines.append(OpLine(op, text, 1, f"aten.{kind}.default", f"n{op}", None, path))
        start = last if at == 99 else start
    lines += [OpLine(count, f"func.return {last} : {type_}", 1, "func.return"), OpLine(-1, "}", 0)]
    return Story(f"{count} ops", (PassSnapshot("program", 0, tuple(lines)),), ())


CONTRAST = """(() => {
  const parse = (c) => {
    const m = c.match(/[\\d.]+/g).map(Number), scale = c.startsWith("color(") ? 255 : 1;
    return [m[0] * scale, m[1] * scale, m[2] * scale, m[3] ?? 1];
  };
  const over = (a, b) => a.slice(0, 3).map((v, i) => v * a[3] + b[i] * (1 - a[3]));
  const channel = (v) => (v / 255 <= 0.03928 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (e) => {  // Backgrounds are opaque or not there at all.
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) return c;
    }
    return [255, 255, 255, 1];
  };
  const bad = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walker.nextNode()); ) {
    const e = n.parentElement, box = e.getBoundingClientRect();
    const unseen = ["script", "style", "title", "option"].includes(e.tagName.toLowerCase());
    if (!n.data.trim() || unseen || !box.width || !box.height) continue;
    const style = getComputedStyle(e), svg = e instanceof SVGElement;
    const held = ["a", "g"].includes(e.parentElement.tagName) && e.parentElement;
    const rect = svg && held && held.querySelector(":scope > rect");
    const front = parse(svg ? style.fill : style.color);
    const backs = [rect ? parse(getComputedStyle(rect).fill) : behind(e)];
    const stops = style.backgroundImage.match(/(?:rgba?|color)\\([^)]*\\)/g) || [];
    backs.push(...stops.map(parse).filter((c) => c[3] === 1));
    for (const back of backs) {
      const [a, b] = [luminance(over(front, back)), luminance(back)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      const place = `${e.tagName}.${e.className.baseVal ?? e.className}`;
      if (ratio < 4.5) bad.add(`${ratio.toFixed(2)} ${place}: ${n.data.trim().slice(0, 40)}`);
    }
  }
  return [...bad];
})()"""
