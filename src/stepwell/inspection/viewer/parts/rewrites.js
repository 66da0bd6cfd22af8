// Each application of a rewrite: the ops that it erased and created, as text and as a graph.
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
/** The ops and the values between them, as SVG. */
function picture(held, kind) {
  const nodes = held.map((p, index) => ({ kind: p[2] ? kind : "", row: -1, label: text(p[1]).replace(/^.* = /, "").split("(")[0], second: (text(p[1]).split(" : ")[1] || "").split(", ").map(shapeOf).join(", "), index, reads: [], gives: [] }));
  const known = new Map();
  held.forEach((p, at) => p[3].forEach((name) => { const value = { maker: nodes[at], readers: [], type: "" }; nodes[at].gives.push(value); known.set(name, value); }));
  held.forEach((p, at) => p[4].forEach((name) => known.get(name)?.readers.push(nodes[at])));
  const root = Object.assign(group("", "", null), { nodes }), box = arranged(root, linesOf(nodes, new Map(nodes.map((node) => [node, root])), () => true), () => true);
  const pen = new SvgPen(), ink = Object.fromEntries(INKS.map((name) => [name, `var(--${name})`]));
  paint(pen, box, 0, 0, { x0: -1, y0: -1, x1: box.w + 1, y1: box.h + 1 }, 1, { inks: ink, marked: () => null, look: (node) => ({ ...node, fill: ink[node.kind] }) });
  return make("div", { class: "scroll" }, pen.element(box.w, box.h, "The ops and what flows between them", "none"));
}
