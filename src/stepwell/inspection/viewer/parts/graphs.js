// The view "Graph": one graph or two side by side, their controls, the selection, search and files.
const pictures = { left: null, right: null };
const saidOf = (picture, what) => {
  const { overlay, laid } = picture.overlay, value = laid.of(what);
  const number = value === undefined ? "" : `, ${overlay.name} ${overlay.said(value)}`;
  if (what.groups) return `${what.name}, group of ${counted(what.count, "op")}, ${picture.isOpen(what) ? "open" : "closed"}${number}`;
  const shapes = what.gives.map((held) => shapeOf(held.type)).join(" and ");
  const node = nodeOf(picture.level, what), differs = { gone: ", gone", come: ", new", turned: ", rewritten", "": "" }[picture.differs(what)];
  return `${what.kind === "op" ? "" : what.kind + " "}${what.label}${node ? ", node " + node : ""}${shapes ? ", " + shapes : ""}, reads ${what.reads.length}, read by ${what.gives.reduce((sum, held) => sum + held.readers.length, 0)}${number}${differs}`;
};
function pickIn(picture, what) {
  go({ pick: fullKey(what), [picture.side === "left" ? "beside" : "level"]: picture.number, where: picture.side });
}
/** Open the groups around a node, so that it is visible. */
function opening(nesting, node) {
  const isOpen = openTest();
  let { open } = view;
  for (let at = nesting.home.get(node); at && at.parent; at = at.parent)
    if (!isOpen(at)) open = open.includes("*") ? open.split(",").filter((key) => key !== "!" + at.key).join(",") : [open, at.key].filter(Boolean).join(",");
  return open;
}
function controlsOfGraph() {
  const levels = (id, label, first) => make("label", {}, `${label} `, make("select", { id }, ...first, ...story.levels.map((level, at) => make("option", { value: at }, at ? `${at}. ${level.name}` : level.name))));
  const button = (label, title, onclick) => make("button", { title, "aria-label": title, onclick }, label);
  const both = (act) => () => { for (const picture of Object.values(pictures)) if (picture.box) act(picture); };
  const file = make("input", { type: "file", accept: ".json,application/json", id: "own-json", "aria-label": "Your own numbers, as Model Explorer's node data (JSON)" });
  file.onchange = () => [...file.files].forEach((one) => one.text().then((held) => addOverlay(held, one.name)));
  const controls = make("div", { class: "controls" },
    levels("graph-level", "Level", []), levels("graph-beside", "Beside", [make("option", { value: -1 }, "nothing")]),
    make("label", {}, "Color ", make("select", { id: "graph-over" })), make("label", { class: "file" }, "own JSON ", file),
    make("span", { class: "buttons" },
      button("−", "Zoom out ( - )", both((p) => p.zoom(1 / 1.3))), button("+", "Zoom in ( + )", both((p) => p.zoom(1.3))), button("fit", "Fit all ( 0 )", both((p) => { p.fit(); p.moved(); }))),
    make("span", { class: "buttons" },
      button("open one more layer", "Open one more layer", () => go({ open: oneMore(), cam: "" })), button("open all", "Open all modules", () => go({ open: "*", cam: "" })), button("close all", "Close all modules", () => go({ open: "", cam: "" }))),
    make("label", {}, make("input", { type: "checkbox", id: "graph-weights" }), " weights"),
    make("span", { class: "buttons" }, button("SVG", "Save the open graph as SVG", () => saveSvg(pictures.right)), button("PNG", "Save the open graph as PNG", () => savePng(pictures.right))),
    make("output", { id: "legend" }));
  controls.querySelector("#graph-weights").onchange = (event) => go({ weights: Number(event.target.checked) });
  for (const [id, key] of [["graph-level", "level"], ["graph-beside", "beside"], ["graph-over", "over"]])
    controls.querySelector("#" + id).onchange = ({ target }) => go({ [key]: key === "over" ? target.value : Number(target.value), ...(key === "level" ? { cam: "" } : {}) });
  return controls;
}
function oneMore() {
  const { nesting } = pictures.right, isOpen = openTest();
  if (view.open.includes("*")) return "*";
  const more = [...nesting.groups.values()].filter((at) => at.parent && isOpen(at.parent) && !isOpen(at));
  return [...openKeys(), ...more.map((at) => at.key)].join(",");
}
function addOverlay(held, name) {
  try {
    const made = overlayFrom(JSON.parse(held), name);
    const at = overlays.findIndex((one) => one.id === made.id);
    if (at >= 0) overlays[at] = made; else overlays.push(made);
    go({ over: made.id });
    if (view.over === made.id) drawGraph();
  } catch (error) { $("legend").value = `${name}: ${error.message}`; }
}
function drawGraph() {
  if (!pictures.right) {
    pictures.left = new Picture("left"); pictures.right = new Picture("right");
    $("graph").replaceChildren(controlsOfGraph(),
      make("div", { class: "pictures" }, pictures.left.element, pictures.right.element, make("aside", { id: "graph-details", tabindex: 0, "aria-label": "Details of the selection" })),
      make("p", { id: "graph-said", role: "status" }),
      make("p", { id: "graph-keys" }, "Drag, wheel or pinch moves the graph; arrows walk along its lines, Enter opens a module or goes to the details, Backspace closes, + − 0 zoom, Shift and arrows pan, / searches, n goes to the next."));
  }
  const { left: a, right: b } = pictures, two = view.beside >= 0;
  a.element.hidden = !two;
  $("graph-over").replaceChildren(...overlays.map((one) => make("option", { value: one.id }, one.name)));
  Object.assign($("graph-level"), { value: view.level }); Object.assign($("graph-beside"), { value: view.beside }); $("graph-over").value = overlayNow().id;
  $("graph-weights").checked = Boolean(view.weights);
  if (two) a.show(view.beside, view.level);
  b.show(view.level, two ? view.beside : -1);
  if (view.cam && !b.placed) { const [x, y, k] = view.cam.split(" ").map(Number); b.camera = { x, y, k: k || 1 }; b.unplaced = false; }
  b.placed = true;
  const here = view.where === "left" && two ? a : b, there = here === a ? b : a;
  if (here.picked && two) {
    there.picked = there.same(here.picked, here.level);
    if (there.picked && !there.places.has(there.picked)) there.picked = shownFor(there, there.picked) || there.picked;
  } else there.picked = null;
  if (view.pick !== drawGraph.pick || two !== drawGraph.two) {
    const jumps = view.pick && drawGraph.jump;
    for (const picture of two ? [here, there] : [here]) if (picture.picked && (jumps || !inView(picture, picture.picked))) picture.center(picture.picked);
    Object.assign(drawGraph, { pick: view.pick, two, jump: false });
  }
  b.draw(); if (two) a.draw();
  legend(b, two);
  if (here.picked) describe(here); else { $("graph-details").replaceChildren(make("p", {}, "Select a node: its text, shapes, neighbors, source and fate.")); $("graph-said").textContent = ""; }
}
function inView(picture, what) {
  const place = picture.places.get(what), { x, y, k } = picture.camera, { clientWidth: w, clientHeight: h } = picture.canvas;
  return place && !picture.unplaced && place.x + place.w > x && place.y + 20 > y && place.x < x + w / k && place.y + 30 < y + h / k;
}
function legend(picture, two) {
  const { overlay, laid } = picture.overlay, differing = two ? picture.changes(picture.nesting.root) : 0;
  const range = overlay.id && laid.most > -Infinity ? `${overlay.name}: ${overlay.said(laid.least)} to ${overlay.said(laid.most)}, ${laid.count.toLocaleString("en")} nodes` : overlay.id ? `${overlay.name}: ${laid.count} nodes` : "";
  $("legend").replaceChildren(range, ...(two ? [make("span", { class: "key gone" }, "gone"), make("span", { class: "key turned" }, "rewritten"), make("span", { class: "key come" }, "new"), ` ${differing} of ${picture.nesting.root.count} differ`] : []));
}
function describe(picture) {
  const what = picture.picked, { level } = picture;
  $("graph-said").textContent = saidOf(picture, what);
  const toward = (node) => make("a", { href: address({ pick: node.key, where: picture.side, open: opening(picture.nesting, node) }) }, `${node.label}${nodeOf(level, node) ? " " + nodeOf(level, node) : ""}`);
  const values = (title, held, ends) => held.length ? [make("h3", {}, title), ...held.map((value) => make("div", {}, `${shapeOf(value.type)} `, ...ends(value).slice(0, 20).flatMap((node) => [toward(node), " "])))] : [];
  const flow = what.groups ? [] : [...values("reads", what.reads, (value) => [value.maker]), ...values("gives", what.gives, (value) => value.readers)];
  const head = make("h2", {}, what.groups ? what.key || what.name : what.label);
  if (what.row >= 0) {
    const side = picture.side, levels = side === "left" ? { left: picture.number } : { right: picture.number };
    const goes = make("a", { href: address({ tab: "levels", ...levels, side, op: level.lines[what.row][OP] }) }, "its line among the levels");
    $("graph-details").replaceChildren(head, make("div", {}, goes), ...flow, ...tellOf(level, what.row));
  } else $("graph-details").replaceChildren(head, ...(what.groups ? kindsIn(what) : []), ...flow);
}
function kindsIn(at) {
  const counts = new Map();
  for (const node of within(at)) if (node.kind === "op") counts.set(node.label, (counts.get(node.label) || 0) + 1);
  return [make("p", {}, counted(at.count, "op")), ...[...counts].sort((a, b) => b[1] - a[1]).map(([label, count]) => make("div", {}, `${label} × ${count}`))];
}
// ---- search --------------------------------------------------------------------------------
function searchGraph(wanted) {
  const { right: picture } = pictures;
  state.graphHits = null; state.graphFound = [];
  if (!picture || !picture.box) return;
  if (wanted) {
    const { level, nesting } = picture;
    const what = (whole) => { const at = whole.indexOf(" = "); return whole.slice(0, at < 0 ? 0 : at) + whole.slice(Math.max(0, at)).replace(NAMES, ""); };
    state.graphFound = [...nesting.home.keys()].filter((node) => {
      const line = node.row >= 0 ? level.lines[node.row] : null;
      const whole = line ? `${what(text(line[TEXT]))} ${text(line[NODE])} ${text(line[SOURCE])} ${text(line[PATH])}` : `${node.kind} ${node.label} ${[...node.reads, ...node.gives].map((value) => value.type).join(" ")}`;
      return whole.toLowerCase().includes(wanted);
    });
    state.graphHits = new Set(state.graphFound.map((node) => shownFor(picture, node) || node));
    $("hits").value = counted(state.graphFound.length, "node");
  }
  picture.draw();
}
function nextInGraph() {
  const found = state.graphFound || [];
  if (!found.length) return;
  const next = found[(found.indexOf(pictures.right.picked) + 1) % found.length];
  drawGraph.jump = true;
  go({ pick: next.key, where: "right", open: opening(pictures.right.nesting, next), cam: "" });
}
// ---- files ---------------------------------------------------------------------------------
function svgOf(picture) {
  const pen = new SvgPen(), { box } = picture, ink = state.inks ||= inks();
  paint(pen, box, 0, 0, { x0: -1, y0: -1, x1: box.w + 1, y1: box.h + 1 }, 1, picture.looks(ink));
  return pen.element(box.w, box.h, `${story.title}: ${picture.level.name}`, ink.paper);
}
function save(blob, ending) {
  const link = make("a", { href: URL.createObjectURL(blob), download: `${story.title.replace(/\W+/g, "_")}_${pictures.right.level.name.replace(/\W+/g, "_")}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
const asSvg = (element) => new Blob([new XMLSerializer().serializeToString(element)], { type: "image/svg+xml" });
function saveSvg(picture) { save(asSvg(svgOf(picture)), "svg"); }
/** A browser limits a canvas to some 16 000 pixels a side and 100 million in total, so larger graphs are scaled. */
function savePng(picture) {
  const { box } = picture, scale = Math.min(2, 16000 / box.w, 16000 / box.h, Math.sqrt(1e8 / (box.w * box.h)));
  const canvas = make("canvas", { width: Math.max(1, Math.round(box.w * scale)), height: Math.max(1, Math.round(box.h * scale)) });
  const context = canvas.getContext("2d"), ink = state.inks ||= inks();
  context.fillStyle = ink.paper; context.fillRect(0, 0, canvas.width, canvas.height);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  paint(new CanvasPen(context), box, 0, 0, { x0: 0, y0: 0, x1: box.w, y1: box.h }, scale, picture.looks(ink));
  canvas.toBlob((blob) => save(blob, "png"));
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  state.inks = null;
  for (const picture of Object.values(pictures)) if (picture) picture.draw();
});
