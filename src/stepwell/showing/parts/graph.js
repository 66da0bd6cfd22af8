// The whole graph: modules of the model as boxes that open, runs of ops where there are no modules.
const MANY = 60;
function treeOf(level) {
  if (level.tree) return level.tree;
  links(level);
  const root = { key: "", name: level.name, parts: new Map(), rows: [], parent: null };
  const groups = new Map([["", root]]);
  level.home = level.lines.map(() => null);
  level.lines.forEach((line, row) => {
    if (line[OP] < 0 || level.gives.has(row) || text(line[NAME]) === "stepwell.weight") return;
    let group = root, key = "";
    for (const part of text(line[PATH]).split(".").filter(Boolean)) {
      key = key ? `${key}.${part}` : part;
      if (!group.parts.has(part)) {
        const made = { key, name: part, parts: new Map(), rows: [], parent: group };
        group.parts.set(part, made); groups.set(key, made);
      }
      group = group.parts.get(part);
    }
    group.rows.push(row);
    level.home[row] = group;
  });
  // Too many ops of one module stand in runs.
  for (const group of [...groups.values()]) {
    if (group.rows.length <= MANY) continue;
    const size = Math.max(MANY, Math.ceil(group.rows.length / MANY));
    for (let at = 0; at < group.rows.length; at += size) {
      const rows = group.rows.slice(at, at + size);
      const made = { key: `${group.key}~${at}`, name: `ops ${at + 1}–${at + rows.length}`, parts: new Map(), rows, parent: group };
      group.parts.set(made.name, made); groups.set(made.key, made);
      for (const row of rows) level.home[row] = made;
    }
    group.rows = [];
  }
  const count = (g) => { g.first = Math.min(...g.rows, ...[...g.parts.values()].map((p) => (count(p), p.first))); g.count = g.rows.length + [...g.parts.values()].reduce((s, p) => s + p.count, 0); };
  count(root);
  level.tree = { root, groups };
  return level.tree;
}
function drawGraph() {
  const level = story.levels[view.level], { root, groups } = treeOf(level);
  const open = new Set(view.open.split(",").filter(Boolean).filter((key) => groups.has(key)));
  const isOpen = (g) => g === root || open.has(g.key);
  // The outermost closed group around a row, or the row itself.
  const shownFor = new Map();
  const shown = (row) => {
    let found = row;
    for (let g = level.home[row]; g; g = g.parent) if (!isOpen(g)) found = g.key + "/";
    return found;
  };
  const nodes = new Map(), edges = new Map();
  level.lines.forEach((line, row) => {
    if (!level.home[row]) return;
    const key = shown(row);
    shownFor.set(row, key);
    if (nodes.has(key)) return;
    if (typeof key === "number") {
      nodes.set(key, { key, label: text(line[NAME]).replace(/\.default$/, ""), order: row, kind: "", href: address({ tab: "levels", left: 0, right: view.level, side: "right", op: line[OP] }), colour: line[DELEGATE] >= 0 ? hue(line[DELEGATE]) : null, said: text(line[TEXT]).slice(0, 120) });
    } else {
      const g = groups.get(key.slice(0, -1));
      nodes.set(key, { key, label: `▸ ${g.key.includes("~") ? g.name : g.key} (${g.count})`, order: g.first, kind: "open", href: address({ open: [...open, g.key].join(",") }), said: `Open ${g.key}, ${counted(g.count, "op")}` });
    }
  });
  for (const [row, key] of shownFor) for (const from of level.reads[row]) {
    const source = shownFor.get(level.gives.get(from) ?? from);
    if (source !== undefined && source !== key) edges.set(source + "→" + key, [source, key]);
  }
  const select = make("select", { "aria-label": "Level" });
  story.levels.forEach((l, at) => select.append(make("option", { value: at }, at ? `${at}. ${l.name}` : l.name)));
  select.value = view.level;
  select.onchange = () => go({ level: Number(select.value) });
  const close = [...open].map((key) => make("a", { href: address({ open: [...open].filter((k) => k !== key && !k.startsWith(key + ".") && !k.startsWith(key + "~")).join(",") }), title: "Close" }, `▾ ${key || "top"}`));
  const children = [...open, ""].flatMap((key) => [...(groups.get(key)?.parts.values() || [])].map((g) => g.key));
  const limit = [...nodes.values()].length > 1500;
  $("graph").replaceChildren(
    make("h2", {}, `The graph of “${level.name}”: ${counted(root.count, "op")}, ${nodes.size} boxes`),
    make("div", { class: "filters" }, select,
      make("a", { href: address({ open: [...new Set([...open, ...children])].join(",") }) }, "open one more layer"),
      make("a", { href: address({ open: "" }) }, "close all"), ...close),
    limit ? make("p", {}, `${nodes.size} boxes are open: close some to see the picture.`) :
      make("div", { class: "scroll" }, layered([...nodes.values()], [...edges.values()], `Graph of ${level.name}`)));
}
