// The story, helpers, and the view as part of the URL: Back and a shared link restore it.
const story = JSON.parse(document.getElementById("story").textContent);
const OP = 0, TEXT = 1, DEPTH = 2, NAME = 3, NODE = 4, SOURCE = 5, PATH = 6, DELEGATE = 7;
const $ = (id) => document.getElementById(id);
const text = (number) => (number < 0 ? "" : story.texts[number]);
const put = (element, attributes) => {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.onclick = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  return element;
};
const make = (tag, attributes = {}, ...children) => {
  const element = put(document.createElement(tag), attributes);
  element.append(...children);
  return element;
};
const drawn = (tag, attributes = {}, ...children) => {
  const element = put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
  element.append(...children);
  return element;
};
const bytes = (n) =>
  n >= 1e6 ? (n / 1e6).toFixed(1) + " MB" : n >= 1e3 ? (n / 1e3).toFixed(1) + " kB" : n + " B";
const counted = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const hue = (delegate) => `hsl(${(delegate * 67 + 205) % 360} 60% 50%)`;
const color = (where) =>
  where.startsWith("delegate") ? hue(Number(where.split(" ")[1])) :
  { kernel: "#b54708", split: "#b54708", backend: "hsl(205 60% 45%)" }[where] || "#667085";
const mostTime = Math.max(0, ...Object.values(story.times));
const narrow = () => window.matchMedia("(max-width: 760px)").matches;

// ---- the view -----------------------------------------------------------------------------
const DEFAULTS = {
  tab: "levels", left: Math.max(0, story.beside), right: story.levels.length - 1, side: "", op: -1, q: "", changes: 0,
  weights: 0, short: 0, wrap: narrow() ? 1 : 0, linked: 1, kind: "all", sort: "", app: 0, level: story.levels.length - 1,
  open: "", beside: story.beside, over: "", pick: "", where: "", cam: "",
};
let view = { ...DEFAULTS };
const address = (changed = {}) => {
  const wanted = { ...view, ...changed };
  const parts = Object.entries(wanted).filter(([key, value]) => String(value) !== String(DEFAULTS[key]) || key === "tab");
  return "#" + parts.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
};
// Navigation adds an entry to the history; typing and ticking change the current one.
const go = (changed) => { location.hash = address(changed); };
const amend = (changed) => {
  view = { ...view, ...changed };
  history.replaceState(null, "", address());
};
function parsed() {
  const hash = location.hash.slice(1);
  const found = { ...DEFAULTS };
  if (!hash.includes("=")) { // The form #levels/linear_2: a tab, a node.
    const [tab, node] = decodeURIComponent(hash).split("/");
    if (tab) found.tab = tab;
    if (node) Object.assign(found, placeOf(node));
    return found;
  }
  for (const part of hash.split("&")) {
    const [key, value] = [part.slice(0, part.indexOf("=")), decodeURIComponent(part.slice(part.indexOf("=") + 1))];
    if (key in DEFAULTS) found[key] = typeof DEFAULTS[key] === "number" ? Number(value) || 0 : value;
  }
  const last = story.levels.length - 1;
  for (const key of ["left", "right", "level", "beside"]) found[key] = Math.min(Math.max(key === "beside" ? -1 : 0, found[key]), last);
  return found;
}
// The line of a node of the model before the first pass.
function placeOf(node) {
  const number = story.texts.indexOf(node);
  const line = story.levels[0].lines.find((l) => l[NODE] === number && number >= 0);
  return line ? { tab: "levels", left: 0, right: story.levels.length - 1, side: "left", op: line[OP] } : { tab: "levels" };
}
const toNode = (node, ...label) => make("a", { href: address(placeOf(node)) }, ...label);

// ---- levels: users of values, computed once for each level --------------------------------
for (const level of story.levels) {
  level.ops = new Set(level.lines.map((line) => line[OP]));
  level.nodes = new Map();
  level.rowOf = new Map();
  level.lines.forEach((line, row) => {
    if (line[NODE] >= 0 && !level.nodes.has(line[NODE])) level.nodes.set(line[NODE], row);
    if (line[OP] >= 0) level.rowOf.set(line[OP], row);
  });
}
function links(level) {
  if (level.users) return level;
  level.users = level.lines.map(() => []);
  level.reads = level.lines.map(() => []);
  let defines = new Map();
  level.lines.forEach((line, row) => {
    const whole = text(line[TEXT]);
    if (line[OP] < 0) {
      if (line[DEPTH] === 0) defines = new Map();
      return;
    }
    const equals = whole.indexOf(" = ");
    const results = equals < 0 ? [] : whole.slice(0, equals).match(/%[\w$.-]+/g) || [];
    const used = new Set((equals < 0 ? whole : whole.slice(equals)).match(/%[\w$.-]+/g) || []);
    for (const name of used) {
      const from = defines.get(name);
      if (from !== undefined) { level.users[from].push(row); level.reads[row].push(from); }
    }
    for (const name of results) defines.set(name, row);
  });
  return level;
}
const chip = (where) => { const e = make("span", { class: "chip" }, where); e.style.borderLeftColor = color(where); return e; };
