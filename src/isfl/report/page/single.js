// Everything about one run.

function singleRun(run, state, redraw) {
  const accuracy = (key) => ({ x: run.round, y: run.series[key].map((value) => (known(value) ? 100 * value : null)) });
  const over = (key, part, factor = 1) => ({ x: run.round, y: (part ? run.groups[key][part] : run.series[key]).map((value) => (known(value) ? value * factor : null)) });
  return el("div", { id: "run" },
    note([...run.problems, ...run.warnings]),
    summary("run-summary", run.summary),
    finalFigures(run),
    el("h2", {}, "What was run"), about(run),
    el("h2", {}, "Learning"),
    el("div", { class: "grid" },
      lineChart("Accuracy", [{ name: "D_S, balanced test set", ...accuracy("accuracy_standard") }, { name: "D_G, all clients' data", ...accuracy("accuracy_global") }, { name: "worst client", ...accuracy("worst_client_accuracy") }], { y: "accuracy in %" }),
      lineChart("Training loss", [{ name: "loss", ...over("train_loss") }], { y: "cross-entropy" }),
      recallChart(run),
      ...[confusionChart(run, state), clientAccuracy(run), clientChart(run, state)].filter(Boolean)),
    el("h2", {}, "Who draws what"), mixes(run, state, redraw),
    el("h2", {}, "Theory"),
    el("div", { class: "grid" },
      lineChart("ρ: in use, the paper's rule, the minimum", [{ name: "in use", ...over("rho_used") }, { name: "paper's rule", ...over("rho_paper") }, { name: "minimum", ...over("rho_minimum") }], { y: "ρ", log: true, caption: "The factor of the convergence bound that sampling moves, mean over clients. Lower means a tighter bound. The minimum is a theoretical reference, not a good sampling rule." }),
      ...movementCharts(run), ...boundCharts(run, over)),
    el("h2", {}, "Cost"), cost(run),
    el("h2", {}, "Refused clients"), refusals(run));
}

function finalFigures(run) {
  const series = run.series, at = series.accuracy_standard.findLastIndex(known), tiles = [];
  const tile = (value, name) => tiles.push(el("div", { class: "tile" }, el("b", {}, value), el("span", {}, name)));
  tile(at < 0 ? "–" : `${percent(series.accuracy_standard[at])} %`, "D_S, balanced test set");
  tile(at < 0 ? "–" : `${percent(series.accuracy_global[at])} %`, "D_G, all clients' data");
  tile(at < 0 ? "–" : `${percent(series.worst_client_accuracy[at])} %`, at < 0 || !known(series.worst_client[at]) ? "worst client" : `worst client (client ${series.worst_client[at]})`);
  tile(`${run.round.length} / ${run.rounds ?? "?"}`, run.finished ? "rounds, finished" : run.under_way ? "rounds, in progress" : "rounds so far");
  tile(known(run.totals.extra_gradients) ? `${run.totals.extra_gradients.toFixed(1)} %` : "–", "extra gradients for sampling");
  tile(`${short(run.totals.seconds.wall)} s`, "wall time");
  return el("div", { class: "tiles" }, ...tiles);
}

function about(run) {
  const rows = run.about.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]);
  const settings = Object.entries(run.settings);
  return el("div", {}, el("dl", {}, ...rows),
    el("details", {}, el("summary", {}, `all ${settings.length} settings`),
      figure("Settings", "", () => [["key", "value"], settings], sortableTable([{ title: "key", text: true }, { title: "value", text: true }], settings.map((row) => row.map((cell) => ({ show: cell, sort: cell })))))));
}

// Accuracy on the clients' own data over rounds: all clients, not only the worst.
function clientAccuracy(run) {
  const spread = run.clients.client_accuracy;
  if (!spread) return null;
  const lines = Object.entries(spread.quantiles).map(([name, values]) => ({ name, x: run.round, y: values.map((value) => (known(value) ? 100 * value : null)), notes: spread.ends[name]?.map((client) => (known(client) ? `client ${client}` : "")) }));
  return lineChart("Clients' own accuracy", lines, { y: "accuracy in %", caption: "Accuracy of the global model on each client's data: quantiles over clients." });
}

// Both sides of Lemma 1 and of Theorem 1, if the run measured them.
function boundCharts(run, over) {
  const drift = (part) => over("drift", part), bound = (part) => over("bound", part);
  const wanted = "Measured only with diagnostics.bound = true.";
  return [
    lineChart("Drift: measured against its bound", [{ name: "measured", ...drift("measured") }, { name: "bound", ...drift("bound") }], { y: "‖θᵏ − θ‖²", log: true, caption: `Lemma 1 for the client that comes closest to its bound in each round. ${wanted}` }),
    lineChart("Theorem 1: measured against its bound", [{ name: "‖∇l‖², measured", ...over("gradient_square") }, { name: "bound", ...bound("total") }, { name: "initial", ...bound("initial") }, { name: "ψ", ...bound("psi") }, { name: "sampling", ...bound("sampling") }], { y: "", log: true, caption: `For the gradient steps of each round; the bound is at least 2 C times the left side by construction. ${wanted}` }),
  ];
}

function recallChart(run) {
  const bars = run.classes.map((name, i) => ({ name, value: run.recall?.[i] ?? null }));
  if (!run.recall) return figure("Recall by class", "", null, el("p", { class: "readout" }, "Not measured yet."));
  const worst = bars.filter((bar) => known(bar.value)).reduce((least, bar) => (bar.value < least.value ? bar : least));
  worst.note = "lowest";
  return barChart("Recall by class", bars, { form: (value) => `${percent(value)} %`, caption: "Share of each class's test samples that the last evaluated model classifies correctly." });
}

function mixes(run, state, redraw) {
  const detail = run.detail;
  if (!detail) return el("p", {}, "This page does not have the clients' shares and probabilities: the run did not record them, its counts are private, or they were left out to keep the page small (then report this run alone).");
  const rounds = detail.rounds, place = el("div", { id: "mixes" });
  const layers = { probability: rounds.length > 0, local: detail.local, target: detail.target, change: rounds.length > 0 && detail.local };
  const index = Math.min(state.round ?? rounds.length - 1, rounds.length - 1);
  const at = rounds[index];
  const layer = layers[state.layer] ? state.layer : Object.keys(layers).find((name) => layers[name]);
  const client = Math.min(state.client, detail.clients - 1);
  const slider = el("input", { type: "range", id: "round", min: 0, max: Math.max(rounds.length - 1, 0), value: Math.max(index, 0), disabled: rounds.length < 2, "aria-label": "round", oninput: (event) => { state.round = Number(event.target.value); redraw("mixes"); } });
  const choice = el("select", { id: "layer", onchange: (event) => { state.layer = event.target.value; redraw("mixes"); } }, ...Object.entries(LAYERS).map(([name, title]) => el("option", { value: name, selected: name === layer, disabled: !layers[name] }, title)));
  const clients = el("select", { id: "client", onchange: (event) => { state.client = Number(event.target.value); redraw("mixes"); } }, ...Array.from({ length: detail.clients }, (_, k) => el("option", { value: k, selected: k === client }, `client ${k}`)));
  place.append(el("div", { class: "controls" }, el("label", {}, "show ", choice), el("label", {}, "round ", slider, el("output", { id: "round-shown" }, at ? String(at.round) : "–")), el("label", {}, clients)));
  if (detail.left_out.rounds || detail.left_out.clients) place.append(el("p", { class: "readout" }, `Left out to keep the page small: ${detail.left_out.rounds} rounds, ${detail.left_out.clients} clients.`));
  const values = layer === "local" ? detail.local : layer === "target" ? detail.target
    : layer === "change" ? at.probabilities.map((row, k) => row.map((value, i) => (detail.local[k][i] > 0 && known(value) ? value / detail.local[k][i] : null))) : at.probabilities;
  const all = values.flat().filter(known);
  const most = layer === "change" ? Math.max(2, Math.min(10, Math.max(...all))) : Math.max(0.02, quantile(all, 0.985));
  const form = layer === "change" ? (value) => (known(value) ? `${short(value, 2)}×` : "–") : (value) => (!known(value) ? "–" : value > 0 && value < 0.0005 ? "≈0" : value.toFixed(value < 0.0995 ? 3 : 2).replace(/^0/, ""));
  const table = () => [["round", "client", ...run.classes], values.map((row, k) => [layer === "probability" || layer === "change" ? at.round : "", k, ...row])];
  const marked = at?.participants ? new Set(at.participants) : null;
  const picture = heatMap(values, run.classes, { id: "heat", label: "client by class", top: `${form(most)} and more`, tell: (k, i) => `client ${k}, ${run.classes[i]}: ${form(values[k][i])}`, picked: client, onPick: (k) => { state.client = k; redraw("mixes"); }, marked: marked && marked.size < detail.clients ? marked : null, most, form });
  place.append(el("div", { class: "grid" },
    figure(`Client by class: ${LAYERS[layer]}${at && layer !== "local" && layer !== "target" ? `, round ${at.round}` : ""}`, "Rows are clients, columns are classes. Click a row to see how that client draws. A dot before a number means that the client did not take part.", table, picture, true),
    at ? waterPicture(run, detail, at, client) : null));
  return place;
}

function quantile(values, share) {
  const sorted = Float64Array.from(values).sort();
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : 1;
}

function cost(run) {
  const { gradient_evaluations: gradients, seconds, bytes_down: down, bytes_up: up } = run.totals;
  const parts = ["training", "sampling", "diagnostics", "aggregation", "evaluation"].map((name) => [name, gradients[name] ?? null, seconds[name]]);
  const cells = parts.map(([name, count, time]) => [{ show: name, sort: name }, { show: known(count) ? count.toLocaleString("en") : "–", sort: count }, { show: time.toFixed(1), sort: time }, { show: seconds.training ? `${((100 * time) / seconds.training).toFixed(1)} %` : "–", sort: time }]);
  const moved = `Sent to the clients: ${bytes(down)}; received from them: ${bytes(up)} (tensors and arrays, without encoding).`;
  return el("div", { class: "grid" },
    figure("Where the work goes", `Seconds are summed over clients (evaluation: wall time). ${moved}`, () => [["part", "gradient evaluations", "seconds"], [...parts, ["bytes down", down, ""], ["bytes up", up, ""]]],
      sortableTable([{ title: "part", text: true }, { title: "gradient evaluations" }, { title: "seconds" }, { title: "of training" }], cells, 1, true)),
    lineChart("Seconds per round", ["training", "sampling", "evaluation", "wall"].map((part) => ({ name: part, x: run.round, y: run.groups.seconds[part] })), { y: "seconds" }));
}

function refusals(run) {
  if (!run.refused.length) return el("p", {}, "None: every participating client returned a valid result.");
  return figure(`${run.refused.length} refusals`, "", () => [["round", "client", "reason"], run.refused],
    sortableTable([{ title: "round" }, { title: "client" }, { title: "reason", text: true }], run.refused.map(([round, client, reason]) => [{ show: String(round), sort: round }, { show: String(client), sort: Number(client) }, { show: reason, sort: reason }])));
}
