// Clients as a distribution: one dot per client, and the label mix of the one that is pointed at.

const MEASURES = {
  client_accuracy: { title: "accuracy on its own data", unit: "accuracy in %", factor: 100, form: (value) => `${value.toFixed(1)} %`, first: "lowest" },
  client_update_norm: { title: "how far its model moved", unit: "‖θᵏ − θ‖", factor: 1, form: (value) => short(value, 4), first: "highest" },
  client_drift: { title: "distance from the clients' mean", unit: "‖θᵏ − θ̄‖", factor: 1, form: (value) => short(value, 4), first: "highest" },
};

function clientChart(run, state) {
  const there = Object.keys(MEASURES).filter((key) => run.clients[key]);
  if (!there.length) return null;
  const place = el("div", {}), told = el("div", { class: "readout", id: "client-told" }), mix = el("div", { id: "client-mix" });
  const choice = el("select", { id: "measure", onchange: () => { state.measure = choice.value; state.dot = null; draw(); drawNow(); } }, ...there.map((key) => el("option", { value: key }, MEASURES[key].title)));
  if (there.includes(state.measure)) choice.value = state.measure;
  const points = () => run.clients[choice.value].last.map(([client, value]) => ({ client, value: value * MEASURES[choice.value].factor })).sort((a, b) => a.value - b.value);
  const table = () => [["name", "value", ...(run.detail?.local ? run.classes : [])], run.clients[choice.value].last.map(([client, value]) => [`client ${client}`, value, ...(run.detail?.local?.[client] ?? [])])];
  draw();
  return figure("Client by client", "One dot per client, in the last round that has the number. Point at a dot, or use the arrow keys, to see what that client holds.", table,
    el("div", {}, el("div", { class: "controls" }, el("label", {}, "show ", choice)), place, told, mix));

  function draw() {
    const measure = MEASURES[choice.value], dots = points();
    if (!dots.some((dot) => dot.client === state.dot)) state.dot = (measure.first === "lowest" ? dots[0] : dots.at(-1)).client;
    place.replaceChildren(responsive((width) => swarm(dots, measure, width, state.dot, (client) => { state.dot = client; tell(); drawNow(); })));
    tell();
  }

  function tell() {
    const client = state.dot, measure = MEASURES[choice.value], dots = points(), rank = dots.findIndex((dot) => dot.client === client);
    for (const dot of place.querySelectorAll("circle")) dot.classList.toggle("chosen", Number(dot.dataset.client) === client);
    told.textContent = `client ${client}, round ${run.clients[choice.value].round}: ${measure.form(dots[rank].value)}, ${placeOf(rank, dots.length)}. ${held(run, client)}`;
    mix.replaceChildren(mixBars(run, client));
  }
}

function placeOf(rank, count) {
  return rank === 0 ? `lowest of ${count}` : rank === count - 1 ? `highest of ${count}` : `number ${rank + 1} of ${count} from below`;
}

// The three largest shares in words: they can be read with any number of classes.
function held(run, client) {
  const shares = run.detail?.local?.[client];
  if (!shares) return "Its label mix is private or not on this page.";
  const largest = shares.map((share, i) => [share, run.classes[i]]).filter(([share]) => share > 0).sort((a, b) => b[0] - a[0]);
  const named = largest.slice(0, 3).map(([share, name]) => `${name} ${(100 * share).toFixed(0)}\u00a0%`).join(", ");
  return `It holds ${largest.length} of ${shares.length} classes: ${named}${largest.length > 3 ? ", …" : "."}`;
}

// Dots at their values, stacked around a line where they would overlap.
function swarm(dots, measure, width, chosen, onPick) {
  const radius = dots.length <= 40 ? 5.5 : dots.length <= 150 ? 4 : 3, box = { left: 14, right: width - 14 };
  let [low, high] = [dots[0].value, dots.at(-1).value];
  if (low === high) [low, high] = [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
  const px = (value) => box.left + ((value - low) / (high - low)) * (box.right - box.left);
  const levels = []; // for each level, where its last dot is
  const placed = dots.map((dot) => {
    const x = px(dot.value);
    let level = levels.findIndex((end) => x - end >= 2 * radius + 1);
    if (level < 0) level = levels.push(0) - 1;
    levels[level] = x;
    return { ...dot, x, offset: level % 2 ? -(level + 1) / 2 : level / 2 };
  });
  const step = Math.min(2 * radius + 1, 200 / levels.length), middle = 12 + radius + (step * levels.length) / 2, bottom = 2 * middle - 6, height = bottom + 34;
  const chart = svg("svg", { class: "chart swarm", viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": `${measure.title}: ${dots.length} clients from ${measure.form(low)} to ${measure.form(high)}` });
  const halfway = dots.length % 2 ? dots[(dots.length - 1) / 2].value : mean([dots[dots.length / 2 - 1].value, dots[dots.length / 2].value]);
  chart.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: bottom, y2: bottom }),
    svg("line", { x1: px(halfway), x2: px(halfway), y1: 12, y2: bottom, stroke: "var(--soft)", "stroke-dasharray": "3 3" }),
    svg("text", { class: "tick", x: Math.min(Math.max(px(halfway), 24), width - 24), y: 9, "text-anchor": "middle" }, "median"));
  for (const value of ticks(low, high, Math.min(7, width / 80)))
    chart.append(svg("text", { class: "tick", x: px(value), y: bottom + 15, "text-anchor": "middle" }, short(value)));
  chart.append(svg("text", { class: "tick", x: width / 2, y: height - 4, "text-anchor": "middle" }, measure.unit));
  for (const dot of placed) chart.append(svg("circle", { cx: dot.x, cy: middle + dot.offset * step, r: radius, "data-client": dot.client, fill: colour(0), class: dot.client === chosen ? "chosen" : "" }));
  let at = placed.findIndex((dot) => dot.client === chosen);
  const nearest = (event) => {
    const frame = chart.getBoundingClientRect(), factor = width / frame.width;
    const [x, y] = [(event.clientX - frame.left) * factor, (event.clientY - frame.top) * factor];
    const far = (dot) => (dot.x - x) ** 2 + (middle + dot.offset * step - y) ** 2;
    at = placed.indexOf(placed.reduce((best, dot) => (far(dot) < far(best) ? dot : best)));
    onPick(placed[at].client);
  };
  chart.addEventListener("pointermove", nearest);
  chart.addEventListener("pointerdown", nearest);
  chart.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    at = Math.max(0, Math.min(placed.length - 1, at + way));
    onPick(placed[at].client);
  });
  return chart;
}

function mixBars(run, client) {
  const shares = run.detail?.local?.[client];
  if (!shares) return "";
  return responsive((width) => {
    const size = width / shares.length, most = Math.max(...shares), floor = 64;
    const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} 80`, role: "img", "aria-label": `label mix of client ${client}` });
    const every = Math.ceil(44 / size), named = every <= 3; // more classes have no room; the words name the largest
    shares.forEach((share, i) => {
      const tall = (share / most) * (floor - 16);
      chart.append(svg("rect", { x: i * size + size * 0.1, y: floor - tall, width: size * 0.8, height: tall, fill: colour(1) }));
      if (size >= 30 && share > 0) chart.append(svg("text", { class: "tick", x: (i + 0.5) * size, y: floor - tall - 3, "text-anchor": "middle" }, `${(100 * share).toFixed(0)}%`));
      const room = Math.floor((size * every) / 6.2), name = run.classes[i];
      if (named && i % every === 0) chart.append(svg("text", { class: "tick", x: (i + 0.5) * size, y: floor + 13, "text-anchor": "middle" }, name.length > room ? `${name.slice(0, Math.max(room - 1, 1))}…` : name));
    });
    chart.append(svg("line", { class: "axis", x1: 0, x2: width, y1: floor, y2: floor }));
    return chart;
  });
}

// How far models moved and drifted apart: the lowest, median and highest client of every round.
function movementCharts(run) {
  const one = (key, title, caption) => {
    const found = run.clients[key];
    if (!found) return null;
    const lines = ["highest", "median", "lowest"].map((name) => ({ name, x: run.round, y: found.quantiles[name], notes: found.ends[name]?.map((client) => (known(client) ? `client ${client}` : "")) }));
    return lineChart(title, lines, { y: MEASURES[key].unit, caption });
  };
  return [
    one("client_update_norm", "How far clients' models moved", "Distance of each client's trained model from the global model it was sent, over the trainable parameters."),
    one("client_drift", "How far clients drifted apart", "Distance of each client's trained model from the weighted mean of all: the left side of Lemma 1, without the square."),
  ].filter(Boolean);
}
