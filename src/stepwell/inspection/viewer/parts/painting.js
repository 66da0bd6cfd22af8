// Drawing of a laid-out graph. Only the visible part is visited: ranks and cells are sorted,
// and an item on the same pixel as its neighbor is skipped.
const lowest = (list, is) => {
  let low = 0, high = list.length;
  while (low < high) { const middle = (low + high) >> 1; if (is(list[middle])) high = middle; else low = middle + 1; }
  return low;
};
const cut = (words, width, size = LETTER) => {
  const room = Math.floor((width - 10) / size);
  return words.length <= room ? words : room < 3 ? "" : words.slice(0, room - 1) + "…";
};
/** Shapes next to the start of values, in the first free one of three rows. */
function labelsOf(lines) {
  if (lines.labels) return lines.labels;
  const begun = new Map();
  for (const line of lines) if (!line.from.passes && line.value.type) {
    const held = begun.get(line.value);
    if (!held || held.x0 > line.x0) begun.set(line.value, line);
  }
  const ends = [-Infinity, -Infinity, -Infinity];
  lines.labels = [...begun.values()].sort((a, b) => a.x0 - b.x0).map((line) => {
    const words = shapeOf(line.value.type), x = line.x0 + 4;
    const row = ends.findIndex((end) => end < x);
    if (row >= 0) ends[row] = x + words.length * 6 + 4;
    return { x, words, row };
  }).filter((label) => label.row >= 0);
  return lines.labels;
}
/** looks: {inks, look(what) → {label, second, fill, stroke, width, ink}, marked(value) → color or
    undefined}. window: what is seen, in the units of the picture; scale: pixels a unit. */
function paint(pen, box, x, y, window, scale, looks) {
  const { ranks, gaps } = box, { inks: ink } = looks;
  if (x > window.x1 || y > window.y1 || x + box.w < window.x0 || y + box.h < window.y0) return;
  const detailed = HIGH * scale >= 8;
  if (box.what.parent || box.what.framed) {
    const look = looks.look(box.what);
    pen.rect(x, y, box.w, box.h, depthOf(box.what) % 2 ? ink.raised : ink.paper, look.stroke || ink.line, look.width);
    if (detailed) pen.text(x + 8, y + 16, cut(`▾ ${box.what.name}${look.second ? "  " + look.second : ""}`, box.w), ink.ink, 11, true);
  }
  if (Math.min(box.w, box.h) * scale < 2) return;
  const first = lowest(ranks, (rank) => y + rank.y + rank.h + BETWEEN >= window.y0);
  const plainly = [], marked = new Map(), labels = [];
  const between = (lines) => {
    if (BETWEEN * scale < 1.5) return;
    const straight = BETWEEN * scale < 8;
    for (const line of lines) {
      if (x + Math.max(line.x0, line.x1) < window.x0 || x + Math.min(line.x0, line.x1) > window.x1) continue;
      const y0 = y + (line.from.port ? line.from.y : line.from.passes ? lines.top : line.from.y + line.from.h);
      const drawnLine = [x + line.x0, y0, straight ? null : y + lines.floor, x + line.x1, y + lines.bottom];
      const color = looks.marked(line.value);
      if (!color) plainly.push(drawnLine);
      else if (marked.has(color)) marked.get(color).push(drawnLine);
      else marked.set(color, [drawnLine]);
    }
    if (HIGH * scale >= 20) for (const label of labelsOf(lines))
      if (x + label.x < window.x1 && x + label.x + label.words.length * 6 > window.x0) labels.push([x + label.x, y + lines.floor + 12 + 11 * label.row, label.words]);
  };
  let pixel = NaN;
  const seen = [];
  for (let at = Math.max(0, first - 1); at < ranks.length && y + ranks[at].y <= window.y1 + BETWEEN; at++) {
    const now = Math.floor((y + ranks[at].y) * scale);
    if (ranks[at].h * scale < 1 && now === pixel) continue;
    pixel = now;
    seen.push(at);
    between(gaps[at]);
  }
  if (gaps.length && y + box.h >= window.y0 && y + box.h - BETWEEN <= window.y1) between(gaps[gaps.length - 1]);
  for (const line of [...box.long, ...box.backward]) {
    const y0 = y + line.from.y + line.from.h, y1 = y + line.to.y;
    if (Math.min(y0, y1) > window.y1 || Math.max(y0, y1) < window.y0) continue;
    const color = looks.marked(line.value), one = [x + line.x0, y0, y0 + 6, x + line.x1, y1];
    if (color) marked.set(color, [...(marked.get(color) || []), one]); else plainly.push(one);
  }
  pen.lines(plainly, ink.soft, Math.max(1, 0.8 / scale));
  for (const [color, lines] of marked) pen.lines(lines, color, Math.max(2.5, 2 / scale));
  for (const [left, top, words] of labels) pen.text(left, top, words, ink.soft, 10);
  for (const at of seen) {
    const { cells } = ranks[at];
    let column = NaN;
    for (let n = lowest(cells, (cell) => x + cell.x + cell.w / 2 >= window.x0); n < cells.length; n++) {
      const cell = cells[n], left = x + cell.x - cell.w / 2, top = y + cell.y;
      if (left > window.x1) break;
      if (cell.passes || left + cell.w < window.x0) continue;
      if (cell.inner) { paint(pen, cell.inner, left, top, window, scale, looks); continue; }
      const now = Math.floor(left * scale);
      if (cell.w * scale < 1 && now === column) continue;
      column = now;
      const look = looks.look(cell.what);
      pen.begin([look.label, look.second].filter(Boolean).join(", "));
      pen.rect(left, top, cell.w, cell.h, look.fill || ink.paper, HIGH * scale >= 2 || look.stroke ? look.stroke || ink.line : null, look.width);
      if (detailed) pen.text(left + 6, top + 15, cut(look.label, cell.w), look.ink || ink.ink, 11, Boolean(cell.what.groups));
      if (look.second && HIGH * scale >= 16) pen.text(left + 6, top + 29, cut(look.second, cell.w, 6), look.ink || ink.soft, 10);
      pen.end();
    }
  }
}
const depthOf = (at) => (at.parent ? 1 + depthOf(at.parent) : 0);
/** The innermost item at a point: a cell's `what`, or the group whose title is there. */
function hit(box, x, y) {
  for (const rank of box.ranks) {
    if (y < rank.y || y > rank.y + rank.h) continue;
    for (const cell of rank.cells) {
      if (cell.passes || Math.abs(x - cell.x) > cell.w / 2 || y < cell.y || y > cell.y + cell.h) continue;
      return cell.inner ? hit(cell.inner, x - cell.x + cell.w / 2, y - cell.y) || cell.what : cell.what;
    }
  }
  return null;
}
/** The position of every visible item: what → {x, y, w, h, rank, at}. */
function placesOf(box, x = 0, y = 0, found = new Map()) {
  for (const [number, rank] of box.ranks.entries()) for (const cell of rank.cells) {
    if (cell.passes) continue;
    found.set(cell.what, { x: x + cell.x - cell.w / 2, y: y + cell.y, w: cell.w, h: cell.h, box, number });
    if (cell.inner) placesOf(cell.inner, x + cell.x - cell.w / 2, y + cell.y, found);
  }
  return found;
}
