// Two levels side by side. Only visible lines are in the document.
const ROW = 19;
const state = { leader: null, hits: null, picked: null };
let charWidth = 0;
function measure() {
  const probe = make("span", { class: "op" }, "x".repeat(100));
  $("pane-left").append(probe);
  probe.style.minWidth = "0"; probe.style.width = "auto"; probe.style.right = "auto"; probe.style.padding = "0";
  charWidth = (probe.getBoundingClientRect().width - 5) / 100 || 7;
  probe.remove();
}
// `(%a, %b) : (tensor<…>, tensor<…>) -> tensor<2x3xf32>`: the operands' types say little twice.
const shortened = (whole) => whole.replace(/ : \([^()]*(?:\([^()]*\)[^()]*)*\) -> /, " : … → ");

class Pane {
  constructor(element, mark, side) {
    Object.assign(this, { element, mark, side });
    this.space = make("div", { class: "space" });
    this.drawn = new Map();
    element.append(this.space);
    element.addEventListener("scroll", () => { this.draw(); follow(this); }, { passive: true });
    element.addEventListener("pointerenter", () => { state.leader = this; });
    element.addEventListener("focusin", () => { state.leader = this; });
    element.addEventListener("keydown", (event) => this.walk(event));
    let width = 0;
    new ResizeObserver(() => {
      if (view.wrap && element.clientWidth !== width) { width = element.clientWidth; this.place(); }
      this.draw();
    }).observe(element);
  }
  set(level, other) {
    Object.assign(this, { level, other });
    this.rows = [];
    level.lines.forEach((line, row) => {
      const wanted = !view.changes || this.changed(row) || line[DEPTH] === 0;
      if (wanted && (view.weights || text(line[NAME]) !== "stepwell.weight")) this.rows.push(row);
    });
    this.index = new Map(this.rows.map((row, index) => [row, index]));
    this.place();
  }
  // The top of every row; wrapped rows are as high as their text.
  place() {
    this.element.classList.toggle("wrapped", Boolean(view.wrap));
    this.drawn.clear(); this.space.replaceChildren();
    if (!this.rows) return;
    const columns = Math.max(10, Math.floor((this.element.clientWidth - 18 - (mostTime && this.side === "left" ? 58 : 0)) / charWidth));
    this.tops = new Float64Array(this.rows.length + 1);
    this.rows.forEach((row, index) => {
      const long = this.spelled(row).length;
      this.tops[index + 1] = this.tops[index] + ROW * (view.wrap ? Math.max(1, Math.ceil(long / columns)) : 1);
    });
    this.space.style.height = this.tops[this.rows.length] + 40 + "px";
    this.draw();
  }
  spelled(row) {
    const line = this.level.lines[row], whole = text(line[TEXT]);
    return "  ".repeat(line[DEPTH]) + (view.short ? shortened(whole) : whole);
  }
  at(y) {
    let low = 0, high = this.rows.length;
    while (low < high) { const middle = (low + high) >> 1; if (this.tops[middle + 1] <= y) low = middle + 1; else high = middle; }
    return low;
  }
  changed(row) {
    const op = this.level.lines[row][OP];
    return this.other !== this.level && op >= 0 && !this.other.ops.has(op);
  }
  // A new op for a node that is also on the other side was changed; otherwise it was erased or created.
  turned(row) {
    return this.changed(row) && this.other.nodes.has(this.level.lines[row][NODE]);
  }
  draw(afresh = false) {
    if (!this.rows || !this.tops) return;
    const held = this.space.contains(document.activeElement) && document.activeElement.closest(".op");
    if (afresh) { this.drawn.clear(); this.space.replaceChildren(); }
    const first = Math.max(0, this.at(this.element.scrollTop) - 8);
    const last = Math.min(this.rows.length, this.at(this.element.scrollTop + this.element.clientHeight) + 12);
    for (const [index, element] of this.drawn)
      if (index < first || index >= last) { element.remove(); this.drawn.delete(index); }
    for (let index = first; index < last; index++) {
      if (this.drawn.has(index)) continue;
      const element = this.line(index);
      this.drawn.set(index, element);
      this.space.append(element);
    }
    if (held && !held.isConnected) this.drawn.get(this.index.get(Number(held.dataset.row)))?.focus({ preventScroll: true });
    const current = this.current();
    for (const [index, element] of this.drawn) if (element.href) element.tabIndex = index === current ? 0 : -1;
  }
  // The row that Tab reaches: the selected one, else the first visible one.
  current() {
    const picked = state.picked && state.picked.pane === this ? this.index.get(state.picked.row) : undefined;
    if (picked !== undefined && this.drawn.has(picked)) return picked;
    const top = this.at(this.element.scrollTop);
    return [...this.drawn.keys()].filter((index) => index >= top && this.drawn.get(index).href).sort((a, b) => a - b)[0];
  }
  walk(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
    if (!(event.key in steps) || !this.rows.length) return;
    event.preventDefault();
    const held = document.activeElement.closest(".op");
    let index = held ? this.index.get(Number(held.dataset.row)) : this.at(this.element.scrollTop);
    index = Math.min(this.rows.length - 1, Math.max(0, index + steps[event.key]));
    const isOp = (at) => at >= 0 && at < this.rows.length && this.level.lines[this.rows[at]][OP] >= 0;
    const step = Math.sign(steps[event.key]);
    let found = index;
    while (found >= 0 && found < this.rows.length && !isOp(found)) found += step;
    if (!isOp(found)) for (found = index; found >= 0 && found < this.rows.length && !isOp(found);) found -= step;
    if (!isOp(found)) return;
    index = found;
    this.show(this.rows[index]);
    const element = this.drawn.get(index);
    if (element && element.href) { element.tabIndex = 0; element.focus({ preventScroll: true }); }
  }
  line(index) {
    const row = this.rows[index], line = this.level.lines[row];
    const classes = ["op"];
    if (this.changed(row)) classes.push(this.turned(row) ? "turned" : this.mark);
    if (state.hits && state.hits.has(line[TEXT] + "|" + line[NODE] + "|" + line[SOURCE])) classes.push("hit");
    if (state.picked) {
      const { pane, row: at, node, near, by } = state.picked;
      if (pane === this && at === row) classes.push("picked");
      else if (node >= 0 && line[NODE] === node) classes.push("same");
      if (pane === this && near.includes(row)) classes.push("reads");
      if (pane === this && by.includes(row)) classes.push("read-by");
    }
    const isOp = line[OP] >= 0;
    const element = make(isOp ? "a" : "div", {
      class: classes.join(" "), "data-row": row, title: text(line[TEXT]),
      href: isOp ? address({ side: this.side, op: line[OP] }) : null,
      "aria-current": classes.includes("picked") ? "true" : null,
    });
    element.style.top = this.tops[index] + "px";
    if (line[DELEGATE] >= 0) element.style.borderLeftColor = hue(line[DELEGATE]);
    highlight(element, this.spelled(row));
    const time = this.side === "left" && story.times[text(line[NODE])];
    if (time) {
      const label = make("span", { class: "time", title: "milliseconds a call" }, time.toFixed(3));
      label.style.setProperty("--part", Math.min(1, time / mostTime));
      element.prepend(label);
    } else if (mostTime && this.side === "left") element.prepend(make("span", { class: "time none" }, "\u00a0"));
    return element;
  }
  show(row) {
    const index = this.index.get(row);
    if (index === undefined) return;
    const top = this.tops[index], element = this.element;
    if (top < element.scrollTop + 30 || top > element.scrollTop + element.clientHeight - 60)
      element.scrollTop = top - element.clientHeight / 3;
    this.draw();
  }
}
const TOKEN = /("(?:[^"\\]|\\.)*")|(%[\w$.-]+)|(\b[a-z_]\w*(?:\.\w+)+)|((?:tensor|!\w+(?:\.\w+)*)<[^ ]*)/g;
function highlight(element, whole) {
  let at = 0;
  for (const found of whole.matchAll(TOKEN)) {
    element.append(whole.slice(at, found.index));
    element.append(make("span", { class: found[1] ? "s" : found[2] ? "v" : found[3] ? "n" : "t" }, found[0]));
    at = found.index + found[0].length;
  }
  element.append(whole.slice(at));
}
function follow(pane) {
  if (!view.linked || state.leader !== pane || !pane.rows) return;
  const other = pane === left ? right : left;
  const at = pane.at(pane.element.scrollTop + pane.element.clientHeight / 3);
  for (let index = at; index < Math.min(at + 40, pane.rows.length); index++) {
    const line = pane.level.lines[pane.rows[index]];
    const row = line[NODE] >= 0 ? other.level.nodes.get(line[NODE]) : undefined;
    const there = row === undefined ? -1 : other.index.get(row) ?? -1;
    if (there < 0) continue;
    other.element.scrollTop = pane.element.scrollTop + other.tops[there] - pane.tops[index];
    return;
  }
}
const left = new Pane($("pane-left"), "gone", "left"), right = new Pane($("pane-right"), "come", "right");
for (const select of [$("left"), $("right")]) {
  story.levels.forEach((level, index) => {
    const label = index ? `${index}. ${level.name} (${level.applied}×)` : level.name;
    select.append(make("option", { value: index }, label));
  });
  select.onchange = () => go({ [select.id]: Number(select.value), op: -1, side: "" });
}
function drawLevels() {
  const a = story.levels[view.left], b = story.levels[view.right];
  Object.assign($("left"), { value: view.left }); Object.assign($("right"), { value: view.right });
  for (const [id, key] of TICKS) $(id).checked = Boolean(view[key]);
  state.picked = null;
  left.set(a, b); right.set(b, a);
  const count = (pane, level, turned) =>
    level.lines.filter((_, row) => pane.changed(row) && pane.turned(row) === turned).length;
  $("changes").replaceChildren(...(a === b ? ["the same level"] : [
    make("span", { class: "key turned" }, `${count(left, a, true)} → ${count(right, b, true)} rewritten`),
    make("span", { class: "key gone" }, `${count(left, a, false)} gone`),
    make("span", { class: "key come" }, `${count(right, b, false)} new`),
  ]));
  const pane = view.side === "right" ? right : left;
  const row = view.op < 0 ? undefined : pane.level.rowOf.get(view.op);
  if (row !== undefined) pick(pane, row);
}
const step = (number) => ({ tab: "levels", left: Math.max(0, number - 1), right: Math.min(story.levels.length - 1, number), op: -1, side: "" });
$("back").onclick = () => go(step(Math.max(1, view.right - 1)));
$("forth").onclick = () => go(step(view.left + 1 === view.right ? view.right + 1 : 1));
const TICKS = [["only-changes", "changes"], ["show-weights", "weights"], ["short-types", "short"], ["wrap", "wrap"], ["linked", "linked"]];
for (const [id, key] of TICKS) $(id).onchange = (event) => {
  amend({ [key]: Number(event.target.checked) });
  if (key !== "linked") { drawLevels(); search(); }
};
$("next-change").onclick = () => {
  for (const pane of [right, left]) {
    const from = pane.at(pane.element.scrollTop + pane.element.clientHeight / 3 + ROW);
    const index = pane.rows.findIndex((row, i) => i > from && pane.changed(row));
    if (index >= 0) pane.element.scrollTop = pane.tops[index] - pane.element.clientHeight / 3;
  }
};

// ---- one op -------------------------------------------------------------------------------
function pick(pane, row) {
  const level = links(pane.level), line = level.lines[row];
  const near = level.reads[row], by = level.users[row];
  state.picked = { pane, row, node: line[NODE], near, by };
  const other = pane === left ? right : left;
  const twin = other.level.rowOf.get(line[OP]);
  const same = twin ?? (line[NODE] >= 0 ? other.level.nodes.get(line[NODE]) : undefined);
  pane.show(row); pane.draw(true);
  if (same !== undefined) other.show(same);
  other.draw(true);
  details(pane, row, near, by);
}
function details(pane, row, near, by) {
  const link = (at) => make("a", { href: address({ side: pane.side, op: pane.level.lines[at][OP] }) }, text(pane.level.lines[at][TEXT]).slice(0, 90));
  const among = [neighbors(pane, row, near, by), ...block("reads", near.map(link)), ...block("read by", by.map(link))];
  $("details").replaceChildren(...tellOf(pane.level, row, among));
}
const block = (title, items) => (items.length ? [make("h3", {}, title), ...items.map((i) => make("div", {}, i))] : []);
/** The details of an op: its text, its place in the model, its result; `among` between them. */
function tellOf(level, row, among = []) {
  const line = level.lines[row], node = text(line[NODE]);
  const fate = story.fates.find((f) => f.node === node);
  const refused = ((story.report || {}).refusals || []).filter((r) => r[2] === node);
  const acted = applications.filter((a) => a.ops.has(line[OP])).slice(0, 30);
  return [
    make("pre", {}, text(line[TEXT])),
    ...block("in the model", [node && "node " + node, text(line[PATH]) && "in " + text(line[PATH])].filter(Boolean)),
    ...sourceOf(text(line[SOURCE])),
    ...block("time", story.times[node] ? [`${story.times[node].toFixed(3)} ms a call`] : []),
    ...block("delegate", line[DELEGATE] >= 0 ? [chip(`delegate ${line[DELEGATE]}`)] : []),
    ...among,
    ...block("result", fate ? [fateText(fate)] : []),
    ...block("rewrites that created or erased it", acted.map((a) => make("a", { href: address({ tab: "rewrites", app: a.number }) }, `${a.number + 1}. ${a.rewrite}`))),
    ...block("rewrites that acted on its node", fate ? fate.by : []),
    ...block("refused", refused.map((r) => make("span", { class: "reason" }, `${r[0]}: ${r[4]}`))),
  ];
}
function sourceOf(place) {
  if (!place) return [];
  const at = place.lastIndexOf(":"), file = story.sources[place.slice(0, at)], number = Number(place.slice(at + 1));
  const title = make("h3", {}, place);
  if (!file) return [title];
  const shown = Object.entries(file.lines).map(([n, line]) => [Number(n), line]).filter(([n]) => Math.abs(n - number) <= 4);
  const body = make("pre", { class: "source", tabindex: 0, "aria-label": `Source, ${place}` }, ...shown.map(([n, line]) =>
    make("span", { class: n === number ? "here" : null }, `${String(n).padStart(4)}  ${line}`)));
  const found = [title, body];
  if (file.editor) found.push(make("div", {}, make("a", { href: file.editor.replace("{line}", number) }, "open in the editor")));
  return found;
}
function neighbors(pane, row, near, by) {
  const W = 300, H = 24, shown = 5;
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${by.length ? 160 : 100}`, role: "img", "aria-label": "Operands and users" });
  const ranks = [near.slice(0, shown), [row], by.slice(0, shown)];
  const heights = [10, 70, 130];
  const center = (rank, index) => (W / ranks[rank].length) * (index + 0.5);
  [0, 2].forEach((rank) => ranks[rank].forEach((_, index) => {
    const x = center(rank, index), [y0, y1] = rank ? [heights[1] + H, heights[2]] : [heights[0] + H, heights[1]];
    const [from, to] = rank ? [W / 2, x] : [x, W / 2];
    svg.append(drawn("path", { class: "edge", d: `M${from} ${y0} C${from} ${(y0 + y1) / 2} ${to} ${(y0 + y1) / 2} ${to} ${y1}` }));
  }));
  ranks.forEach((rows, rank) => rows.forEach((at, index) => {
    const width = Math.min(170, W / rows.length - 4), x = center(rank, index) - width / 2;
    const label = text(pane.level.lines[at][NAME]).replace(/^\w+\./, "").slice(0, Math.floor(width / 6.8));
    svg.append(drawn("a", { href: address({ side: pane.side, op: pane.level.lines[at][OP] }) },
      drawn("rect", { x, y: heights[rank], width, height: H, rx: 4, class: rank === 1 ? "box me" : "box" }),
      drawn("text", { x: x + width / 2, y: heights[rank] + 16, "text-anchor": "middle" }, label)));
  }));
  return svg;
}

// ---- widths -------------------------------------------------------------------------------
document.querySelectorAll(".divider").forEach((divider, which) => {
  const panes = divider.parentElement;
  const widths = () => [$("pane-left"), $("pane-right"), $("details")].map((e) => e.getBoundingClientRect().width);
  const move = (by) => {
    const now = widths();
    const taken = Math.max(80 - now[which], Math.min(by, now[which + 1] - 80));
    now[which] += taken; now[which + 1] -= taken;
    ["--a", "--b", "--c"].forEach((name, i) => panes.style.setProperty(name, now[i] + "fr"));
    const total = now.reduce((a, b) => a + b);
    divider.setAttribute("aria-valuenow", Math.round((100 * (which ? now[2] : now[0])) / total));
  };
  divider.addEventListener("pointerdown", (event) => {
    divider.setPointerCapture(event.pointerId);
    let at = event.clientX;
    divider.onpointermove = (moved) => { move(moved.clientX - at); at = moved.clientX; };
    divider.onpointerup = () => { divider.onpointermove = null; };
  });
  divider.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -24, ArrowRight: 24 }[event.key];
    if (by) { event.preventDefault(); move(by); }
  });
});
