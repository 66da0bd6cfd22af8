"use strict";
(() => {
  const story = JSON.parse(document.getElementById("story").textContent);
  const ROW = 19;
  const OP = 0, TEXT = 1, DEPTH = 2, NAME = 3, NODE = 4, SOURCE = 5, PATH = 6, DELEGATE = 7;
  const $ = (id) => document.getElementById(id);
  const text = (number) => (number < 0 ? "" : story.texts[number]);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "onclick") element.onclick = value;
      else if (value !== null && value !== undefined) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  };
  const bytes = (n) =>
    n >= 1e6 ? (n / 1e6).toFixed(1) + " MB" : n >= 1e3 ? (n / 1e3).toFixed(1) + " kB" : n + " B";
  const hue = (delegate) => `hsl(${(delegate * 67 + 205) % 360} 60% 50%)`;
  const colour = (where) =>
    where.startsWith("delegate") ? hue(Number(where.split(" ")[1])) :
    { kernel: "#b54708", split: "#b54708", backend: "hsl(205 60% 45%)" }[where] || "#667085";

  // ---- levels ---------------------------------------------------------------------------
  for (const level of story.levels) {
    level.ops = new Set(level.lines.map((line) => line[OP]));
    level.nodes = new Map();
    level.lines.forEach((line, row) => {
      if (line[NODE] >= 0 && !level.nodes.has(line[NODE])) level.nodes.set(line[NODE], row);
    });
    level.defines = new Map();
    level.users = null;
  }
  const names = (line) => (text(line[TEXT]).match(/%[\w$.-]+/g) || []);
  function links(level) {
    if (level.users) return level;
    level.users = new Map();
    let scope = 0;
    level.lines.forEach((line, row) => {
      if (line[OP] < 0 && line[DEPTH] === 0) { scope = row; return; }
      const whole = text(line[TEXT]);
      const equals = whole.indexOf(" = ");
      const results = equals < 0 ? [] : whole.slice(0, equals).match(/%[\w$.-]+/g) || [];
      const used = (equals < 0 ? whole : whole.slice(equals)).match(/%[\w$.-]+/g) || [];
      for (const name of used) {
        const from = level.defines.get(name);
        if (from !== undefined && from >= scope) {
          if (!level.users.has(from)) level.users.set(from, []);
          level.users.get(from).push(row);
        }
      }
      for (const name of results) level.defines.set(name, row);
    });
    return level;
  }
  function reads(level, row) {
    const whole = text(level.lines[row][TEXT]);
    const equals = whole.indexOf(" = ");
    const used = (equals < 0 ? whole : whole.slice(equals)).match(/%[\w$.-]+/g) || [];
    const found = new Set();
    for (const name of used) {
      for (let at = row - 1; at >= 0; at--) {
        const other = text(level.lines[at][TEXT]);
        const eq = other.indexOf(" = ");
        if (eq > 0 && (other.slice(0, eq).match(/%[\w$.-]+/g) || []).includes(name)) { found.add(at); break; }
        if (level.lines[at][OP] < 0 && level.lines[at][DEPTH] === 0) break;
      }
    }
    return [...found];
  }

  class Pane {
    constructor(element, mark) {
      this.element = element; this.mark = mark;
      this.space = make("div", { class: "space" });
      element.append(this.space);
      element.addEventListener("scroll", () => { this.draw(); follow(this); }, { passive: true });
      element.addEventListener("pointerenter", () => { state.leader = this; });
      element.addEventListener("focusin", () => { state.leader = this; });
      new ResizeObserver(() => this.draw()).observe(element);
    }
    set(level, other) {
      this.level = level; this.other = other;
      this.rows = [];
      level.lines.forEach((line, row) => {
        const wanted = !state.onlyChanges || this.changed(row) || line[DEPTH] === 0;
        if (wanted && (state.weights || text(line[NAME]) !== "stepwell.weight")) this.rows.push(row);
      });
      this.index = new Map(this.rows.map((row, index) => [row, index]));
      this.space.style.height = this.rows.length * ROW + 40 + "px";
      this.draw();
    }
    changed(row) {
      const op = this.level.lines[row][OP];
      return this.other !== this.level && op >= 0 && !this.other.ops.has(op);
    }
    // An op written anew for a node that is on the other side, too, was turned; else it went or came.
    turned(row) {
      return this.changed(row) && this.other.nodes.has(this.level.lines[row][NODE]);
    }
    draw() {
      if (!this.rows) return;
      const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - 10);
      const last = Math.min(this.rows.length, first + Math.ceil(this.element.clientHeight / ROW) + 20);
      const drawn = document.createDocumentFragment();
      for (let index = first; index < last; index++) drawn.append(this.line(index));
      this.space.replaceChildren(drawn);
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
      const element = make("div", { class: classes.join(" "), "data-row": row, onclick: () => pick(this, row) });
      element.style.top = index * ROW + "px";
      if (line[DELEGATE] >= 0) element.style.borderLeftColor = hue(line[DELEGATE]);
      element.append("  ".repeat(line[DEPTH]));
      highlight(element, text(line[TEXT]));
      const time = this === left && story.times[text(line[NODE])];
      if (time) {
        const label = make("span", { class: "time", title: "milliseconds a call" }, time.toFixed(3));
        label.style.setProperty("--part", Math.min(1, time / mostTime));
        element.prepend(label);
      } else if (mostTime && this === left) element.prepend(make("span", { class: "time none" }, "\u00a0"));
      return element;
    }
    show(row) {
      const index = this.index.get(row);
      if (index === undefined) return;
      const top = index * ROW, view = this.element;
      if (top < view.scrollTop + 30 || top > view.scrollTop + view.clientHeight - 60)
        view.scrollTop = top - view.clientHeight / 3;
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

  const mostTime = Math.max(0, ...Object.values(story.times));
  // The pane that is not scrolled follows the one that is: the first op in sight that both have.
  function follow(pane) {
    if (state.leader !== pane || !$("linked").checked) return;
    const other = pane === left ? right : left;
    if (!pane.rows || !other.rows) return;
    const at = Math.floor((pane.element.scrollTop + pane.element.clientHeight / 3) / ROW);
    for (let index = at; index < Math.min(at + 40, pane.rows.length); index++) {
      const line = pane.level.lines[pane.rows[index]];
      const row = line[NODE] >= 0 ? other.level.nodes.get(line[NODE]) : undefined;
      const there = row === undefined ? -1 : other.index.get(row) ?? -1;
      if (there < 0) continue;
      other.element.scrollTop = pane.element.scrollTop + (there - index) * ROW;
      return;
    }
  }
  const state = { leader: null, hits: null, picked: null, onlyChanges: false, weights: false };
  const left = new Pane($("pane-left"), "gone"), right = new Pane($("pane-right"), "come");
  for (const select of [$("left"), $("right")]) {
    story.levels.forEach((level, index) => {
      const label = index ? `${index}. ${level.name} (${level.applied}×)` : level.name;
      select.append(make("option", { value: index }, label));
    });
    select.onchange = () => refresh();
  }
  $("right").value = story.levels.length - 1;
  function refresh() {
    const a = story.levels[$("left").value], b = story.levels[$("right").value];
    state.picked = null;
    left.set(a, b); right.set(b, a);
    const count = (pane, level, turned) =>
      level.lines.filter((_, row) => pane.changed(row) && pane.turned(row) === turned).length;
    $("changes").replaceChildren(...(a === b ? ["the same level"] : [
      make("span", { class: "key turned" }, `${count(left, a, true)} → ${count(right, b, true)} rewritten`),
      make("span", { class: "key gone" }, `${count(left, a, false)} gone`),
      make("span", { class: "key come" }, `${count(right, b, false)} new`),
    ]));
    search();
  }
  function goTo(step) {
    $("left").value = Math.max(0, step - 1);
    $("right").value = Math.min(story.levels.length - 1, step);
    refresh();
  }
  $("back").onclick = () => goTo(Math.max(1, Number($("right").value) - 1));
  $("forth").onclick = () => goTo(Number($("left").value) + 1 === Number($("right").value) ? Number($("right").value) + 1 : 1);
  $("only-changes").onchange = (event) => { state.onlyChanges = event.target.checked; refresh(); };
  $("show-weights").onchange = (event) => { state.weights = event.target.checked; refresh(); };
  $("next-change").onclick = () => {
    for (const pane of [right, left]) {
      const from = Math.floor((pane.element.scrollTop + pane.element.clientHeight / 3 + ROW) / ROW);
      const index = pane.rows.findIndex((row, i) => i > from && pane.changed(row));
      if (index >= 0) pane.element.scrollTop = index * ROW - pane.element.clientHeight / 3;
    }
  };

  function pick(pane, row) {
    const level = links(pane.level), line = level.lines[row];
    if (line[OP] < 0) return;
    const near = reads(level, row), by = level.users.get(row) || [];
    state.picked = { pane, row, node: line[NODE], near, by };
    const other = pane === left ? right : left;
    const twin = other.level.lines.findIndex((l) => l[OP] === line[OP]);
    const same = twin >= 0 ? twin : other.level.lines.findIndex((l) => line[NODE] >= 0 && l[NODE] === line[NODE]);
    pane.draw();
    if (same >= 0) other.show(same); else other.draw();
    details(pane, row, near, by);
  }
  function details(pane, row, near, by) {
    const line = pane.level.lines[row], node = text(line[NODE]);
    const fate = story.fates.find((f) => f.node === node);
    const refused = ((story.report || {}).refusals || []).filter((r) => r[2] === node);
    const link = (at) => make("a", { onclick: () => { pane.show(at); pick(pane, at); } }, text(pane.level.lines[at][TEXT]).slice(0, 90));
    const block = (title, items) => items.length ? [make("h3", {}, title), ...items.map((i) => make("div", {}, i))] : [];
    $("details").replaceChildren(
      make("pre", {}, text(line[TEXT])),
      ...block("in the model", [node && "node " + node, text(line[SOURCE]), text(line[PATH]) && "in " + text(line[PATH])].filter(Boolean)),
      ...block("time", story.times[node] ? [`${story.times[node].toFixed(3)} ms a call`] : []),
      ...block("delegate", line[DELEGATE] >= 0 ? [chip(`delegate ${line[DELEGATE]}`)] : []),
      neighbours(pane, row, near, by),
      ...block("reads", near.map(link)),
      ...block("read by", by.map(link)),
      ...block("what became of it", fate ? [fateText(fate)] : []),
      ...block("rewrites that acted", fate ? fate.by : []),
      ...block("refused", refused.map((r) => make("span", { class: "reason" }, `${r[0]}: ${r[4]}`))),
    );
  }
  function neighbours(pane, row, near, by) {
    const W = 300, H = 24, shown = 5;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const put = (tag, attributes, parent = svg) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      parent.append(element);
      return element;
    };
    const ranks = [near.slice(0, shown), [row], by.slice(0, shown)];
    const heights = [10, 70, 130];
    const centre = (rank, index) => (W / ranks[rank].length) * (index + 0.5);
    [0, 2].forEach((rank) => ranks[rank].forEach((_, index) => {
      const x = centre(rank, index), [y0, y1] = rank ? [heights[1] + H, heights[2]] : [heights[0] + H, heights[1]];
      const [from, to] = rank ? [W / 2, x] : [x, W / 2];
      put("path", { d: `M${from} ${y0} C${from} ${(y0 + y1) / 2} ${to} ${(y0 + y1) / 2} ${to} ${y1}` });
    }));
    ranks.forEach((rows, rank) => rows.forEach((at, index) => {
      const width = Math.min(170, W / rows.length - 4), x = centre(rank, index) - width / 2;
      const group = put("g", {});
      group.onclick = () => { pane.show(at); pick(pane, at); };
      put("rect", { x, y: heights[rank], width, height: H, rx: 4, class: rank === 1 ? "me" : "" }, group);
      const label = text(pane.level.lines[at][NAME]).replace(/^\w+\./, "").slice(0, Math.floor(width / 6.2));
      put("text", { x: x + width / 2, y: heights[rank] + 16, "text-anchor": "middle" }, group).textContent = label;
    }));
    svg.setAttribute("viewBox", `0 0 ${W} ${by.length ? 160 : 100}`);
    return svg;
  }

  // ---- search ---------------------------------------------------------------------------
  function search() {
    const wanted = $("search").value.trim().toLowerCase();
    state.hits = null;
    $("hits").value = "";
    if (wanted) {
      state.hits = new Set();
      const found = [0, 0];
      [left, right].forEach((pane, which) => pane.level.lines.forEach((line) => {
        const whole = `${text(line[TEXT])} ${text(line[NODE])} ${text(line[SOURCE])} ${text(line[PATH])}`;
        if (whole.toLowerCase().includes(wanted)) {
          found[which]++;
          state.hits.add(line[TEXT] + "|" + line[NODE] + "|" + line[SOURCE]);
        }
      }));
      $("hits").value = `${found[0]} left, ${found[1]} right`;
    }
    left.draw(); right.draw();
    filterTables(wanted);
  }
  function nextHit() {
    if (!state.hits) return;
    for (const pane of [right, left]) {
      const from = Math.floor(pane.element.scrollTop / ROW) + 1;
      const is = (row) => { const l = pane.level.lines[row]; return state.hits.has(l[TEXT] + "|" + l[NODE] + "|" + l[SOURCE]); };
      let index = pane.rows.findIndex((row, i) => i > from && is(row));
      if (index < 0) index = pane.rows.findIndex(is);
      if (index >= 0) pane.element.scrollTop = index * ROW - 40;
    }
  }
  let waiting = 0;
  $("search").oninput = () => { clearTimeout(waiting); waiting = setTimeout(() => { search(); nextHit(); }, 120); };
  $("search").onkeydown = (event) => { if (event.key === "Enter") nextHit(); };
  function filterTables(wanted) {
    for (const row of document.querySelectorAll("tbody tr"))
      row.hidden = Boolean(wanted) && !row.textContent.toLowerCase().includes(wanted);
  }

  // ---- tables ---------------------------------------------------------------------------
  const chip = (where) => { const e = make("span", { class: "chip" }, where); e.style.background = colour(where); return e; };
  const fateText = (fate) => {
    const became = fate.became.map(([name, count]) => name + (count > 1 ? `×${count}` : "")).join(", ");
    const whole = make("span", {}, chip(fate.where), " " + (became || (fate.into ? "into " + fate.into : "")));
    for (const reason of fate.why) whole.append(make("div", { class: "reason" }, reason));
    return whole;
  };
  const table = (heads, rows) => make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", { class: h.startsWith("#") ? "number" : null }, h.replace("#", ""))))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, i) =>
      make("td", { class: heads[i].startsWith("#") ? "number" : null }, cell === null || cell === undefined ? "" : cell))))));
  function find(node) {
    open("levels");
    const number = story.texts.indexOf(node);
    $("left").value = 0; $("right").value = story.levels.length - 1; refresh();
    const row = left.level.lines.findIndex((line) => line[NODE] === number && number >= 0);
    if (row >= 0) { left.show(row); pick(left, row); }
  }
  function drawFates(only) {
    const kinds = [...new Set(story.fates.map((f) => f.where.split(" ")[0]))];
    const filters = make("div", { class: "filters" }, ...["all", ...kinds].map((kind) =>
      make("button", { "aria-pressed": String(kind === only), onclick: () => drawFates(kind) },
        kind === "all" ? `all ${story.fates.length}` : `${kind} ${story.fates.filter((f) => f.where.startsWith(kind)).length}`)));
    const total = story.fates.reduce((sum, f) => sum + f.cost, 0) || 1;
    const shown = story.fates.filter((f) => only === "all" || f.where.startsWith(only));
    if (mostTime) shown.sort((a, b) => (story.times[b.node] || 0) - (story.times[a.node] || 0));
    $("fates").replaceChildren(make("h2", {}, "What became of each op of the model, the " + (mostTime ? "slowest" : "heaviest") + " first"), filters,
      table([...(mostTime ? ["#ms"] : []), "#work", "op", "node", "where", "by", "module", "source line"], shown.slice(0, 3000).map((f) => [
        ...(mostTime ? [(story.times[f.node] || 0).toFixed(3)] : []),
        (100 * f.cost / total).toFixed(1) + " %", f.op, make("a", { onclick: () => find(f.node) }, f.node),
        fateText(f), f.by.join(", "), f.path, f.line])));
  }
  function drawSteps() {
    const report = story.report;
    const numbers = new Map();
    story.levels.forEach((level, index) => { if (!numbers.has(level.name + index)) numbers.set(level.name + index, index); });
    let at = 0;
    $("steps").replaceChildren(make("h2", {}, `Steps to ${report.target}`),
      table(["step", "#applied", "#ops after", "#ms"], report.steps.map(([name, applied, seconds, ops]) => {
        const step = applied ? ++at : -1;
        const label = applied ? make("a", { onclick: () => { open("levels"); goTo(step); } }, name) : name;
        return [label, applied, ops, (seconds * 1e3).toFixed(1)];
      })),
      make("h2", {}, "Left to the runtime's kernels"),
      table(["op", "#count"], report.outside.map(([name, count]) => [name, count])),
      make("h2", {}, "Refused"),
      table(["rewrite", "op", "where", "because"], report.refusals.map((r) => [r[0], r[1], r[2] ? make("a", { onclick: () => find(r[2]) }, r[3] || r[2]) : r[3], r[4]])));
  }
  function drawWeights() {
    const rows = story.weights, total = rows.reduce((sum, w) => sum + w[3], 0);
    const group = (key) => {
      const sums = new Map();
      for (const row of rows) {
        const held = sums.get(key(row)) || [0, 0];
        sums.set(key(row), [held[0] + 1, held[1] + row[3]]);
      }
      return sums;
    };
    const bars = (title, sums, order) => {
      const entries = order([...sums.entries()]);
      const most = Math.max(1, ...entries.map(([, v]) => v[1]));
      return [make("h2", {}, title), table(["", "#weights", "#bytes", ""], entries.map(([k, [count, size]]) => {
        const bar = make("div", { class: "bar" });
        bar.style.width = (320 * size / most).toFixed(0) + "px";
        return [k, count, bytes(size), bar];
      }))];
    };
    const bucket = (n) => Math.floor(Math.log2(Math.max(1, n)));
    const sizes = group((w) => bucket(w[3]));
    $("weights").replaceChildren(
      make("h2", {}, `${rows.length} weights, ${bytes(total)}`),
      ...bars("By element type", group((w) => w[1]), (e) => e.sort((a, b) => b[1][1] - a[1][1])),
      ...bars("By size", new Map([...sizes.entries()].sort((a, b) => a[0] - b[0]).map(([k, v]) => [`${bytes(2 ** k)} – ${bytes(2 ** (k + 1))}`, v])), (e) => e),
      make("h2", {}, "Largest"),
      table(["key", "type", "shape", "#bytes"], rows.slice(0, 500).map((w) => [w[0], w[1], w[2], bytes(w[3])])));
  }

  // ---- tabs -----------------------------------------------------------------------------
  const tabs = [["levels", "Levels"]];
  if (story.fates.length) tabs.push(["fates", "Ops"]);
  if (story.report) tabs.push(["steps", "Steps"]);
  tabs.push(["weights", "Weights"]);
  if (Object.keys(story.notes).length) tabs.push(["notes", "Notes"]);
  function open(id) {
    for (const [tab] of tabs) $(tab).hidden = tab !== id;
    for (const button of $("tabs").children) button.setAttribute("aria-selected", String(button.dataset.tab === id));
    location.hash = id;
    if (id === "levels") { left.draw(); right.draw(); }
  }
  for (const [id, label] of tabs)
    $("tabs").append(make("button", { role: "tab", "data-tab": id, onclick: () => open(id) }, label));
  if (story.fates.length) drawFates("all");
  if (story.report) drawSteps();
  drawWeights();
  $("notes").replaceChildren(...Object.entries(story.notes).flatMap(([title, body]) => [make("h2", {}, title), make("div", { class: "note" }, body)]));
  const count = story.levels[story.levels.length - 1].lines.filter((line) => line[OP] >= 0).length;
  const report = story.report;
  $("summary").textContent = [
    report ? `${report.target}: ${report.delegates} delegate${report.delegates === 1 ? "" : "s"}, ${report.outside.reduce((s, o) => s + o[1], 0)} ops outside` : `${count} ops`,
    report && `lowered in ${report.seconds.toFixed(2)} s`,
    `${story.weights.length} weights, ${bytes(story.weights.reduce((s, w) => s + w[3], 0))}`,
    story.latency && `${(story.latency * 1e3).toFixed(1)} ms a call`,
  ].filter(Boolean).join(" · ");
  document.addEventListener("keydown", (event) => {
    if (event.target.tagName === "INPUT" || event.target.tagName === "SELECT") return;
    if (event.key === "/") { event.preventDefault(); $("search").focus(); }
    if (event.key === "n") state.hits ? nextHit() : $("next-change").onclick();
    if (event.key === "[") $("back").onclick();
    if (event.key === "]") $("forth").onclick();
  });
  refresh();
  const [tab, node] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (node) find(node);
  else open(tabs.some(([id]) => id === tab) ? tab : "levels");
  document.body.dataset.ready = "yes";
})();
