// Where the time goes (or the work, where nothing was timed): by module as an icicle, by op as bars.
function drawProfile() {
  const measured = mostTime > 0;
  const weigh = (f) => (measured ? story.times[f.node] || 0 : f.cost);
  const total = story.fates.reduce((sum, f) => sum + weigh(f), 0);
  if (!total) { $("profile").replaceChildren(make("p", {}, "Nothing was timed, and no op does arithmetic.")); return; }
  const said = (value) => (measured ? `${value.toFixed(3)} ms` : `${((100 * value) / total).toFixed(1)} % of work`);
  const root = { name: "model", value: 0, parts: new Map() };
  for (const f of story.fates) {
    let at = root;
    at.value += weigh(f);
    for (const part of [...(f.path || "").split(".").filter(Boolean), f.op + " " + f.node]) {
      if (!at.parts.has(part)) at.parts.set(part, { name: part, value: 0, parts: new Map(), node: null });
      at = at.parts.get(part);
      at.value += weigh(f);
    }
    at.node = f.node;
  }
  const W = 1000, H = 21, svg = drawn("svg", { role: "img", "aria-label": "Share of each module" });
  let deep = 0;
  const lay = (held, x, depth, key) => {
    const wide = (W * held.value) / total;
    if (wide < 1) return;
    deep = Math.max(deep, depth);
    const box = [drawn("title", {}, `${key}: ${said(held.value)}`),
      drawn("rect", { class: "box", x, y: depth * H, width: wide, height: H - 1 })];
    box[1].style.fill = `light-dark(hsl(${(key.length * 37) % 360} 60% 88%), hsl(${(key.length * 37) % 360} 35% 25%))`;
    const room = Math.floor((wide - 6) / 6.9);
    if (room > 2) box.push(drawn("text", { x: x + 4, y: depth * H + 14 }, held.name.slice(0, room)));
    svg.append(held.node ? drawn("a", { href: address(placeOf(held.node)) }, ...box) : drawn("g", {}, ...box));
    for (const part of held.parts.values()) {
      lay(part, x, depth + 1, `${key}.${part.name}`);
      x += (W * part.value) / total;
    }
  };
  lay(root, 0, 0, "model");
  put(svg, { viewBox: `0 0 ${W} ${(deep + 1) * H}`, width: W });
  const sums = new Map();
  for (const f of story.fates) { const held = sums.get(f.op) || [0, 0]; sums.set(f.op, [held[0] + 1, held[1] + weigh(f)]); }
  const entries = [...sums.entries()].sort((a, b) => b[1][1] - a[1][1]);
  const bar = (value) => () => { const e = make("div", { class: "bar" }); e.style.width = ((100 * value) / entries[0][1][1]).toFixed(1) + "%"; return e; };
  $("profile").replaceChildren(
    make("h2", {}, measured ? `Milliseconds a call, by module: ${total.toFixed(2)}` : "Share of multiply-adds and elements written, by module (nothing was timed)"),
    make("div", { class: "scroll" }, svg),
    make("h2", {}, "By op"),
    table("kinds", ["op", "#count", measured ? "#ms" : "#% of work", ""],
      entries.map(([op, [count, value]]) => [op, count, measured ? value.toFixed(3) : ((100 * value) / total).toFixed(1), bar(value)]),
      entries.map(([op, [count, value]]) => [op, count, value, value])));
}
function drawMemory() {
  $("memory").replaceChildren(...story.memory.flatMap((plan) => {
    const picture = make("div", { class: "scroll" });
    picture.innerHTML = plan.svg; // Made by stepwell, every string in it escaped.
    return [make("h2", {}, `Memory of ${plan.method}: ${plan.size.toLocaleString("en")} bytes of arena`),
      make("p", {}, `${counted(plan.steps, "call")}; at most ${plan.most.toLocaleString("en")} bytes are held at once, at call ${plan.busiest}. What a delegate keeps for itself is not in the arena.`),
      picture,
      table("memory-" + plan.method, ["tensor", "#bytes", "#offset", "#from call", "#to call"],
        plan.held.map((h) => [h[0], h[2].toLocaleString("en"), h[1].toLocaleString("en"), h[3], h[4]]), plan.held.map((h) => [h[0], h[2], h[1], h[3], h[4]]))];
  }));
}
