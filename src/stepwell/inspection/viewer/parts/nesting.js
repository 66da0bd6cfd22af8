// Modules of the model as groups that hold nodes and groups; and runs of nodes, if a group has too many.
const MANY = 60;
const group = (key, name, parent) => ({ key, name, parent, groups: new Map(), nodes: [], first: Infinity, count: 0 });
function nestingOf(level, weights) {
  const held = `nesting${weights ? 1 : 0}`;
  if (level[held]) return level[held];
  const { nodes, methods } = graphOf(level);
  const root = group("", level.name, null), groups = new Map([["", root]]), home = new Map();
  const inside = (parent, key, name) => {
    if (!groups.has(key)) { const made = group(key, name, parent); groups.set(key, made); parent.groups.set(key, made); }
    return groups.get(key);
  };
  for (const node of nodes) {
    if (node.kind === "weight" && !weights) continue;
    let at = methods.length > 1 ? inside(root, `@${node.method}`, `@${node.method}`) : root;
    const place = node.kind === "weight" ? node.gives[0].readers.find((reader) => reader.row >= 0) : node;
    const path = place && place.row >= 0 ? text(level.lines[place.row][PATH]).split(".").filter(Boolean) : [];
    for (const part of path) at = inside(at, at.key ? `${at.key}.${part}` : part, part);
    at.nodes.push(node);
    home.set(node, at);
  }
  for (const whole of [...groups.values()]) {
    const run = whole.nodes.filter((node) => node.kind !== "input" && node.kind !== "output");
    if (run.length <= MANY) continue;
    const size = Math.max(MANY, Math.ceil(run.length / MANY));
    for (let at = 0; at < run.length; at += size) {
      const part = run.slice(at, at + size);
      const made = inside(whole, `${whole.key}~${at}`, `${counted(part.length, "op")} from ${at + 1}`);
      made.nodes = part;
      for (const node of part) home.set(node, made);
    }
    whole.nodes = whole.nodes.filter((node) => node.kind === "input" || node.kind === "output");
  }
  (function sum(at) {
    for (const inner of at.groups.values()) { sum(inner); at.count += inner.count; at.first = Math.min(at.first, inner.first); }
    for (const node of at.nodes) { at.count += node.kind === "op"; at.first = Math.min(at.first, node.index); }
  })(root);
  level[held] = { root, groups, home };
  return level[held];
}
function* within(at) {
  yield* at.nodes;
  for (const inner of at.groups.values()) yield* within(inner);
}
