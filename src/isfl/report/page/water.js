// The water-filling picture of one client: the move from the target, away from classes with a large L, to the first floor.

function waterPicture(run, detail, at, client) {
  const classes = run.classes, target = detail.target?.[client], local = detail.local?.[client], floor = detail.floor?.[client];
  const q = at.probabilities[client], level = at.level?.[client], lipschitz = at.lipschitz?.[client];
  const stops = at.stops?.[client], gamma = at.gamma?.[client];
  const clamped = classes.map((name, i) => known(floor?.[i]) && local?.[i] > 0 && q[i] <= floor[i] * (1 + 1e-3));
  const table = () => [["class", "local share", "target", "floor", "level", "probability", "L", "at its floor"],
    classes.map((name, i) => [name, local?.[i], target?.[i], floor?.[i], level?.[i], q[i], lipschitz?.[i], clamped[i] ? "yes" : "no"])];
  const lines = [];
  if (known(gamma)) {
    lines.push(`Γ = ${short(gamma)}, from the Lipschitz values of round ${at.measured[client]}. ` +
      (gamma === 0 ? "No move: a class with a large L is at its floor from the start, or all L are equal."
        : `${classes[stops]} meets its floor first and stops the move.`));
  } else if (lipschitz?.some(known)) lines.push(`The exact minimum for the Lipschitz values of round ${at.measured[client]}.`);
  else if (detail.floor) lines.push("No Lipschitz values yet: this round draws without them.");
  else lines.push("This scheme does not use Lipschitz values; the picture compares its probabilities with local and target shares.");
  const held = clamped.flatMap((yes, i) => (yes ? [classes[i]] : []));
  if (held.length && detail.floor) lines.push(`At their floor: ${held.slice(0, 12).join(", ")}${held.length > 12 ? ` and ${held.length - 12} more` : ""}.`);
  if (at.doubt?.[client]) lines.push("The recorded probabilities do not follow from the recorded Lipschitz values: this run directory was changed.");
  const signs = el("div", { class: "legend" }, ...[
    ["▮", "probability"], ["▯", "target share"], ["○", "level p + αΓ"], ["━", "floor"], ["◆", "local share"], ["↓ ↑", "away from large L, towards small"], ["✕", "not held"],
  ].map(([sign, name]) => el("span", {}, `${sign} ${name}`)));
  const body = el("div", { id: "water" }, el("p", { class: "words" }, lines.join(" ")), signs, el("div", { class: "scroll" }, responsive((width) => draw(Math.max(width, classes.length * 15 + 60)))));
  return figure(`How client ${client} draws in round ${at.round}`, "Bars are the client's sampling probabilities. The paper's rule moves all classes in one direction. Classes that the client lacks get probability 0, and the others are scaled to sum to 1.", table, body, true);

  function draw(width) {
    const height = 250, box = { left: 48, right: width - 6, top: 14, bottom: height - 46 };
    const most = Math.max(...[q, target, level, local].flatMap((row) => row ?? []).filter(known), 1e-9) * 1.06;
    const step = (box.right - box.left) / classes.length, wide = Math.min(step * 0.62, 60);
    const y = (value) => box.bottom - (Math.max(value, 0) / most) * (box.bottom - box.top);
    const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, style: `min-width: ${Math.round(width)}px`, role: "img", "aria-label": `client ${client}, round ${at.round}. ${lines.join(" ")}` });
    for (const value of ticks(0, most, 4)) chart.append(svg("line", { class: "grid-line", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }), svg("text", { class: "tick", x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    const everyName = Math.max(1, Math.ceil(34 / step));
    classes.forEach((name, i) => {
      const middle = box.left + (i + 0.5) * step, left = middle - wide / 2;
      if (known(q[i])) chart.append(svg("rect", { x: left, y: y(q[i]), width: wide, height: box.bottom - y(q[i]), fill: "var(--c0)", "fill-opacity": clamped[i] ? 0.35 : 0.85, class: "drawn" }));
      if (known(target?.[i])) chart.append(svg("rect", { x: left - 2, y: y(target[i]), width: wide + 4, height: box.bottom - y(target[i]), fill: "none", stroke: "var(--ink)", "stroke-dasharray": "3 2" }));
      if (known(floor?.[i]) && local[i] > 0) chart.append(svg("line", { x1: left - 3, x2: left + wide + 3, y1: y(floor[i]), y2: y(floor[i]), stroke: "var(--c1)", "stroke-width": 3 }));
      if (known(level?.[i])) chart.append(svg("circle", { cx: middle, cy: y(level[i]), r: 4, fill: "var(--ground)", stroke: "var(--ink)", "stroke-width": 1.5 }));
      if (known(local?.[i]) && local[i] > 0) chart.append(svg("path", { d: `M${middle} ${y(local[i]) - 5}l5 5l-5 5l-5 -5Z`, fill: "var(--c2)" }));
      if (local && local[i] === 0) chart.append(svg("text", { class: "tick", x: middle, y: box.bottom - 4, "text-anchor": "middle" }, "✕"));
      if (known(level?.[i]) && Math.abs(level[i] - target[i]) > 1e-6) chart.append(svg("text", { x: middle, y: box.bottom + 28, "text-anchor": "middle" }, level[i] < target[i] ? "↓" : "↑"));
      if (i === stops && gamma > 0) chart.append(svg("text", { class: "tick", x: middle, y: box.bottom + 42, "text-anchor": "middle" }, "stops"));
      if (i % everyName === 0) {
        const room = Math.floor((step * everyName) / 6.3);
        chart.append(svg("text", { class: "tick", x: middle, y: box.bottom + 14, "text-anchor": "middle" }, name.length > room ? `${name.slice(0, Math.max(1, room - 1))}…` : name));
      }
    });
    chart.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    return chart;
  }
}
