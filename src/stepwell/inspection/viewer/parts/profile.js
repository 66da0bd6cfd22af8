// Time, or work if nothing was timed: by module as an icicle plot, by op as bars.
/** The pixels that a view has for a plot. */
const roomIn = (tab) => Math.max(240, tab.clientWidth - 2 * parseFloat(getComputedStyle(tab).paddingLeft || 0));
/** The parts of a call; the number in the header is their sum. */
function callOf(inModel) {
  const whole = story.latency * 1e3, rest = whole - inModel - story.added;
  const ms = (value) => `${value.toFixed(3)} ms`;
  return make("p", {}, `A call took ${ms(whole)}, the median under the profiler: ${ms(inModel)} in ops of the model, ${ms(story.added)} in ops that no node of it has, ${ms(rest)} outside ops (the runtime, the profiler's records, waiting for a core). An op's time is the median of its own, so that a disturbed run adds to the last.`);
}
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
  const W = roomIn($("profile")), H = 21, svg = drawn("svg", { role: "img", "aria-label": "Share of each module" });
  let deep = 0;
  const lay = (held, x, depth, key) => {
    const wide = (W * held.value) / total;
    if (wide < 0.5) return;
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
    make("h2", {}, measured ? `Milliseconds in ops of the model, by module: ${total.toFixed(3)}` : "Share of multiply-adds and elements written, by module (nothing was timed)"),
    ...(measured && story.latency ? [callOf(total)] : []),
    svg,
    make("h2", {}, "By op"),
    table("kinds", ["op", "#count", measured ? "#ms" : "#% of work", ""],
      entries.map(([op, [count, value]]) => [op, count, measured ? value.toFixed(3) : ((100 * value) / total).toFixed(1), bar(value)]),
      entries.map(([op, [count, value]]) => [op, count, value, value])));
}
