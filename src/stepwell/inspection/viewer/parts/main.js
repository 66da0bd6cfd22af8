// Search, views, keys.
function search() {
  const wanted = view.q.trim().toLowerCase();
  state.hits = null;
  $("hits").value = "";
  if (wanted) {
    state.hits = new Set();
    const found = [0, 0];
    [left, right].forEach((pane, which) => pane.level.lines.forEach((line) => {
      const whole = `${text(line[TEXT])} ${text(line[NODE])} ${text(line[SOURCE])} ${text(line[PATH])}`;
      if (whole.toLowerCase().includes(wanted)) {
        found[which]++;
        state.hits.add(line[TEXT] + "|" + line[NODE] + "|" + line[SOURCE]);
      }
    }));
    $("hits").value = `${found[0]} left, ${found[1]} right`;
  }
  if (view.tab === "graph") searchGraph(wanted);
  else { left.draw(true); right.draw(true); }
}
function nextHit() {
  if (view.tab === "graph") { nextInGraph(); return; }
  if (!state.hits) return;
  for (const pane of [right, left]) {
    const from = pane.at(pane.element.scrollTop + 41);
    const is = (row) => { const l = pane.level.lines[row]; return state.hits.has(l[TEXT] + "|" + l[NODE] + "|" + l[SOURCE]); };
    let index = pane.rows.findIndex((row, i) => i > from && is(row));
    if (index < 0) index = pane.rows.findIndex(is);
    if (index >= 0) pane.element.scrollTop = pane.tops[index] - 40;
  }
}
let waiting = 0;
$("search").oninput = () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    amend({ q: $("search").value });
    search();
    if (view.tab !== "graph") nextHit();
    for (const { element, draw } of tables) if (element.isConnected) draw();
  }, 120);
};
$("search").onkeydown = (event) => { if (event.key === "Enter") nextHit(); };

const VIEWS = [["levels", "Levels", drawLevels], ["graph", "Graph", drawGraph]];
if (applications.length) VIEWS.push(["rewrites", "Rewrites", drawRewrites]);
if (story.fates.length) VIEWS.push(["fates", "Ops", drawFates], ["profile", "Profile", drawProfile]);
if (story.memory.length) VIEWS.push(["memory", "Memory", drawMemory]);
if (story.report) VIEWS.push(["steps", "Steps", drawSteps]);
VIEWS.push(["weights", "Weights", drawWeights]);
if (Object.keys(story.notes).length) VIEWS.push(["notes", "Notes", () =>
  $("notes").replaceChildren(...Object.entries(story.notes).flatMap(([title, body]) => [make("h2", {}, title), make("div", { class: "note" }, body)]))]);
function restore() {
  const before = view;
  view = parsed();
  if (!VIEWS.some(([id]) => id === view.tab)) view.tab = "levels";
  for (const [id] of VIEWS) $(id).hidden = id !== view.tab;
  $("tabs").replaceChildren(...VIEWS.map(([id, label]) => make("a", { href: address({ tab: id }), "aria-current": id === view.tab ? "page" : null }, label)));
  if ($("search").value !== view.q) $("search").value = view.q;
  tables.length = 0;
  if (!charWidth && view.tab === "levels") measure();
  const same = view.tab === "levels" && before.tab === "levels" && left.rows && ["left", "right", "changes", "weights", "short", "wrap"].every((k) => view[k] === before[k]);
  const pane = view.side === "right" ? right : left;
  const row = view.op < 0 ? undefined : pane.level && pane.level.rowOf.get(view.op);
  if (same && row !== undefined) pick(pane, row);
  else if (!left.rows || view.tab === "levels") drawLevels();
  if (view.tab !== "levels") VIEWS.find(([id]) => id === view.tab)[2]();
  if (!same || view.q !== before.q) search();
}
window.addEventListener("hashchange", restore);
document.addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); $("search").focus(); }
  if (event.key === "n") state.hits ? nextHit() : $("next-change").onclick();
  if (event.key === "[") $("back").onclick();
  if (event.key === "]") $("forth").onclick();
  if (view.tab === "rewrites" && event.key === ",") go({ app: Math.max(0, view.app - 1) });
  if (view.tab === "rewrites" && event.key === ".") go({ app: Math.min(applications.length - 1, view.app + 1) });
});
const last = story.levels[story.levels.length - 1].lines.filter((line) => line[OP] >= 0).length;
const report = story.report;
$("summary").textContent = [
  report ? `${report.target}: ${counted(report.delegates, "delegate")}, ${counted(report.outside.reduce((s, o) => s + o[1], 0), "op")} outside` : counted(last, "op"),
  report && `lowered in ${report.seconds.toFixed(2)} s`,
  `${counted(story.weights.length, "weight")}, ${bytes(story.weights.reduce((s, w) => s + w[3], 0))}`,
  story.latency && `${(story.latency * 1e3).toFixed(1)} ms a call`,
].filter(Boolean).join(" · ");
restore();
document.body.dataset.ready = "yes";
