// Differences between schemes on the same seeds: every seed, their mean and its 95 % interval.

const COMPARED = { accuracy_standard: "D_S, balanced test set", accuracy_global: "D_G, all clients' data", worst_client_accuracy: "worst client" };

function differenceChart(side, state) {
  const metrics = Object.keys(COMPARED).filter((metric) => side.differences[metric]);
  if (!metrics.length) return null;
  const place = el("div", { id: "differences" }), caption = el("span", {});
  const metric = el("select", { id: "compared", onchange: () => { state.compared = metric.value; offer(); draw(); drawNow(); } }, ...metrics.map((key) => el("option", { value: key }, COMPARED[key])));
  const reference = el("select", { id: "reference", onchange: () => { state.reference = reference.value; draw(); drawNow(); } });
  if (metrics.includes(state.compared)) metric.value = state.compared;
  offer();
  const rows = () => side.differences[metric.value][reference.value].map((row) => ({ ...row, low: known(row.half_width) ? row.mean - row.half_width : null, high: known(row.half_width) ? row.mean + row.half_width : null })).sort((a, b) => b.mean - a.mean);
  const table = () => [["scheme", "minus", "difference", "lower", "upper", "ahead on", "seeds", "by seed"],
    rows().map((row) => [row.label, reference.value, row.mean, row.low, row.high, row.ahead, row.by_seed.length, row.by_seed.map(([seed, value]) => `${seed}: ${value}`).join("; ")])];
  draw();
  return figure("Differences, paired by seed", caption, table,
    el("div", {}, el("div", { class: "controls" }, el("label", {}, "of ", metric), el("label", {}, "minus ", reference)), place), true);

  // FedAvg is what others are measured against, if it is there.
  function offer() {
    const labels = Object.keys(side.differences[metric.value]);
    reference.replaceChildren(...labels.map((label) => el("option", { value: label }, label)));
    reference.value = labels.includes(state.reference) ? state.reference : labels.find((label) => /(^|· )fedavg$/.test(label)) ?? labels[0];
  }

  function draw() {
    const found = rows(), single = found.every((row) => row.by_seed.length === 1);
    const ways = single ? "There is one seed, so there is no interval: whether these differences are chance cannot be told."
      : "Circles are seeds, the diamond is their mean, the bar its 95 % interval (Student's t). An interval that includes 0 does not tell the two apart; a row with one seed has no interval.";
    caption.textContent = `Accuracy of the row minus that of ${reference.value} in the last round, in percentage points, on the seeds that both have. ${ways}`;
    const signed = (value) => (known(value) ? `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(1)}` : "–");
    const cells = found.map((row) => [{ show: row.label, sort: row.label }, { show: signed(row.mean), sort: row.mean },
      { show: known(row.low) ? `${signed(row.low)} to ${signed(row.high)}` : "one seed", sort: row.half_width }, { show: `${row.ahead} of ${row.by_seed.length}`, sort: row.ahead / row.by_seed.length }]);
    place.replaceChildren(responsive((width) => forest(found, width)),
      sortableTable([{ title: "scheme", text: true }, { title: `minus ${reference.value}` }, { title: "95 % interval" }, { title: "ahead on" }], cells, 1, true));
  }
}

function forest(rows, width) {
  const row = 26, label = Math.min(170, width * 0.32), height = rows.length * row + 40, bottom = rows.length * row + 6;
  const values = rows.flatMap((one) => [one.low, one.high, one.mean, ...one.by_seed.map(([, value]) => value)]).filter(known);
  let [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  if (low === high) [low, high] = [-1, 1];
  [low, high] = [low - (high - low) * 0.05, high + (high - low) * 0.05];
  const px = (value) => label + ((value - low) / (high - low)) * (width - 12 - label);
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `differences: ${rows.map((one) => `${one.label} ${short(one.mean)}`).join("; ")}` });
  for (const value of ticks(low, high, Math.min(8, (width - label) / 60)))
    chart.append(svg("line", { class: "grid-line", x1: px(value), x2: px(value), y1: 4, y2: bottom }), svg("text", { class: "tick", x: px(value), y: bottom + 14, "text-anchor": "middle" }, short(value)));
  chart.append(svg("line", { class: "zero", x1: px(0), x2: px(0), y1: 4, y2: bottom, stroke: "var(--ink)", "stroke-width": 1.5 }),
    svg("text", { class: "tick", x: (label + width) / 2, y: height - 2, "text-anchor": "middle" }, "percentage points"));
  rows.forEach((one, i) => {
    const y = i * row + 18, room = Math.floor(label / 6.4);
    chart.append(svg("text", { class: "tick", x: label - 8, y: y + 4, "text-anchor": "end" }, one.label.length > room ? `${one.label.slice(0, room - 1)}…` : one.label));
    if (known(one.low)) chart.append(svg("path", { class: "interval", d: `M${px(one.low)} ${y}H${px(one.high)}M${px(one.low)} ${y - 5}V${y + 5}M${px(one.high)} ${y - 5}V${y + 5}`, stroke: colour(0), "stroke-width": 2, fill: "none" }));
    for (const [, value] of one.by_seed) chart.append(svg("circle", { class: "seed", cx: px(value), cy: y, r: 3.4, fill: "none", stroke: colour(1), "stroke-width": 1.4 }));
    chart.append(svg("path", { class: "mean", d: `M${px(one.mean)} ${y - 6}L${px(one.mean) + 6} ${y}L${px(one.mean)} ${y + 6}L${px(one.mean) - 6} ${y}Z`, fill: colour(0) }));
  });
  return chart;
}
