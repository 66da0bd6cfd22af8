// The graph of one level on a canvas: the open groups, the viewport, and the selection.
const fullKey = (what) => (what.groups ? `g${what.key}` : what.key);
const openKeys = () => view.open.split(",").filter(Boolean);
/** Which groups are open: `a,a.b`, or all but some: `*,!a.b`. */
function openTest() {
  const keys = new Set(openKeys());
  return keys.has("*") ? (at) => !keys.has("!" + at.key) : (at) => !at.parent || keys.has(at.key);
}
const isUnder = (key, at) => key === at || key.startsWith(at + ".") || key.startsWith(at + "~") || (at.startsWith("@") && key.startsWith(at));
function toggled(at) {
  const keys = openKeys(), all = keys.includes("*"), open = openTest()(at);
  if (all) return (open ? [...keys, "!" + at.key] : keys.filter((key) => key !== "!" + at.key)).join(",");
  return (open ? keys.filter((key) => !isUnder(key, at.key)) : [...keys, at.key]).join(",");
}
class Picture {
  constructor(side) {
    this.side = side;
    this.canvas = make("canvas", { tabindex: 0, role: "application", "aria-describedby": "graph-keys" });
    this.title = make("h3");
    this.element = make("div", { class: "picture" }, this.title, this.canvas);
    this.camera = { x: 0, y: 0, k: 1 };
    new ResizeObserver(() => this.sized()).observe(this.canvas);
    movable(this);
  }
  show(level, other) {
    const laid = [level, view.open, view.weights].join("|");
    Object.assign(this, { number: level, level: story.levels[level], other: other < 0 ? null : story.levels[other] });
    if (this.laid !== laid) {
      this.nesting = nestingOf(this.level, view.weights);
      const isOpen = openTest(), before = this.picked && this.places?.get(this.picked);
      this.box = arranged(this.nesting.root, linesOf(graphOf(this.level).nodes, this.nesting.home, isOpen), isOpen);
      this.places = placesOf(this.box);
      this.box.what.framed = false;
      const still = before && this.places.get(this.picked);
      if (!this.laid || !still) this.unplaced = !view.cam; // What was looked at is gone: all of it is shown.
      else { this.camera.x += still.x - before.x; this.camera.y += still.y - before.y; }
      this.laid = laid;
    }
    const overlay = overlayNow();
    this.overlay = { overlay, laid: laidOver(this.level, this.nesting, overlay) };
    this.picked = this.whatIs(view.pick);
    this.changed = new Map();
    this.title.textContent = `${this.level.name}: ${counted(this.nesting.root.count, "op")}, ${counted(this.places.size, "box").replace("boxs", "boxes")}`;
    this.canvas.setAttribute("aria-label", `Graph of ${this.level.name}, ${counted(this.nesting.root.count, "op")}`);
    this.draw();
  }
  whatIs(key) {
    if (!key) return null;
    if (key.startsWith("g")) return this.nesting.groups.get(key.slice(1)) || null;
    return graphOf(this.level).byKey.get(key) || null;
  }
  /** The corresponding item on this side: the same op, else one of the same node of the model. */
  same(what, level) {
    if (what.groups) return this.nesting.groups.get(what.key) || null;
    const own = graphOf(this.level), found = own.byKey.get(what.key);
    if (found || what.row < 0) return found || null;
    const row = this.level.nodes.get(level.lines[what.row][NODE]);
    return row === undefined ? null : own.byRow.get(row) || null;
  }
  /** "gone", "come", "turned" or "", compared with the other level. */
  differs(what) {
    if (!this.other || what.row < 0) return "";
    const line = this.level.lines[what.row];
    if (this.other.ops.has(line[OP])) return "";
    return this.other.nodes.has(line[NODE]) ? "turned" : this.side === "left" ? "gone" : "come";
  }
  changes(at) {
    if (!this.changed.has(at)) this.changed.set(at, [...within(at)].reduce((sum, node) => sum + Boolean(this.differs(node)), 0));
    return this.changed.get(at);
  }
  looks(ink) {
    const { overlay, laid } = this.overlay, traced = new Map();
    if (this.picked && !this.picked.groups) {
      for (const value of this.picked.reads) traced.set(value, ink.link);
      for (const value of this.picked.gives) traced.set(value, ink.value);
    }
    const look = (what) => {
      const value = laid.of(what), isGroup = Boolean(what.groups);
      const said = value === undefined ? "" : overlay.said(value);
      const made = isGroup
        ? { label: `▸ ${what.name}`, second: [counted(what.count, "op"), this.other && this.changes(what) ? `${this.changes(what)} differ` : "", said].filter(Boolean).join(" · "), fill: null }
        : { label: what.label, second: said || what.second };
      const delegate = what.row >= 0 ? this.level.lines[what.row][DELEGATE] : -1;
      if (what.kind === "input" || what.kind === "output") made.fill = ink.raised;
      if (delegate >= 0) made.stroke = hue(delegate);
      const differs = isGroup ? "" : this.differs(what);
      if (differs) made.fill = ink[differs];
      else if (overlay.id && !(isGroup && this.isOpen(what))) Object.assign(made, fillOf(overlay, laid, value, overlay.style && overlay.style(this.level, what), ink));
      if (state.graphHits && state.graphHits.has(what)) Object.assign(made, { stroke: ink.value, width: 2.5 });
      if (what === this.picked) Object.assign(made, { fill: ink.picked, ink: ink.ink, stroke: ink.link, width: 3 });
      return made;
    };
    return { inks: ink, look, marked: (value) => traced.get(value) };
  }
  isOpen(at) { return this.places.get(at)?.h !== HIGH; }
  sized() {
    const { clientWidth: w, clientHeight: h } = this.canvas, dense = window.devicePixelRatio || 1;
    if (!w || !h) return;
    Object.assign(this.canvas, { width: Math.round(w * dense), height: Math.round(h * dense) });
    this.paintNow();
  }
  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.paintNow(); });
  }
  paintNow() {
    const started = performance.now(), { canvas, camera } = this, w = canvas.clientWidth, h = canvas.clientHeight;
    if (!this.box || !w || !h) return;
    if (this.unplaced) { this.unplaced = false; this.begin(); }
    const dense = canvas.width / w, context = canvas.getContext("2d"), ink = state.inks ||= inks();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = ink.paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const k = dense * camera.k;
    context.setTransform(k, 0, 0, k, -camera.x * k, -camera.y * k);
    const pen = new CanvasPen(context);
    paint(pen, this.box, 0, 0, { x0: camera.x, y0: camera.y, x1: camera.x + w / camera.k, y1: camera.y + h / camera.k }, camera.k, this.looks(ink));
    Object.assign(canvas.dataset, { drawn: pen.count, spent: (performance.now() - started).toFixed(2) });
    canvas.dataset.scale = camera.k.toPrecision(4);
    const place = this.picked && this.places.get(this.picked);
    canvas.dataset.picked = place ? [place.x - camera.x, place.y - camera.y, place.w, place.h].map((n) => (n * camera.k).toFixed(1)).join(" ") : "";
  }
  /** Show the whole graph, or its top at a readable size. */
  begin() {
    this.fit();
    if (this.camera.k >= 0.5) return;
    const k = 0.7, top = this.box.ranks[0].cells;
    this.camera = { k, x: (top[0].x + top[top.length - 1].x) / 2 - this.canvas.clientWidth / k / 2, y: -8 };
  }
  fit() {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const k = Math.min(1.25, w / (this.box.w + 8), h / (this.box.h + 8));
    this.camera = { k, x: this.box.w / 2 - w / k / 2, y: Math.min(this.box.h / 2 - h / k / 2, 0) };
    if (h / k > this.box.h) this.camera.y = this.box.h / 2 - h / k / 2;
  }
  /** Zoom by a factor around a point of the canvas. */
  zoom(by, at = { x: this.canvas.clientWidth / 2, y: this.canvas.clientHeight / 2 }) {
    const { camera } = this, k = Math.min(6, Math.max(1e-5, camera.k * by));
    camera.x += at.x / camera.k - at.x / k;
    camera.y += at.y / camera.k - at.y / k;
    camera.k = k;
    this.moved();
  }
  pan(x, y) { this.camera.x += x / this.camera.k; this.camera.y += y / this.camera.k; this.moved(); }
  moved() {
    this.draw();
    clearTimeout(this.later);
    if (this.side === "right") this.later = setTimeout(() => { const { x, y, k } = this.camera; amend({ cam: [x.toFixed(0), y.toFixed(0), k.toPrecision(3)].join(" ") }); }, 200);
  }
  /** Scroll an item into view, large enough to read. */
  center(what) {
    const place = this.places.get(what);
    if (!place) return;
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const k = this.camera.k = Math.max(this.camera.k, Math.min(0.9, w / (place.w + 40)));
    this.unplaced = false;
    this.camera.x = place.x + place.w / 2 - w / k / 2;
    this.camera.y = place.y + Math.min(place.h, h / k - 60) / 2 - h / k / 2;
    this.moved();
  }
  at(event) {
    const box = this.canvas.getBoundingClientRect(), { x, y, k } = this.camera;
    return hit(this.box, x + (event.clientX - box.left) / k, y + (event.clientY - box.top) / k);
  }
}
