// Drawing surfaces: a canvas for the screen, SVG for files. Colors are the page's.
const MONO = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
const INKS = ["ink", "soft", "paper", "raised", "line", "gone", "come", "turned", "picked", "link", "value", "hot", "bad"];
/** The page's colors as the browser resolves them now, light or dark. */
function inks() {
  const probe = make("span"), found = {};
  document.body.append(probe);
  for (const name of INKS) { probe.style.color = `var(--${name})`; found[name] = getComputedStyle(probe).color; }
  probe.remove();
  return found;
}
const numbers = (color) => (color.match(/[\d.]+/g) || []).slice(0, 3).map(Number);
const mixed = (a, b, part) => {
  const [from, to] = [numbers(a), numbers(b)];
  return `rgb(${from.map((value, at) => Math.round(value + (to[at] - value) * part)).join(" ")})`;
};
class CanvasPen {
  constructor(context) { this.context = context; this.count = 0; }
  begin() {}
  end() {}
  rect(x, y, w, h, fill, stroke, width = 1) {
    this.count++;
    const { context } = this;
    if (fill) { context.fillStyle = fill; context.fillRect(x, y, w, h); }
    if (stroke) { context.strokeStyle = stroke; context.lineWidth = width; context.strokeRect(x, y, w, h); }
  }
  text(x, y, words, fill, size = 11, bold = false) {
    this.count++;
    const font = `${bold ? "600 " : ""}${size}px ${MONO}`;
    if (this.font !== font) this.context.font = this.font = font;
    this.context.fillStyle = fill;
    this.context.fillText(words, x, y);
  }
  lines(all, stroke, width) {
    if (!all.length) return;
    this.count += all.length;
    const { context } = this;
    context.strokeStyle = stroke; context.lineWidth = width;
    context.beginPath();
    for (const [x0, y0, floor, x1, y1] of all) {
      context.moveTo(x0, y0);
      if (floor === null) context.lineTo(x1, y1);
      else { context.lineTo(x0, floor); const middle = (floor + y1) / 2; context.bezierCurveTo(x0, middle, x1, middle, x1, y1); }
    }
    context.stroke();
  }
}
class SvgPen {
  constructor() { this.parts = []; }
  /** Everything until `end` is one item of that name. */
  begin(name) { this.outer = this.parts; this.parts = [drawn("title", {}, name)]; }
  end() { this.outer.push(drawn("g", {}, ...this.parts)); this.parts = this.outer; }
  rect(x, y, w, h, fill, stroke, width = 1) {
    this.parts.push(drawn("rect", { x: x.toFixed(1), y: y.toFixed(1), width: w.toFixed(1), height: h.toFixed(1), rx: 3, fill: fill || "none", stroke: stroke || null, "stroke-width": stroke ? width : null }));
  }
  text(x, y, words, fill, size = 11, bold = false) {
    this.parts.push(drawn("text", { x: x.toFixed(1), y: y.toFixed(1), style: `font:${bold ? "600 " : ""}${size}px ${MONO};fill:${fill}` }, words));
  }
  lines(all, stroke, width) {
    if (!all.length) return;
    const one = (n) => Math.round(n * 10) / 10;
    const d = all.map(([x0, y0, floor, x1, y1]) => floor === null ? `M${one(x0)} ${one(y0)}L${one(x1)} ${one(y1)}` :
      `M${one(x0)} ${one(y0)}V${one(floor)}C${one(x0)} ${one((floor + y1) / 2)} ${one(x1)} ${one((floor + y1) / 2)} ${one(x1)} ${one(y1)}`).join("");
    this.parts.push(drawn("path", { d, fill: "none", stroke, "stroke-width": width }));
  }
  element(width, height, label, paper) {
    return drawn("svg", { viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`, width: Math.ceil(width), height: Math.ceil(height), role: "img", "aria-label": label },
      drawn("title", {}, label), drawn("rect", { width: "100%", height: "100%", fill: paper }), ...this.parts);
  }
}
