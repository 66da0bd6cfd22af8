// A level as a graph: nodes (ops, inputs, outputs) and values with their types, read from its text.
const NAMES = /%[\w$.-]+/g;
const shapeOf = (type) => {
  const found = /^tensor<(.*)>$/.exec(type);
  if (!found) return type;
  const sizes = found[1].replace(/, .*$/, "").split("x"), element = sizes.pop();
  return `${sizes.join("×") || "scalar"}${element === "f32" ? "" : " " + element}`;
};
const WIDTHS = { index: 8 };
/** Bytes of a type, NaN if a size is dynamic. `tensor<2x3xf32>` → 24. */
function bytesOf(type) {
  const found = /^tensor<((?:[?\d]+x)*)(\w+|![^,>]*<.*)/.exec(type);
  if (!found) return NaN;
  const bits = /\d+/.exec(found[2].replace(/^![\w.]+</, ""));
  const wide = WIDTHS[found[2]] ?? (bits ? Math.max(1, Number(bits[0]) / 8) : NaN);
  return found[1].split("x").slice(0, -1).reduce((product, size) => product * Number(size), wide);
}
/** `(a, b<c, d>)` → ["a", "b<c, d>"]; `a` → ["a"]. */
function typesIn(list) {
  const inner = list.startsWith("(") ? list.slice(1, -1) : list, found = [];
  let depth = 0, start = 0;
  for (let at = 0; at < inner.length; at++) {
    if ("(<[".includes(inner[at])) depth++;
    else if (">)]".includes(inner[at]) && inner[at - 1] !== "-") depth--;
    else if (inner[at] === "," && !depth) { found.push(inner.slice(start, at).trim()); start = at + 1; }
  }
  return [...found, inner.slice(start).trim()].filter(Boolean);
}
function resultTypes(whole) {
  const arrow = whole.lastIndexOf(" -> "), colon = whole.lastIndexOf(" : ");
  return arrow < 0 && colon < 0 ? [] : typesIn(arrow < 0 ? whole.slice(colon + 3) : whole.slice(arrow + 4));
}
/** {nodes, byRow, methods}. A node has kind, row, label, `reads` and `gives` (values); a value has
    its maker, its readers and its type. What stands for another value (an argument of a region, the
    result of an op with one) is that value; weights are nodes that are drawn on demand. */
function graphOf(level) {
  if (level.graph) return level.graph;
  const nodes = [], byRow = new Map(), opened = [], methods = [];
  let known = new Map(), method = "", number = 0;
  const value = (maker, type) => { const made = { maker, type, readers: [] }; maker.gives.push(made); return made; };
  const node = (kind, row, label) => {
    const made = { kind, row, label, method, reads: [], gives: [], names: [], id: "", index: nodes.length, key: row >= 0 ? `o${level.lines[row][OP]}` : "" };
    nodes.push(made);
    return made;
  };
  const read = (reader, held) => { if (held && !reader.reads.includes(held)) { reader.reads.push(held); held.readers.push(reader); } };
  level.lines.forEach((line, row) => {
    const whole = text(line[TEXT]);
    if (line[OP] < 0) {
      const named = [...whole.matchAll(/(%[\w$.-]+): /g)];
      if (line[DEPTH] === 0 && whole.endsWith("{")) {
        known = new Map(); number = 0;
        method = (/@([\w$.-]+)/.exec(whole) || ["", ""])[1];
        methods.push(method);
        const types = typesIn(whole.slice(whole.indexOf("("), whole.lastIndexOf(") ->") + 1));
        named.forEach((found, at) => {
          const made = node("input", -1, found[1].slice(1));
          Object.assign(made, { key: `i${methods.length - 1}.${at}`, id: `input${at}`, names: [found[1], found[1].slice(1)] });
          known.set(found[1], value(made, (types[at] || "").replace(/^%[\w$.-]+: /, "")));
        });
      } else if (opened.length && whole.startsWith("^")) {
        const operands = opened[opened.length - 1].operands;
        named.forEach((found, at) => { if (operands[at]) known.set(found[1], operands[at]); });
      } else if (whole === "}" && opened.length && line[DEPTH] > 0) {
        const { results, last } = opened.pop();
        results.forEach((name, at) => { if (last[at]) known.set(name, last[at]); });
      }
      return;
    }
    const head = /^(%[\w$.-]+(?:, %[\w$.-]+)*) = /.exec(whole);
    const results = head ? head[1].split(", ") : [];
    const operands = ((head ? whole.slice(head[0].length) : whole).match(NAMES) || []).map((name) => known.get(name)).filter(Boolean);
    const next = level.lines[row + 1], ends = !results.length && opened.length && next && next[OP] < 0;
    if (ends) { opened[opened.length - 1].last = operands; return; } // What it reads is what its op gives.
    const id = `op${number++}`;
    if (whole.endsWith("{")) { opened.push({ results, operands, last: [] }); return; }
    if (!results.length && text(line[NAME]).endsWith("return") && line[DEPTH] === 1) {
      operands.forEach((held, at) => { const made = node("output", -1, `output ${at}`); Object.assign(made, { key: `r${methods.length - 1}.${at}`, id }); read(made, held); });
      return;
    }
    const made = node(text(line[NAME]) === "stepwell.weight" ? "weight" : "op", row, text(line[NAME]).replace(/\.default$/, ""));
    if (made.kind === "weight") made.label = (/<"([^"]*)">/.exec(whole) || ["", results[0].slice(1)])[1];
    Object.assign(made, { id, names: results.flatMap((name) => [name, name.slice(1)]) });
    byRow.set(row, made);
    for (const held of operands) read(made, held);
    const types = resultTypes(whole);
    results.forEach((name, at) => known.set(name, value(made, types[at] || "")));
  });
  for (const held of nodes) {
    const name = held.row >= 0 && held.kind === "op" ? text(level.lines[held.row][NODE]) : "";
    held.second = name || [...held.gives, ...(held.kind === "output" ? held.reads : [])].map((one) => shapeOf(one.type)).join(", ");
  }
  level.graph = { nodes, byRow, methods, byKey: new Map(nodes.map((held) => [held.key, held])) };
  return level.graph;
}
