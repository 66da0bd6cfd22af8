"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const EXAMPLE = `rule gelu-by-hand
    What gelu is, over the reals.
Before:
    %y = aten.gelu.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %a = aten.mul.Scalar(%x, 0.7071067811865476)
    %b = aten.erf.default(%a)
    %c = aten.add.Scalar(%b, 1)
    %d = aten.mul.Scalar(%x, 0.5)
    %y = aten.mul.Tensor(%d, %c)
where is_single_or_double($E)
bound 1e-5 relative, 1e-6 absolute: "roundings of five ops"
for $S = [2, 3]
`;
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element[key] = value;
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
};

// ---- the settings, and the result ---------------------------------------------------------
let asked = null, result = null, found = [], gaps = null;
let usual = {};  // Of each target: how far ops are from eager by its own steps.
let past = [], tab = "text", busy = 0, comparing = 0, line = Promise.resolve(), opened = new Set(), chosen = null, replacing = null, filtered = "all";

async function ask(action, given, raw) {
  const answer = await fetch(action, {
    method: "POST",
    headers: { "X-Stepwell-Token": token, "Content-Type": raw ? "application/octet-stream" : "application/json" },
    body: raw ? given : JSON.stringify(given),
  });
  if (!answer.ok) {
    const said = await answer.text();
    let problems;
    try { problems = JSON.parse(said).problems; } catch { problems = [{ fact: said }]; }
    throw Object.assign(new Error(problems[0].fact), { problems });
  }
  return answer.headers.get("Content-Type") === "application/json" ? answer.json() : answer.blob();
}
function complain(error) {
  const problems = error ? error.problems || [{ fact: String(error) }] : [];
  $("problems").hidden = !problems.length;
  $("problems").textContent = problems
    .map((p) => p.fact + (p.where ? `\n  at ${p.where}` : "") + (p.help ? `\n  help: ${p.help}` : "")).join("\n");
  const line = problems.map((p) => /^edited:(\d+)/.exec(p.where || "")).find(Boolean);
  if (line) toLine(Number(line[1]));
}
function toLine(number) {
  const lines = $("text").value.split("\n");
  const start = lines.slice(0, number - 1).reduce((sum, line) => sum + line.length + 1, 0);
  $("text").focus();
  $("text").setSelectionRange(start, start + (lines[number - 1] || "").length);
  $("text").scrollTop = (number - 4) * 18;
}
// Requests run one after another; `busy` and `comparing` notify a waiting caller, such as a test.
function count(works, compares) {
  [busy, comparing] = [busy + works, comparing + compares];
  document.body.dataset.busy = busy || comparing ? "yes" : "";
}
function work(what, action) {
  count(1, 0);
  line = line.then(() => run(what, action));
  return line;
}
async function run(what, action) {
  $("summary").textContent = what + " …";
  const begun = performance.now();
  try {
    complain(null);
    await action();
    document.body.dataset.took = Math.round(performance.now() - begun);
  } catch (error) {
    complain(error);
    $("summary").textContent = "not done";
  } finally {
    document.body.dataset.ready = "yes";
    count(-1, 0);
  }
}
// `change` is asked when its turn has come: what came before it may have changed the settings.
const lower = (change, what = "lowering") => work(what, async () => {
  const wanted = { ...asked, ...change() };
  take(await ask("lower", wanted), wanted);
  compare();
});
function take(made, wanted) {
  if (asked && JSON.stringify([asked.edits, asked.target, asked.options, asked.rules]) !== JSON.stringify([wanted.edits, wanted.target, wanted.options, wanted.rules])) past.push(asked);
  [result, asked, gaps] = [made, made.asked, null];
  draw();
}
// Nothing waits for the comparison; that of an older result is dropped.
async function compare() {
  const [of, settings] = [result, asked];
  let made;
  count(0, 1);
  say();
  try {
    made = await ask("compare", settings);
    if (!settings.edits.length && settings.text === null && !settings.options.length) usual[settings.target] = made.nodes;
  } catch (error) {
    made = { nodes: {}, outputs: [], refused: error.problems ? error.problems[0].fact : String(error) };
  }
  if (of === result) {
    gaps = made;
    drawView();
    if (!busy) say();
  }
  count(0, -1);
}
function say() {
  const outside = result.outside.reduce((sum, [, count]) => sum + count, 0);
  const worst = gaps && gaps.outputs.length ? Math.max(...gaps.outputs.map((o) => (o.most === null ? 0 : o.most))) : null;
  $("summary").textContent = `${result.delegates} delegate${result.delegates === 1 ? "" : "s"}, ${outside} ops outside, ` +
    `${result.seconds.toFixed(2)} s` + (gaps === null ? "; comparing outputs with eager PyTorch …"
      : worst === null ? "" : `, outputs at most ${worst.toExponential(1)} from eager`);
}

// ---- left: the program ---------------------------------------------------------------------
function draw() {
  const options = [["", "the source program"], ...result.stages.slice(1).map((s) => [s, s])];
  const steps = result.steps.filter((s) => !s.off && s.applied).map((s) => [s.path, `… ${s.name}`]);
  if (asked.at && ![...options, ...steps].some(([value]) => value === asked.at)) steps.unshift([asked.at, asked.at]);
  $("at").replaceChildren(...options.map(option), make("optgroup", { label: "a step" }, ...steps.map(option)));
  $("at").value = asked.at;
  $("target").value = asked.target;
  $("options").value = asked.options.join(" ");
  if ($("text").value !== result.left) $("text").value = result.left;
  $("rules").value = asked.rules || $("rules").value;
  $("drop").hidden = asked.text === null;
  typed();
  drawSteps();
  drawFound();
  drawView();
  say();
}
const option = ([value, label]) => make("option", { value }, label);
function typed() {
  const changed = $("text").value !== result.left;
  $("text").classList.toggle("changed", changed);
  $("take").disabled = !changed;
  const where = asked.text_at || "the original program";
  $("edit-note").textContent = changed ? "changed: Ctrl+Enter goes on from it"
    : asked.text !== null ? `edited after ${where}` : "";
}
function goOn() {
  if ($("take").disabled) return;
  const edited = { text: $("text").value, text_at: asked.at };
  lower(() => edited, "lowering the edited text");
}

// ---- middle: the steps ---------------------------------------------------------------------
const edit = (kind, said) => lower(() => ({ edits: [...asked.edits, [kind, said]] }), `${kind} ${said}`);
const isOff = (path) => asked.edits.some(([kind, said]) => kind === "without" && said === path);
function toggle(row) {
  if (row.off && !isOff(row.path)) return;
  const others = () => asked.edits.filter(([kind, said]) => !(kind === "without" && said === row.path));
  lower(() => ({ edits: isOff(row.path) ? others() : [...asked.edits, ["without", row.path]] }), `${row.name} ${row.off ? "on" : "off"}`);
}
const siblings = (path) => [result.steps, ...result.steps.map((step) => step.parts)]
  .find((rows) => rows.some((row) => row.path === path)) || [];
function move({ path, name }, by) {
  chosen = path;
  lower(() => {
    const rows = siblings(path), other = rows[rows.findIndex((row) => row.path === path) + by];
    const [first, second] = by < 0 ? [path, other] : [other, path];
    const at = (place) => place.path || place;
    return other ? { edits: [...asked.edits, ["move", `${at(first)}=${at(second)}`]] } : {};
  }, `moving ${name}`);
}
function remove(row) {
  const rule = asked.edits.find(([kind, said]) => kind !== "without" && said.endsWith(`=${row.name}`));
  if (!rule) return toggle(row);
  const isOther = ([, said]) => !said.split(/[=,]/).some((word) => word.replace(/^\//, "") === row.name);
  const without = (rules) => rules.split(/^(?=rule )/m).filter((part) => !part.startsWith(`rule ${row.name}\n`)).join("");
  found = found.filter((one) => one.name !== row.name);
  lower(() => ({ edits: asked.edits.filter(isOther), rules: without(asked.rules) }), `without ${row.name}`);
}
function replace(row) {
  replacing = row;
  $("replace").hidden = false;
  $("replace-what").textContent = `Replace ${row.name} by`;
  $("replace-with").value = "";
  $("replace-with").focus();
}
const shownRows = () => result.steps.flatMap((row) => (opened.has(row.path) ? [row, ...row.parts] : [row]));
function drawSteps() {
  const rows = shownRows();
  if (!rows.some((row) => row.path === chosen)) chosen = rows.length ? rows[0].path : null;
  const inside = $("steps").contains(document.activeElement);
  $("steps").replaceChildren(...rows.map((row) => drawnStep(row)));
  if (inside) focusStep();
}
function drawnStep(row) {
  const isPart = !row.parts;
  const typedRule = asked.edits.some(([kind, said]) => kind !== "without" && kind !== "move" && said.endsWith(`=${row.name}`));
  const names = ["step", isPart && "part", row.off && "off", !row.applied && "idle", row.passed && "passed", typedRule && "own"];
  const did = row.off ? "off" : row.passed ? "behind it" : row.applied ? `${row.applied}×` + (row.ms === undefined ? "" : ` ${row.ms} ms`) : "";
  const button = (sign, label, act) => make("button", { tabindex: -1, title: label, "aria-label": `${label}: ${row.name}`, onclick: act }, sign);
  const element = make("div", {
    class: names.filter(Boolean).join(" "), role: "option", "aria-selected": String(!row.off), tabindex: row.path === chosen ? 0 : -1,
    "data-path": row.path, "aria-label": `${row.name}, ${row.off ? "off" : "on"}${did && !row.off ? ", " + did : ""}`,
  },
    make("span", { class: "what" }, (row.parts && row.parts.length ? (opened.has(row.path) ? "▾ " : "▸ ") : "") + row.name),
    make("span", { class: "did" }, did),
    button(row.off ? "on" : "off", row.off ? "Switch on" : "Switch off", () => toggle(row)),
    button("↑", "Move up", () => move(row, -1)), button("↓", "Move down", () => move(row, 1)),
    button("⇄", "Replace", () => replace(row)));
  element.querySelector(".what").onclick = () => { chosen = row.path; open(row); };
  return element;
}
function open(row) {
  if (row.parts && row.parts.length) opened.has(row.path) ? opened.delete(row.path) : opened.add(row.path);
  drawSteps();
  focusStep();
}
const focusStep = () => { const held = [...$("steps").children].find((e) => e.dataset.path === chosen); if (held) { held.tabIndex = 0; held.focus(); } };
$("steps").onkeydown = (event) => {
  const rows = shownRows(), at = rows.findIndex((row) => row.path === chosen), row = rows[at];
  if (!row || (event.target.tagName === "BUTTON" && event.key === "Enter")) return;
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const act = by && event.altKey ? () => move(row, by)
    : by ? () => walk(rows[at + by]) : event.key === "Home" ? () => walk(rows[0]) : event.key === "End" ? () => walk(rows[rows.length - 1])
    : { " ": () => toggle(row), Enter: () => open(row), r: () => replace(row), Delete: () => remove(row) }[event.key];
  if (!act || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  act();
};
function walk(row) {
  if (!row) return;
  for (const element of $("steps").children) element.tabIndex = -1;
  chosen = row.path;
  focusStep();
}

// ---- rules ---------------------------------------------------------------------------------
async function applyRules() {
  const text = $("rules").value;
  await work("testing the rule", async () => {
    const made = await ask("rule", { asked, text });
    found = made.rules;
    take(made.lowered, made.lowered.asked);
    $("rule-note").textContent = `${made.seconds.toFixed(2)} s`;
    $("found").scrollIntoView({ block: "nearest" });
    compare();
  });
  awaitProof(text);
}
async function awaitProof(text) {
  for (let tries = 0; tries < 200 && found.some((one) => one.proof === null); tries++) {
    await new Promise((done) => setTimeout(done, 400));
    if (!busy) {
      try {
        const verdicts = await ask("verdicts", { text });
        for (const one of found) one.proof = verdicts[one.name] ?? one.proof;
      } catch { return; }
      drawFound();
    }
  }
}
function drawFound() {
  $("found").replaceChildren(...found.flatMap((one) => {
    const made = result.pictures[one.name] || [];
    const row = result.steps.find((step) => step.name === one.name);
    const refused = result.refusals.filter((refusal) => refusal.rewrite === one.name);
    const wrong = one.wrong || /^refuted/.test(one.proof || "");
    return [
      make("div", { class: wrong ? "verdict wrong" : "verdict" }, make("b", {}, one.name), ` — ${one.variants}`,
        one.wrong ? make("div", { class: "reason" }, `wrong: ${one.wrong}`) : null,
        make("div", {}, one.proof === null ? "a solver is at it" : one.proof),
        make("div", {}, `applied ${row ? row.applied : 0}×` + (refused.length ? `, refused ${refused.length}×: ${refused[0].reason}` : ""))),
      ...made.slice(0, 3).map((one) => make("div", {},
        make("h3", {}, one.where || ""),
        ...one.before.map((p) => make("span", { class: p.changed ? "piece gone" : "piece" }, p.text)),
        ...one.after.filter((p) => p.changed).map((p) => make("span", { class: "piece come" }, p.text)))),
    ];
  }));
}

// ---- right: the result ---------------------------------------------------------------------
const VIEWS = { text: "Text", ops: "Ops", outputs: "Differences", report: "Report" };
function drawTabs() {
  $("tabs").replaceChildren(...Object.entries(VIEWS).map(([key, label]) => make("button", {
    role: "tab", id: `tab-${key}`, "aria-selected": String(tab === key), "aria-controls": "view", tabindex: tab === key ? 0 : -1,
    onclick: () => show(key),
  }, label)));
  $("view").setAttribute("aria-labelledby", `tab-${tab}`);
}
function show(key) { tab = key; drawTabs(); drawView(); }
$("tabs").onkeydown = (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], keys = Object.keys(VIEWS);
  if (!by) return;
  show(keys[(keys.indexOf(tab) + by + keys.length) % keys.length]);
  $(`tab-${tab}`).focus();
};
const number = (value) => (value === 0 ? "0" : Math.abs(value) < 1e-2 || Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toPrecision(3));
const isFar = (gap) => gap.most !== null && gap.most > 1e-3 * Math.max(gap.size, 1e-30);
// Far from eager by these changes: not by the target's own steps alone.
function isNew(gap) {
  const before = (usual[asked.target] || {})[gap.node];
  return isFar(gap) && !(before && isFar(before));
}
function gapCell(gap) {
  if (!gap) return make("td", { class: "number", "data-label": "from eager" });
  const text = gap.most === null ? gap.note : `${number(gap.most)} of ${number(gap.size)}` + (gap.note ? ` (${gap.note})` : "");
  return make("td", { class: isNew(gap) ? "number far" : "number", "data-label": "from eager" }, text);
}
function drawView() {
  if (!result) return;
  $("view").replaceChildren(...{ text: viewText, ops: viewOps, outputs: viewOutputs, report: viewReport }[tab]());
}
function viewText() {
  const held = new Set(result.left.split("\n").map((line) => line.trim()));
  const lines = result.right.split("\n").map((line) => make("span", { class: held.has(line.trim()) || !line.trim() ? null : "come" }, line || " "));
  return [make("div", { class: "listing", "data-view": "text" }, ...lines)];
}
function viewOps() {
  const total = result.ops.reduce((sum, op) => sum + op.cost, 0) || 1;
  const kinds = ["all", ...new Set(result.ops.map((op) => op.where.split(" ")[0]))];
  if (!kinds.includes(filtered)) filtered = "all";
  const shown = result.ops.filter((op) => filtered === "all" || op.where.startsWith(filtered));
  const filters = make("div", { class: "filters" }, ...kinds.map((kind) =>
    make("button", { "aria-pressed": String(kind === filtered), onclick: () => { filtered = kind; drawView(); } }, kind)));
  const rows = shown.slice(0, 1000).map((op) => make("tr", {},
    make("td", { "data-label": "op" }, `${op.op} `, make("b", {}, op.node), ...op.why.map((why) => make("div", { class: "reason" }, why))),
    make("td", { class: "number", "data-label": "work" }, `${(100 * op.cost / total).toFixed(1)} %`),
    make("td", { "data-label": "where" }, op.where + (op.into ? ` into ${op.into}` : "")),
    make("td", { "data-label": "became" }, op.became.join(", ")),
    gapCell(gaps && gaps.nodes[op.node])));
  const head = ["op of the model", "work", "where", "became", "from eager"];
  const note = shown.length > 1000 ? [make("p", { class: "hint" }, `1000 of ${shown.length} are drawn, the costliest first`)] : [];
  return [filters, ...note, make("table", { "data-view": "ops" }, make("thead", {}, make("tr", {}, ...head.map((h) => make("th", { scope: "col" }, h)))), make("tbody", {}, ...rows))];
}
function viewOutputs() {
  if (!gaps) return [make("p", {}, "running both …")];
  if (gaps.refused) return [make("p", { class: "reason" }, gaps.refused)];
  const row = (gap) => make("tr", {}, make("td", {}, gap.node), gapCell(gap));
  const table = (label, list) => [make("h2", {}, label), make("table", {}, make("tbody", {}, ...list.map(row)))];
  const nodes = Object.values(gaps.nodes);
  const first = nodes.find(isNew);
  const moved = nodes.filter(isFar).length;
  return [
    make("p", {}, first ? `The first op that differs by these changes: ${first.node}.`
      : "No op differs by these changes by more than a thousandth of its largest number."),
    ...(moved ? [make("p", { class: "hint" }, "Where rewrites move a part of an op (a scale, a mean) to a neighbor, ops in between differ; only outputs are guaranteed.")] : []),
    ...table(`Outputs, on the sample “${gaps.sample}”`, gaps.outputs), ...table("Ops, in order", nodes),
  ];
}
function viewReport() {
  return [make("h2", {}, "Command line"), make("pre", {}, result.command + (asked.rules ? "\n# with the rules above in a file: --load rules.py" : "")),
    make("h2", {}, "Report"), make("pre", { class: "note" }, result.report),
    ...(result.refusals.length ? [make("h2", {}, "Refused"), ...result.refusals.slice(0, 300).map((r) => make("p", { class: "note" }, `${r.rewrite}: ${r.op}${r.node ? " " + r.node : ""}: ${r.reason}`))] : [])];
}

// ---- sharing, and the rest -----------------------------------------------------------------
function download(blob, name) {
  const anchor = make("a", { href: URL.createObjectURL(blob), download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
}
async function begin(told) {
  $("name").textContent = told.name;
  document.title = `${told.name} — stepwell play`;
  $("target").replaceChildren(...told.targets.map((name) => option([name, name])));
  [asked, past, found, opened, usual] = [null, [], [], new Set(), {}];
  const wanted = told.asked;
  $("rules").value = wanted.rules || EXAMPLE;
  take(await ask("lower", wanted), wanted);
  compare();
}
$("text").oninput = typed;
$("text").onkeydown = $("rules").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.currentTarget === $("text") ? goOn() : applyRules();
  }
};
$("take").onclick = goOn;
$("drop").onclick = () => lower(() => ({ text: null, text_at: "" }), "discarding the edit");
// The value is read now: what runs before may draw the page anew.
$("at").onchange = () => { const at = $("at").value; lower(() => ({ at }), "looking"); };
$("target").onchange = () => {
  const target = $("target").value;
  [past, found] = [[], []];
  lower(() => ({ target, edits: [], options: [], at: "", text: null, text_at: "", rules: "" }));
};
$("options").onchange = () => { const options = $("options").value.split(/\s+/).filter(Boolean); lower(() => ({ options })); };
$("apply").onclick = applyRules;
$("undo").onclick = () => {
  let kept = past;
  lower(() => {
    const before = past.pop();
    kept = [...past];
    return before ? { edits: before.edits, options: before.options, rules: before.rules } : {};
  }, "undoing").then(() => { past = kept; });
};
$("own").onclick = () => { found = []; lower(() => ({ edits: [], rules: "" }), "the target's own passes"); };
$("replace").onsubmit = (event) => {
  event.preventDefault();
  $("replace").hidden = true;
  if ($("replace-with").value.trim()) edit("replace", `${replacing.path}=${$("replace-with").value.trim()}`);
};
$("replace-not").onclick = () => { $("replace").hidden = true; focusStep(); };
$("link").onclick = () => work("making a link", async () => {
  const { link } = await ask("link", asked);
  $("shared").hidden = false;
  $("shared").value = `http://127.0.0.1/${link}`;
  $("shared").focus();
  $("shared").select();
  $("summary").textContent = "stepwell play 'LINK' opens it, and so does this URL with the link's fragment appended";
});
$("save").onclick = () => work("saving", async () => { download(await ask("file", asked), `${$("name").textContent}.play`); say(); });
$("artifact").onclick = () => work("emitting", async () => { download(await ask("artifact", asked), `${$("name").textContent}.${result.artifact}`); say(); });
$("file").onchange = () => work("opening", async () => begin(await ask("upload", $("file").files[0], true)));
$("opener").onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); $("file").click(); } };
const start = () => work("opening", async () => {
  const at = location.hash.indexOf("play=");
  await begin(at >= 0 ? await ask("open", { link: location.hash }) : await ask("begin", {}));
});
window.addEventListener("hashchange", () => { if (location.hash.startsWith("#play=")) start(); });
drawTabs();
start();
})();
