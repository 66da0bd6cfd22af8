// Numbers on the graph: time, work, bytes, difference from eager, and the user's own JSON.
const nodeOf = (level, what) => (what.row >= 0 ? text(level.lines[what.row][NODE]) : "");
const short = (value) => (typeof value !== "number" ? String(value) : value === 0 ? "0" : Math.abs(value) < 0.001 || Math.abs(value) >= 1e6 ? value.toExponential(1) : String(Number(value.toPrecision(3))));
const ofNode = (values) => (level, what) => values[nodeOf(level, what)];
const costs = Object.fromEntries(story.fates.map((fate) => [fate.node, fate.cost]));
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const greatest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);
/** name, unit(value), value of a node at a level; `fold` makes a group's of its nodes'. A value that is
    a node's of the model counts once in a group, however many ops that node became. */
const overlays = [
  { id: "", name: "delegates", of: () => undefined },
  ...(mostTime ? [{ id: "time", name: "time a call", of: ofNode(story.times), said: (v) => `${short(v)} ms`, fold: total, ofModel: true }] : []),
  ...(story.fates.some((fate) => fate.cost) ? [{ id: "work", name: "work", of: ofNode(costs), said: (v) => `${short(v)} ops`, fold: total, ofModel: true }] : []),
  { id: "bytes", name: "bytes written", of: (level, what) => { const sum = total(what.gives.map((value) => bytesOf(value.type))); return what.kind === "op" && sum >= 0 ? sum : undefined; }, said: bytes, fold: total },
  ...(Object.keys(story.differences).length ? [{ id: "difference", name: "difference from eager", of: ofNode(story.differences), said: short, fold: greatest, ofModel: true, logarithmic: true }] : []),
];
/** Model Explorer's node data: one graph's `results`, or graphs by name (and those by model). Keys are
    names of nodes, of values (`%linear_2`), or the ids that \`stepwell show --model-explorer\` writes. */
function overlayFrom(json, name) {
  const graphs = (held) => (held && held.results ? [held] : held && typeof held === "object" ? Object.values(held).flatMap(graphs) : []);
  const all = graphs(json);
  if (!all.length) throw new Error("no `results` in it: {\"results\": {\"linear_2\": {\"value\": 0.5}}} is the least");
  const results = Object.assign({}, ...all.map((one) => one.results)), [{ thresholds, gradient }] = all;
  const entry = (level, what) => {
    const found = [nodeOf(level, what), what.id, ...what.names].map((key) => results[key]).find((held) => held !== undefined);
    return found && typeof found === "object" ? found : found === undefined ? undefined : { value: found };
  };
  const colors = (value) => {
    const limit = typeof value === "number" && thresholds && (thresholds.find((one) => value <= one.value) || thresholds[thresholds.length - 1]);
    return limit || null;
  };
  return {
    id: `own:${name}`, name: all[0].name || name, said: short, fold: total, gradient,
    of: (level, what) => entry(level, what)?.value,
    style: (level, what) => { const held = entry(level, what); return held && (held.bgColor ? held : colors(held.value)); },
  };
}
for (const [name, json] of Object.entries(story.overlays)) {
  try { overlays.push(overlayFrom(json, name)); } catch { /* The command that wrote the page has said why. */ }
}
const overlayNow = () => overlays.find((one) => one.id === view.over) || overlays[0];
/** Value of a node or group, and the range over all nodes of a level. */
function laidOver(level, nesting, overlay) {
  const single = new Map(), whole = new Map();
  for (const node of nesting.home.keys()) { const value = overlay.of(level, node); if (value !== undefined) single.set(node, value); }
  const folded = (at) => {
    if (!overlay.fold) return undefined;
    if (whole.has(at)) return whole.get(at);
    const once = new Map();
    for (const node of within(at)) {
      const value = single.get(node);
      if (typeof value === "number") once.set(overlay.ofModel ? nodeOf(level, node) : node, value);
    }
    whole.set(at, once.size ? overlay.fold([...once.values()]) : undefined);
    return whole.get(at);
  };
  const all = [...single.values()].filter((value) => typeof value === "number");
  const least = all.reduce((a, b) => Math.min(a, b), Infinity), most = greatest(all);
  const part = (value) => {
    if (!(most > least)) return value > 0 ? 1 : 0;
    if (overlay.logarithmic) return value <= 0 ? 0 : Math.max(0, 1 + Math.log10(value / most) / 8);
    return Math.min(1, Math.max(0, (value - Math.min(0, least)) / (most - Math.min(0, least))));
  };
  return { of: (what) => (what.groups ? folded(what) : single.get(what)), part, least, most, count: single.size };
}
const contrasting = (color, ink) => {
  const channel = (v) => (v / 255 <= 0.03928 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = numbers(color).map(channel), light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return ink || (light > 0.18 ? "#000" : "#fff");
};
/** A color in any notation as the browser resolves it: `gold` → `rgb(255, 215, 0)`. */
function resolved(color) {
  const probe = make("span");
  probe.style.color = color;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
function fillOf(overlay, laid, value, style, ink) {
  if (style && style.bgColor) { const fill = resolved(style.bgColor); return { fill, ink: contrasting(fill, style.textColor) }; }
  if (typeof value !== "number") return {};
  const part = laid.part(value), stops = overlay.gradient;
  if (!stops || !stops.length) return { fill: mixed(ink.paper, ink.hot, part) };
  const next = stops.findIndex((stop) => stop.stop >= part), high = stops[next < 0 ? stops.length - 1 : next], low = stops[Math.max(0, (next < 0 ? stops.length : next) - 1)];
  const fill = mixed(resolved(low.bgColor || "white"), resolved(high.bgColor || "white"), high.stop > low.stop ? (part - low.stop) / (high.stop - low.stop) : 0);
  return { fill, ink: contrasting(fill, high.textColor) };
}
