// Lines over rounds and bars, as SVG. Every line has its own marker and dash, so colour is not needed.

const MARKS = [
  (x, y) => svg("circle", { cx: x, cy: y, r: 3.6 }),
  (x, y) => svg("rect", { x: x - 3.3, y: y - 3.3, width: 6.6, height: 6.6 }),
  (x, y) => svg("path", { d: `M${x} ${y - 4.4}L${x + 4.2} ${y + 3.2}H${x - 4.2}Z` }),
  (x, y) => svg("path", { d: `M${x} ${y - 4.6}L${x + 4.6} ${y}L${x} ${y + 4.6}L${x - 4.6} ${y}Z` }),
  (x, y) => svg("path", { d: `M${x} ${y + 4.4}L${x + 4.2} ${y - 3.2}H${x - 4.2}Z` }),
  (x, y) => svg("path", { d: `M${x - 4} ${y}H${x + 4}M${x} ${y - 4}V${y + 4}`, "stroke-width": 2.4 }),
  (x, y) => svg("path", { d: `M${x - 3.4} ${y - 3.4}L${x + 3.4} ${y + 3.4}M${x - 3.4} ${y + 3.4}L${x + 3.4} ${y - 3.4}`, "stroke-width": 2.4 }),
  (x, y) => svg("circle", { cx: x, cy: y, r: 3.6, "fill-opacity": 0 }),
];

function mark(index, x, y) {
  const shape = MARKS[index % MARKS.length](x, y);
  shape.setAttribute("fill", colour(index));
  shape.setAttribute("stroke", colour(index));
  return shape;
}

function legend(names) {
  return el("div", { class: "legend" }, ...names.map((name, index) => {
    const sample = svg("svg", { width: 34, height: 14, "aria-hidden": "true" },
      svg("line", { x1: 1, x2: 33, y1: 7, y2: 7, stroke: colour(index), "stroke-width": 2, "stroke-dasharray": DASHES[index % DASHES.length] }),
      mark(index, 17, 7));
    return el("span", {}, sample, " ", name);
  }));
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
    for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
  let inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  while (inside.length > 7) inside = inside.filter((value, index) => index % 2 === 0);
  return inside.length > 1 ? inside : [low, high];
}

// Redraws when the width changes, so that text keeps its size on a phone.
function responsive(draw) {
  const place = el("div", {});
  let width = 0;
  const fit = () => {
    const now = Math.round(place.clientWidth);
    if (now && now !== width) { width = now; place.replaceChildren(draw(width)); }
  };
  new ResizeObserver(fit).observe(place);
  undrawn.push(fit);
  return place;
}

// Draws new charts at once, so that the page does not jump.
const undrawn = [];
function drawNow() {
  while (undrawn.length) undrawn.pop()();
}

// series: [{ name, x: [], y: [], low: [], high: [], notes: [] }]
function lineChart(title, series, { x = "round", y = "", log = false, caption = "", line = null, integer = true } = {}) {
  const drawn = series.map((one, index) => ({ ...one, index })).filter((one) => one.y.some((value) => known(value) && (!log || value > 0)));
  const table = () => [["series", x, y || "value", ...(drawn.some((one) => one.low) ? ["lowest", "highest"] : [])],
    drawn.flatMap((one) => one.x.map((place, i) => [one.name, place, one.y[i], ...(one.low ? [one.low[i], one.high[i]] : [])]))];
  if (!drawn.length) return figure(title, caption, null, el("p", { class: "readout" }, "Not measured in this run."));
  const readout = el("div", { class: "readout", "aria-live": "off" });
  const body = el("div", {}, legend(series.map((one) => one.name)), responsive((width) => draw(width)), readout);
  return figure(title, caption, table, body);

  function draw(width) {
    const height = Math.max(190, Math.min(300, width * 0.52));
    const box = { left: 54, right: width - 12, top: 10, bottom: height - 36 };
    const values = drawn.flatMap((one) => [...one.y, ...(one.low ?? []), ...(one.high ?? [])]).filter((value) => known(value) && (!log || value > 0));
    const places = drawn.flatMap((one) => one.x).filter(known);
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
    const pad = (high - low) * 0.04;
    if (!log) [low, high] = [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
    let [first, end] = [Math.min(...places), Math.max(...places)];
    if (first === end) [first, end] = [first - 0.5, end + 0.5];
    const px = (value) => box.left + ((value - first) / (end - first)) * (box.right - box.left);
    const share = log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
    const py = (value) => box.bottom - share(value) * (box.bottom - box.top);
    const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${drawn.map((one) => `${one.name} ends at ${short(last(one.y))}`).join("; ")}` });
    for (const value of log ? logTicks(low, high) : ticks(low, high, 5)) {
      chart.append(svg("line", { class: "grid-line", x1: box.left, x2: box.right, y1: py(value), y2: py(value) }), svg("text", { class: "tick", x: box.left - 6, y: py(value) + 4, "text-anchor": "end" }, short(value)));
    }
    for (const value of ticks(first, end, Math.min(8, width / 70))) {
      if (integer && !Number.isInteger(value)) continue;
      chart.append(svg("text", { class: "tick", x: px(value), y: box.bottom + 15, "text-anchor": "middle" }, short(value)));
    }
    chart.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
      svg("text", { class: "tick", x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, x),
      svg("text", { class: "tick", x: 12, y: (box.top + box.bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(box.top + box.bottom) / 2})` }, y));
    if (line && line.at >= first && line.at <= end)
      chart.append(svg("line", { x1: px(line.at), x2: px(line.at), y1: box.top, y2: box.bottom, stroke: "var(--soft)", "stroke-dasharray": "3 3" }),
        svg("text", { class: "tick", x: px(line.at) - 4, y: box.bottom - 6, "text-anchor": "end" }, line.name));
    for (const one of drawn) chart.append(...drawLine(one, px, py, log));
    const cursor = svg("line", { y1: box.top, y2: box.bottom, stroke: "var(--soft)", visibility: "hidden" });
    chart.append(cursor);
    const near = [...new Set(places)].sort((a, b) => a - b);
    chart.addEventListener("pointermove", (event) => {
      const at = first + ((event.clientX - chart.getBoundingClientRect().left) * (width / chart.clientWidth) - box.left) / (box.right - box.left) * (end - first);
      const place = near.reduce((best, value) => (Math.abs(value - at) < Math.abs(best - at) ? value : best), near[0]);
      cursor.setAttribute("x1", px(place)); cursor.setAttribute("x2", px(place)); cursor.setAttribute("visibility", "visible");
      readout.textContent = `${x} ${short(place)}: ` + drawn.filter((one) => one.x.includes(place)).map((one) => { const i = one.x.indexOf(place); return `${one.name} ${short(one.y[i], 4)}${one.notes?.[i] ? ` (${one.notes[i]})` : ""}`; }).join(" · ");
    });
    chart.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); readout.textContent = ""; });
    return chart;
  }
}

function drawLine(one, px, py, log) {
  const points = one.x.map((place, i) => [place, one.y[i], one.low?.[i], one.high?.[i]]).filter(([, value]) => known(value) && (!log || value > 0));
  const parts = [];
  if (one.low) {
    const band = points.filter(([, , low, high]) => known(low) && known(high));
    const edge = [...band.map(([x, , , high]) => `${px(x)} ${py(high)}`), ...band.reverse().map(([x, , low]) => `${px(x)} ${py(low)}`)];
    if (edge.length > 2) parts.push(svg("path", { d: `M${edge.join("L")}Z`, fill: colour(one.index), opacity: 0.13 }));
  }
  parts.push(svg("path", { d: `M${points.map(([x, y]) => `${px(x)} ${py(y)}`).join("L")}`, fill: "none", stroke: colour(one.index), "stroke-width": 2, "stroke-dasharray": DASHES[one.index % DASHES.length] }));
  const every = Math.ceil(points.length / 16);
  points.forEach(([x, y], i) => { if (i % every === 0 || i === points.length - 1) parts.push(mark(one.index, px(x), py(y))); });
  return parts;
}

// Horizontal bars with their numbers: [{ name, value, note }]
function barChart(title, bars, { caption = "", most = 1, form = short, wide = false } = {}) {
  const table = () => [["name", "value"], bars.map((bar) => [bar.name, bar.value])];
  const body = responsive((width) => {
    const row = 19, label = Math.min(150, width * 0.34), height = bars.length * row + 4;
    const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    const scale = (width - label - 64) / (most || 1);
    bars.forEach((bar, i) => {
      const y = i * row + 2, length = known(bar.value) ? Math.max(bar.value * scale, 1) : 0;
      chart.append(svg("text", { class: "tick", x: label - 6, y: y + 12, "text-anchor": "end" }, bar.name.length > 22 ? `${bar.name.slice(0, 21)}…` : bar.name),
        svg("rect", { x: label, y: y + 1, width: length, height: row - 6, fill: colour(bar.colour ?? 0) }),
        svg("text", { class: "tick", x: label + length + 5, y: y + 12 }, `${form(bar.value)}${bar.note ? ` ${bar.note}` : ""}`));
    });
    return chart;
  });
  return figure(title, caption, table, bars.length > 24 ? el("div", { class: "scroll", style: "max-height: 420px" }, body) : body, wide);
}
