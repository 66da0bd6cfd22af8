// The content of memory over time: steps from left to right, bytes upwards, at the available width.
function planPicture(plan) {
  const W = roomIn($("memory")), H = Math.max(240, Math.min(420, W * 0.45)), BOTTOM = 22, TOP = 12, LEFT = narrow() ? 58 : 84;
  const across = (W - LEFT - 4) / Math.max(1, plan.steps), up = (H - BOTTOM - TOP) / Math.max(1, plan.size);
  const label = `${plan.method}: ${plan.size.toLocaleString("en")} bytes, ${counted(plan.steps, plan.unit)}; at most ${plan.most.toLocaleString("en")} are held at once`;
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": label, class: "plan" });
  for (let at = 0; at < 5; at++) {
    const size = Math.round((plan.size * at) / 4), y = H - BOTTOM - size * up;
    svg.append(drawn("path", { d: `M${LEFT} ${y}H${W}`, class: "edge", opacity: 0.3 }), drawn("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end" }, bytes(size)));
  }
  plan.held.forEach(([name, offset, size, first, last], number) => {
    const box = drawn("rect", { x: LEFT + first * across, y: H - BOTTOM - (offset + size) * up, width: Math.max(1, (last - first + 1) * across - 0.5), height: Math.max(1, size * up - 0.5), class: "box" },
      drawn("title", {}, `${name}: ${size.toLocaleString("en")} bytes at ${offset.toLocaleString("en")}, ${plan.unit} ${first} to ${last}`));
    box.style.fill = `light-dark(hsl(${(number * 47) % 360} 60% 78%), hsl(${(number * 47) % 360} 35% 38%))`;
    svg.append(box);
    const room = Math.floor(((last - first + 1) * across - 6) / 6.7);
    if (room > 3 && size * up > 14) svg.append(drawn("text", { x: LEFT + first * across + 3, y: H - BOTTOM - (offset + size / 2) * up + 4 }, name.slice(0, room)));
  });
  svg.append(drawn("text", { x: LEFT, y: H - 6 }, `${plan.unit} 0`), drawn("text", { x: W - 2, y: H - 6, "text-anchor": "end" }, `${plan.steps - 1}`));
  return svg;
}
function drawMemory() {
  $("memory").replaceChildren(...story.memory.flatMap((plan, number) => [
    make("h2", {}, `${plan.of} ${plan.method}: ${plan.size.toLocaleString("en")} bytes`),
    make("p", {}, `${counted(plan.steps, plan.unit)}; at most ${plan.most.toLocaleString("en")} bytes are held at once, at ${plan.unit} ${plan.busiest}. ${plan.says}`),
    planPicture(plan),
    table("memory-" + number, [plan.value, "#bytes", "#offset", `#from ${plan.unit}`, `#to ${plan.unit}`],
      plan.held.map((h) => [h[0], h[2].toLocaleString("en"), h[1].toLocaleString("en"), h[3], h[4]]), plan.held.map((h) => [h[0], h[2], h[1], h[3], h[4]])),
  ]));
}
