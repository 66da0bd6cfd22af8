// Tables: every column sorts, a search filters all rows, and rows that are not drawn yet are counted.
const FIRST = 500;
const plain = (cell) => (cell instanceof Node ? cell.textContent : cell === null || cell === undefined ? "" : String(cell));
const tables = [];
/** heads: "#name" for numbers. rows: arrays of cells, a cell a string, a number or a function that
    makes an element (called when the row is drawn); `keys` gives what a row sorts and is found by. */
function table(id, heads, rows, keys) {
  const body = make("tbody"), more = make("p");
  const element = make("div", { class: "scroll" });
  const held = rows.map((cells, at) => ({ cells, keys: keys ? keys[at] : cells.map((c) => (typeof c === "function" ? plain(c()) : c)) }));
  let shown = FIRST;
  const found = () => {
    const wanted = view.q.toLowerCase();
    const kept = wanted ? held.filter((row) => row.keys.some((k) => plain(k).toLowerCase().includes(wanted))) : [...held];
    const [table, column, direction] = view.sort.split(":");
    if (table === id) {
      const sign = direction === "d" ? -1 : 1, at = Number(column);
      const number = (value) => (typeof value === "number" ? value : parseFloat(plain(value).replace(/,/g, "")));
      const numbers = heads[at].startsWith("#");
      kept.sort((a, b) => sign * (numbers ? (number(a.keys[at]) || 0) - (number(b.keys[at]) || 0) : plain(a.keys[at]).localeCompare(plain(b.keys[at]), "en", { numeric: true })));
    }
    return kept;
  };
  const draw = () => {
    const kept = found();
    const [name, column, direction] = view.sort.split(":");
    const head = make("tr", {}, ...heads.map((h, at) => {
      const is = name === id && Number(column) === at;
      const next = `${id}:${at}:${is && direction === "a" ? "d" : is ? "a" : h.startsWith("#") ? "d" : "a"}`;
      const label = h.replace("#", "");
      const button = label ? make("button", { onclick: () => { go({ sort: next }); } }, label + (is ? (direction === "d" ? " ↓" : " ↑") : "")) : "";
      return make("th", { scope: "col", class: h.startsWith("#") ? "number" : null, "aria-sort": is ? (direction === "d" ? "descending" : "ascending") : null }, button);
    }));
    body.replaceChildren(...kept.slice(0, shown).map((row) => make("tr", {}, ...row.cells.map((cell, i) =>
      make("td", { class: heads[i].startsWith("#") ? "number" : null, "data-label": heads[i].replace("#", "") }, typeof cell === "function" ? cell() : cell ?? "")))));
    element.replaceChildren(make("table", {}, make("thead", {}, head), body), more);
    more.replaceChildren(...(kept.length > shown ? [
      `${shown.toLocaleString("en")} of ${counted(kept.length, "row")} are drawn. `,
      make("button", { onclick: () => { shown += 2000; draw(); } }, "2,000 more"), " ",
      make("button", { onclick: () => { shown = kept.length; draw(); } }, "all of them"),
    ] : kept.length < held.length ? [`${kept.length.toLocaleString("en")} of ${counted(held.length, "row")} match the search.`] : []));
  };
  tables.push({ element, draw });
  draw();
  return element;
}
const fateText = (fate) => {
  const became = fate.became.map(([name, count]) => name + (count > 1 ? `×${count}` : "")).join(", ");
  const whole = make("span", {}, chip(fate.where), " " + (became || (fate.into ? "into " + fate.into : "")));
  for (const reason of fate.why) whole.append(make("div", { class: "reason" }, reason));
  return whole;
};
function drawFates() {
  const only = view.kind;
  const kinds = [...new Set(story.fates.map((f) => f.where.split(" ")[0]))];
  const filters = make("div", { class: "filters" }, ...["all", ...kinds].map((kind) =>
    make("a", { href: address({ kind, tab: "fates" }), "aria-current": String(kind === only) },
      kind === "all" ? `all ${story.fates.length}` : `${kind} ${story.fates.filter((f) => f.where.startsWith(kind)).length}`)));
  const total = story.fates.reduce((sum, f) => sum + f.cost, 0) || 1;
  const shown = story.fates.filter((f) => only === "all" || f.where.startsWith(only));
  if (mostTime) shown.sort((a, b) => (story.times[b.node] || 0) - (story.times[a.node] || 0));
  const timed = (f) => (mostTime ? [(story.times[f.node] || 0).toFixed(3)] : []);
  const spoken = (f) => `${f.where} ${f.became.map((b) => b[0]).join(" ")} ${f.into || ""} ${f.why.join(" ")}`;
  $("fates").replaceChildren(make("h2", {}, "The fate of each op of the model, the " + (mostTime ? "slowest" : "heaviest") + " first"), filters,
    table("fates", [...(mostTime ? ["#ms"] : []), "#% of work", "op", "node", "where", "by", "module", "source line"],
      shown.map((f) => [...timed(f), ((100 * f.cost) / total).toFixed(1), f.op, () => toNode(f.node, f.node), () => fateText(f), f.by.join(", "), f.path, f.line]),
      shown.map((f) => [...timed(f), f.cost, f.op, f.node, spoken(f), f.by.join(", "), f.path, f.line])));
}
function drawSteps() {
  const report = story.report;
  let at = 0;
  const numbered = report.steps.map((s) => [...s, s[1] ? ++at : -1]);
  $("steps").replaceChildren(make("h2", {}, `Steps to ${report.target}`),
    table("steps", ["step", "#applied", "#ops after", "#ms"],
      numbered.map(([name, applied, seconds, ops, number]) => [
        number < 0 ? name : () => make("a", { href: address(step(number)) }, name), applied, ops, (seconds * 1e3).toFixed(1)]),
      numbered.map(([name, applied, seconds, ops]) => [name, applied, ops, seconds])),
    make("h2", {}, "Left to the runtime's kernels"),
    report.outside.length ? table("outside", ["op", "#count"], report.outside) : make("p", {}, "nothing"),
    make("h2", {}, "Refused"),
    table("refused", ["rewrite", "op", "where", "because"],
      report.refusals.map((r) => [r[0], r[1], r[2] ? () => toNode(r[2], r[3] || r[2]) : r[3], r[4]]),
      report.refusals.map((r) => [r[0], r[1], r[3] || r[2], r[4]])));
}
const valuesOf = ([, , , , numbers]) => (numbers.length ? [...numbers.slice(0, 3).map(short), numbers[3].map(short).join(", ")] : ["", "", "", ""]);
function drawWeights() {
  const rows = story.weights, total = rows.reduce((sum, w) => sum + w[3], 0);
  const group = (key) => {
    const sums = new Map();
    for (const row of rows) {
      const held = sums.get(key(row)) || [0, 0];
      sums.set(key(row), [held[0] + 1, held[1] + row[3]]);
    }
    return [...sums.entries()];
  };
  const bars = (id, title, entries) => {
    const most = Math.max(1, ...entries.map(([, v]) => v[1]));
    const bar = (size) => () => { const e = make("div", { class: "bar" }); e.style.width = ((100 * size) / most).toFixed(1) + "%"; return e; };
    return [make("h2", {}, title), table(id, ["", "#weights", "#bytes", ""],
      entries.map(([k, [count, size]]) => [k, count, bytes(size), bar(size)]),
      entries.map(([k, [count, size]]) => [k, count, size, size]))];
  };
  const sized = group((w) => Math.floor(Math.log2(Math.max(1, w[3])))).sort((a, b) => a[0] - b[0]);
  $("weights").replaceChildren(
    make("h2", {}, `${counted(rows.length, "weight")}, ${bytes(total)}`),
    ...bars("types", "By element type", group((w) => w[1]).sort((a, b) => b[1][1] - a[1][1])),
    ...bars("sizes", "By size", sized.map(([k, v]) => [`${bytes(2 ** k)} – ${bytes(2 ** (k + 1))}`, v])),
    make("h2", {}, "Each"),
    table("each", ["key", "type", "shape", "#bytes", "#least", "#greatest", "#mean", "begins"], rows.map((w) => [w[0], w[1], w[2], w[3].toLocaleString("en"), ...valuesOf(w)]), rows.map((w) => [...w.slice(0, 4), ...valuesOf(w)])));
}
