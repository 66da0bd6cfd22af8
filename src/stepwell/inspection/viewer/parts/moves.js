// Mouse, touch and keys on a graph.
function movable(picture) {
  const { canvas } = picture, fingers = new Map();
  let moved = 0;
  const spread = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
  const local = (x, y) => { const box = canvas.getBoundingClientRect(); return { x: x - box.left, y: y - box.top }; };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const size = event.deltaMode ? 16 : 1;
    if (event.shiftKey) picture.pan(event.deltaY * size, 0);
    else picture.zoom(Math.exp(-event.deltaY * size * (event.ctrlKey ? 0.01 : 0.002)), local(event.clientX, event.clientY));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (fingers.size === 1) moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) { canvas.style.cursor = picture.at(event) ? "pointer" : "grab"; return; }
    const wide = fingers.size === 2 ? spread() : 0;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const [x, y] = [before.x - event.clientX, before.y - event.clientY];
    moved += Math.abs(x) + Math.abs(y);
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      if (wide) picture.zoom(spread() / wide, local((a.x + b.x) / 2, (a.y + b.y) / 2));
    }
    picture.pan(x / fingers.size, y / fingers.size);
  });
  const lift = (event) => {
    const was = fingers.delete(event.pointerId);
    if (!was || event.type !== "pointerup" || moved > 6 || fingers.size) return;
    const what = picture.at(event);
    if (!what) { if (view.pick) go({ pick: "" }); return; }
    if (what.groups && (what === picture.picked || picture.isOpen(what) === false)) go({ open: toggled(what), pick: fullKey(what), cam: "" });
    else pickIn(picture, what);
  };
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, lift);
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const done = keyed(picture, event);
    if (done) { event.preventDefault(); event.stopPropagation(); }
  });
}
/** The innermost visible item that contains a node. */
function shownFor(picture, node) {
  if (picture.places.has(node)) return node;
  let found = null;
  for (let at = picture.nesting.home.get(node); at; at = at.parent) if (picture.places.has(at) && !picture.isOpen(at)) found = at;
  return found;
}
function beside(picture, what, by) {
  const { box, number } = picture.places.get(what);
  const cells = box.ranks[number].cells.filter((cell) => !cell.passes);
  return cells[cells.findIndex((cell) => cell.what === what) + by]?.what;
}
/** The neighbors: producers of operands and users of results; for a group, across its boundary. */
function along(picture, what, down) {
  const nodes = what.groups ? [...within(what)] : [what], own = new Set(nodes);
  const ends = nodes.flatMap((node) => down ? node.gives.flatMap((value) => value.readers) : node.reads.map((value) => value.maker));
  const found = ends.filter((node) => !own.has(node)).map((node) => shownFor(picture, node)).filter((shown) => shown && shown !== what);
  return down ? found[0] : found[found.length - 1];
}
function keyed(picture, event) {
  const { picked } = picture, { key } = event, far = 60;
  const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (arrow && (event.shiftKey || !picture.places.size)) { picture.pan(arrow[0] * far, arrow[1] * far); return true; }
  if (arrow) {
    const shown = picked && (picture.places.has(picked) ? picked : shownFor(picture, picked));
    const first = () => [...picture.places.keys()].find((what) => !what.groups || !picture.isOpen(what));
    const next = !shown ? first() : arrow[0] ? beside(picture, shown, arrow[0]) : along(picture, shown, arrow[1] > 0);
    if (next) pickIn(picture, next);
    return true;
  }
  const acts = {
    "+": () => picture.zoom(1.3), "=": () => picture.zoom(1.3), "-": () => picture.zoom(1 / 1.3), 0: () => { picture.fit(); picture.moved(); },
    Enter: () => picked && (picked.groups ? go({ open: toggled(picked), pick: fullKey(picked), cam: "" }) : $("graph-details").focus()),
    " ": () => acts.Enter(),
    Backspace: () => { const at = picked && (picked.groups ? picked.parent : picture.nesting.home.get(picked)); if (at && at.parent) go({ open: toggled(at), pick: fullKey(at), cam: "" }); },
    Escape: () => view.pick && go({ pick: "" }),
  };
  if (!acts[key]) return false;
  acts[key]();
  return true;
}
