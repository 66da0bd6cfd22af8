// Application by application: what a rewrite took away, what it wrote, as text and as a graph.
const applications = story.levels.flatMap((level, at) => level.applications.map((a) => ({ rewrite: a[0], where: a[1], level: at, before: a[2], after: a[3] })));
applications.forEach((a, number) => {
  a.number = number;
  a.ops = new Set([...a.before, ...a.after].filter((p) => p[2]).map((p) => p[0]));
});
function drawRewrites() {
  if (!applications.length) return;
  const at = Math.min(Math.max(0, view.app), applications.length - 1), a = applications[at];
  const move = (to, label, title) => make("a", { href: address({ app: Math.min(Math.max(0, to), applications.length - 1) }), title }, label);
  const sameKind = (by) => {
    for (let i = at + by; i >= 0 && i < applications.length; i += by) if (applications[i].rewrite === a.rewrite) return i;
    return at;
  };
  const select = make("select", { "aria-label": "Rewrite" });
  const first = new Map();
  for (const held of applications) first.set(held.rewrite, [...(first.get(held.rewrite) || []), held.number]);
  for (const [name, numbers] of first) select.append(make("option", { value: numbers[0] }, `${name} (${numbers.length}×)`));
  select.value = first.get(a.rewrite)[0];
  select.onchange = () => go({ app: Number(select.value) });
  const jump = make("input", { type: "range", min: 0, max: applications.length - 1, value: at, "aria-label": "Application", style: "flex:1;min-width:120px" });
  jump.onchange = () => go({ app: Number(jump.value) });
  const pieces = (held, kind) => make("div", {}, ...held.map((p) => make("a", {
    class: "piece" + (p[2] ? " " + kind : ""),
    href: story.levels[a.level - (kind === "gone" ? 1 : 0)].rowOf.has(p[0]) ? address({ ...step(a.level), side: kind === "gone" ? "left" : "right", op: p[0] }) : null,
  }, text(p[1]))));
  const held = make("div", {},
    make("h2", {}, `${at + 1} of ${applications.length}: ${a.rewrite}`),
    make("div", { class: "filters" }, move(at - 1, "◀ previous", "Previous application ( , )"), move(at + 1, "next ▶", "Next application ( . )"),
      move(sameKind(-1), "◀ of this rewrite"), move(sameKind(1), "of this rewrite ▶"), select, jump),
    make("p", {}, "In step ", make("a", { href: address(step(a.level)) }, `${a.level}. ${story.levels[a.level].name}`), a.where ? `, at ${a.where}` : ""),
    make("div", { class: "two" },
      make("div", {}, make("h3", {}, "before"), pieces(a.before, "gone"), picture(a.before, "gone")),
      make("div", {}, make("h3", {}, "after"), pieces(a.after, "come"), picture(a.after, "come"))),
    ...sourceOf((a.where || "").split(",")[0]));
  $("rewrites").replaceChildren(held);
}
function picture(held, kind) {
  const makers = new Map();
  held.forEach((p, at) => p[3].forEach((name) => makers.set(name, at)));
  const nodes = held.map((p, at) => ({ key: at, label: text(p[1]).replace(/^.* = /, "").split("(")[0], kind: p[2] ? kind : "", order: at }));
  const edges = held.flatMap((p, to) => p[4].map((name) => [makers.get(name), to]).filter(([from]) => from !== undefined && from < to));
  return make("div", { class: "scroll" }, layered(nodes, edges, "The ops and what flows between them"));
}
/** Boxes in ranks, an edge leading down. nodes: {key, label, kind, order, href}; edges: [from, to]. */
function layered(nodes, edges, label) {
  const H = 22, GAP = 26, byKey = new Map(nodes.map((n) => [n.key, n]));
  for (const n of nodes) { n.rank = 0; n.width = Math.max(50, n.label.length * 6.9 + 14); n.into = []; }
  for (const [from, to] of edges) byKey.get(to).into.push(byKey.get(from));
  const sorted = [...nodes].sort((a, b) => a.order - b.order);
  for (const n of sorted) for (const m of n.into) if (m.order < n.order) n.rank = Math.max(n.rank, m.rank + 1);
  const ranks = [];
  for (const n of sorted) (ranks[n.rank] = ranks[n.rank] || []).push(n);
  const total = (rank) => rank.reduce((sum, n) => sum + n.width + 12, -12);
  const W = Math.max(...ranks.map(total)) + 20;
  for (const [at, rank] of ranks.entries()) {
    const wish = (n) => { const m = n.into.filter((o) => o.rank < n.rank); return m.length ? m.reduce((s, o) => s + o.x + o.width / 2, 0) / m.length : W / 2; };
    if (at) rank.sort((a, b) => wish(a) - wish(b) || a.order - b.order);
    let x = 0;
    for (const n of rank) { n.x = x; x += n.width + 12; n.y = 6 + at * (H + GAP); }
    const shift = Math.min(Math.max(0, rank.reduce((s, n) => s + wish(n) - n.x - n.width / 2, 0) / rank.length), W - total(rank) - 10);
    for (const n of rank) n.x += Math.max(10, shift);
  }
  const wide = W + (edges.some(([from, to]) => byKey.get(to).rank - byKey.get(from).rank > 1) ? 160 : 0);
  const tall = ranks.length * (H + GAP) - GAP + 12;
  const svg = drawn("svg", { viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, role: "img", "aria-label": label });
  for (const [source, target] of edges) {
    const a = byKey.get(source), b = byKey.get(target), down = a.rank < b.rank;
    const x0 = a.x + a.width / 2, x1 = b.x + b.width / 2, y0 = a.y + (down ? H : H / 2), y1 = b.y + (down ? 0 : H / 2);
    // An edge past other ranks leaves its box at the side, so that it is not hidden behind theirs.
    const past = b.rank - a.rank > 1, out = past ? 80 + Math.min(110, 8 * (b.rank - a.rank)) : 0;
    const [from, to] = past ? [a.x + a.width, b.x + b.width] : [x0, x1];
    const [y2, y3] = past ? [a.y + H / 2, b.y + H / 2] : [y0, y1];
    const bend = down && !past ? Math.min(60, (y1 - y0) / 2) : 0;
    svg.append(drawn("path", { class: down ? "edge" : "edge back", d: `M${from} ${y2}C${from + out} ${y2 + bend} ${to + out} ${y3 - bend} ${to} ${y3}` }));
  }
  for (const n of nodes) {
    const box = [drawn("rect", { class: "box " + (n.kind || ""), x: n.x, y: n.y, width: n.width, height: H, rx: 4 }),
      drawn("text", { x: n.x + n.width / 2, y: n.y + 15, "text-anchor": "middle" }, n.label)];
    if (n.colour) box[0].style.stroke = n.colour;
    svg.append(n.href ? drawn("a", { href: n.href, "aria-label": n.said || n.label }, ...box) : drawn("g", {}, ...box));
  }
  return svg;
}
