// Layered layout: a user is placed below its operands. An open group is laid out on its own; a
// value crosses its boundary at a port, and crosses ranks without a user through empty cells, so
// that every line connects adjacent ranks. Everything is linear except for sorting each rank.
const HIGH = 36, BETWEEN = 46, APART = 18, TITLE = 24, EDGE = 14, LETTER = 6.7;
const wide = (label, second = "") => Math.max(64, Math.min(250, Math.max(label.length * LETTER, second.length * 6.1) + 18));

/** Lines of every open group: group → value → {from, to: Set}; from and to are what the group holds,
    or null for its wall. */
function linesOf(nodes, home, isOpen) {
  const lines = new Map();
  // From the outermost group in: groups that are open, then the node or the closed group around it.
  const chains = new Map();
  const chainOf = (node) => {
    if (chains.has(node)) return chains.get(node);
    const around = [];
    for (let at = home.get(node); at; at = at.parent) around.unshift(at);
    const closed = around.findIndex((at) => !isOpen(at));
    const chain = closed < 0 ? [...around, node] : around.slice(0, closed + 1);
    chains.set(node, chain);
    return chain;
  };
  const line = (at, value, from, to) => {
    if (!lines.has(at)) lines.set(at, new Map());
    const held = lines.get(at).get(value) || { from, to: new Set() };
    held.to.add(to);
    lines.get(at).set(value, held);
  };
  for (const node of nodes) for (const value of node.gives) for (const reader of value.readers) {
    if (!home.has(node) || !home.has(reader)) continue;
    const a = chainOf(node), b = chainOf(reader);
    let same = 0;
    while (same < a.length && same < b.length && a[same] === b[same]) same++;
    if (same === a.length || same === b.length) continue; // Both in one closed group.
    line(a[same - 1], value, a[same], b[same]);
    for (let at = same; at < a.length - 1; at++) line(a[at], value, a[at + 1], null);
    for (let at = same; at < b.length - 1; at++) line(b[at], value, null, b[at + 1]);
  }
  return lines;
}

/** The positions nearest to the desired ones without overlap (pool adjacent violators). */
function settle(rank) {
  const pools = [];
  let offset = 0;
  for (const cell of rank) {
    cell.shift = offset + cell.w / 2;
    offset += cell.w + APART;
    pools.push({ sum: cell.wish - cell.shift, count: 1 });
    for (let n = pools.length; n > 1 && pools[n - 2].sum / pools[n - 2].count >= pools[n - 1].sum / pools[n - 1].count; n = pools.length) {
      const last = pools.pop();
      pools[n - 2].sum += last.sum; pools[n - 2].count += last.count;
    }
  }
  let at = 0;
  for (const pool of pools) for (let n = 0; n < pool.count; n++, at++) rank[at].x = pool.sum / pool.count + rank[at].shift;
}

/** A box: {what, w, h, ranks: [{y, h, cells}], gaps: [lines], inner}. Places are its own. */
function arranged(at, lines, isOpen) {
  const mine = lines.get(at) || new Map(), cells = new Map();
  const things = [...[...at.groups.values()].filter((g) => g.count || g.nodes.length), ...at.nodes];
  things.sort((a, b) => (a.first ?? a.index) - (b.first ?? b.index));
  for (const what of things) {
    const inner = what.groups && isOpen(what) ? arranged(what, lines, isOpen) : null;
    cells.set(what, { what, inner, rank: 0, order: what.first ?? what.index, x: 0, up: [], down: [],
      w: inner ? inner.w : what.groups ? wide(`▸ ${what.name}`, "123 ops · 45 differ") : wide(what.label, what.second), h: inner ? inner.h : HIGH });
  }
  const into = new Map(things.map((what) => [what, []]));
  const out = new Map(things.map((what) => [what, []]));
  const backward = [];
  for (const [value, { from, to }] of mine) for (const target of to) {
    if (from && target) {
      if (cells.get(from).order < cells.get(target).order) { into.get(target).push(from); out.get(from).push(target); }
      else backward.push({ value, from: cells.get(from), to: cells.get(target) });
    } else if (!from && target) into.get(target).push(null);
  }
  for (const what of things) {
    const cell = cells.get(what);
    for (const from of into.get(what)) if (from) cell.rank = Math.max(cell.rank, cells.get(from).rank + 1);
  }
  // A node without operands is placed directly above its first user.
  for (const what of things) if (!into.get(what).length && out.get(what).length)
    cells.get(what).rank = Math.max(0, out.get(what).reduce((least, reader) => Math.min(least, cells.get(reader).rank), Infinity) - 1);
  let count = 0;
  for (const cell of cells.values()) count = Math.max(count, cell.rank + 1);
  const ranks = Array.from({ length: count }, () => ({ y: 0, h: 0, cells: [] }));
  const gaps = Array.from({ length: count + 1 }, () => []), long = [];
  for (const what of things) ranks[cells.get(what).rank].cells.push(cells.get(what));
  const ports = { in: new Map(), out: new Map() };
  let empty = 0;
  const most = 8 * things.length + 400;
  for (const [value, { from, to }] of mine) {
    const targets = [...to].filter((target) => !from || !target || cells.get(from).order < cells.get(target).order);
    if (!targets.length) continue;
    const port = () => ({ w: 10, h: 0, x: 0, up: [], down: [], port: value });
    let cell = from ? cells.get(from) : port(), rank = from ? cell.rank : -1;
    if (!from) ports.in.set(value, cell);
    const ends = targets.map((target) => ({ cell: target ? cells.get(target) : port(), rank: target ? cells.get(target).rank : count, target }));
    for (const end of ends) if (!end.target) ports.out.set(value, end.cell);
    const deepest = ends.reduce((most, end) => Math.max(most, end.rank), 0);
    if (empty + deepest - rank > most) { // Too long to pass through every rank.
      for (const end of ends) long.push({ value, from: cell, to: end.cell });
      continue;
    }
    const byRank = new Map();
    for (const end of ends) byRank.set(end.rank, [...(byRank.get(end.rank) || []), end]);
    for (let next = rank + 1; next <= deepest; next++) {
      for (const end of byRank.get(next) || []) {
        const line = { value, from: cell, to: end.cell };
        gaps[next].push(line); cell.down.push(line); end.cell.up.push(line);
      }
      if (next === deepest) break;
      const passing = { w: 6, h: 0, x: 0, up: [], down: [], passes: value, rank: next };
      const line = { value, from: cell, to: passing };
      gaps[next].push(line); cell.down.push(line); passing.up.push(line);
      ranks[next].cells.push(passing);
      cell = passing; empty++;
    }
  }
  place(ranks, ports);
  return measured(at, { ranks, gaps, long, backward, ports });
}
function place(ranks, ports) {
  const all = [{ cells: [...ports.in.values()] }, ...ranks, { cells: [...ports.out.values()] }];
  for (const rank of all) { rank.cells.forEach((cell, n) => { cell.wish = n; }); settle(rank.cells); }
  const middle = (lines, side) => lines.reduce((sum, line) => sum + line[side].x, 0) / lines.length;
  const sweep = (order, lines, side) => {
    for (const rank of order) {
      for (const cell of rank.cells) cell.wish = cell[lines].length ? middle(cell[lines], side) : cell.x;
      rank.cells.sort((a, b) => a.wish - b.wish);
      settle(rank.cells);
    }
  };
  const back = [...all].reverse();
  for (let turn = 0; turn < 2; turn++) { sweep(all, "up", "from"); sweep(back, "down", "to"); }
  sweep(all, "up", "from");
}
function measured(at, box) {
  const { ranks, gaps, ports } = box;
  let low = Infinity, high = -Infinity;
  const span = (cell) => { low = Math.min(low, cell.x - cell.w / 2); high = Math.max(high, cell.x + cell.w / 2); };
  for (const rank of ranks) rank.cells.forEach(span);
  for (const port of [...ports.in.values(), ...ports.out.values()]) span(port);
  if (low > high) [low, high] = [0, 0];
  const label = wide(`▾ ${at.name}`), grown = Math.max(0, (label - (high - low)) / 2);
  const move = EDGE - low + grown;
  let y = TITLE + (ports.in.size ? BETWEEN / 2 : 4);
  for (const rank of ranks) {
    rank.y = y;
    for (const cell of rank.cells) { cell.x += move; cell.y = y; rank.h = Math.max(rank.h, cell.h); }
    rank.cells.sort((a, b) => a.x - b.x);
    y += rank.h + BETWEEN;
  }
  y += (ports.out.size ? BETWEEN / 2 : 6) - BETWEEN;
  for (const port of ports.in.values()) { port.x += move; port.y = TITLE; }
  for (const port of ports.out.values()) { port.x += move; port.y = y; }
  Object.assign(box, { what: at, w: high - low + 2 * EDGE + 2 * grown, h: y });
  ends(box);
  for (const [n, lines] of gaps.entries()) {
    lines.top = n ? ranks[n - 1].y : 0;
    lines.bottom = n < ranks.length ? ranks[n].y : y;
    lines.floor = n ? ranks[n - 1].y + ranks[n - 1].h : TITLE;
  }
  return box;
}
/** The ends of each line: distributed over a node, or at the port of a group. */
function ends({ ranks, gaps, long, backward }) {
  const left = (cell) => cell.x - cell.w / 2;
  const spread = (cell, lines, mine, other, port) => {
    if (cell.inner) { for (const line of lines) line[mine] = left(cell) + (cell.inner.ports[port].get(line.value)?.x ?? cell.w / 2); return; }
    lines.sort((a, b) => a[other].x - b[other].x);
    const step = Math.min(16, (cell.w * 0.8) / Math.max(1, lines.length));
    lines.forEach((line, n) => { line[mine] = cell.x + (n - (lines.length - 1) / 2) * step; });
  };
  const seen = new Set([...ranks.flatMap((rank) => rank.cells)]);
  for (const lines of gaps) for (const line of lines) { seen.add(line.from); seen.add(line.to); }
  for (const cell of seen) { spread(cell, cell.up, "x1", "from", "in"); spread(cell, cell.down, "x0", "to", "out"); }
  for (const line of [...long, ...backward]) {
    line.x0 = line.from.inner ? left(line.from) + (line.from.inner.ports.out.get(line.value)?.x ?? 0) : line.from.x;
    line.x1 = line.to.inner ? left(line.to) + (line.to.inner.ports.in.get(line.value)?.x ?? 0) : line.to.x;
  }
}
