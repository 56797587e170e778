// Schemes side by side: means and spreads over seeds, rounds to a target, accuracy at equal cost.

// The reader chooses the target, so the page counts the rounds.
function roundsTo(run, target) {
  const at = run.series.accuracy_standard.findIndex((value) => known(value) && 100 * value >= target - 1e-9);
  return at < 0 ? null : run.round[at];
}

function sideBySide({ runs, side_by_side: side }, state, redraw) {
  if (!side) return el("p", {}, "No run has finished a round yet.");
  const target = state.target ?? side.target;
  const input = el("input", { type: "number", id: "target", min: 0, max: 100, step: 0.1, value: target, onchange: (event) => { state.target = Number(event.target.value); redraw("several"); } });
  const columns = [
    { title: "scheme", text: true }, { title: "seeds" }, { title: "D_S %", help: "balanced test set, last round" }, { title: "D_G %", help: "all clients' data" },
    { title: "worst client %" }, { title: `rounds to ${target} %` }, { title: "D_S % at equal cost" }, { title: "extra gradients %" }, { title: "seconds" },
  ];
  const rows = side.rows.map((row) => cellsOf(row, row.members.map((i) => roundsTo(runs[i], target)).filter(known)));
  const unfinished = runs.filter((run) => !run.finished).length;
  return el("div", { id: "several" },
    unfinished ? note([`${unfinished} of ${runs.length} runs are unfinished; the table shows their last round so far.`]) : null,
    el("div", { class: "controls" }, el("label", {}, "target accuracy on D_S ", input, " %")),
    figure("Side by side", `Last round; mean ± standard deviation over seeds. Rounds to the target: mean of the seeds that reach it. Equal cost: after ${side.budget.toLocaleString("en")} gradients for training and sampling, the fewest of any run here, interpolated linearly between evaluated rounds. Extra gradients: for sampling, in percent of those for training. Seconds: computing time of training and sampling.`,
      () => [columns.map((column) => column.title), rows.map((row) => row.map((cell) => cell.csv ?? cell.sort))], sortableTable(columns, rows, 2, true), true),
    el("div", { class: "grid" }, differenceChart(side, state)),
    el("div", { class: "grid" },
      overRounds(side, "accuracy_standard", "D_S over rounds"), overRounds(side, "accuracy_global", "D_G over rounds"),
      lineChart("D_S over cost", side.cost.map((curve) => ({ name: curve.label, ...curve })), { x: "gradient evaluations", y: "accuracy in %", integer: false, line: { at: side.budget, name: "equal cost" } }),
      overRounds(side, "train_loss", "Training loss", "cross-entropy")));
}

function cellsOf(row, reached) {
  const seeds = row.members.length;
  const plain = (value) => ({ show: known(value) ? value.toFixed(1) : "–", sort: value });
  const spread = (found) => (found ? { show: seeds > 1 ? `${found[0].toFixed(1)} ± ${found[1].toFixed(1)}` : found[0].toFixed(1), sort: found[0] } : plain(null));
  return [
    { show: row.label, sort: row.label }, { show: String(seeds), sort: seeds },
    spread(row.standard), spread(row.global), spread(row.worst_client),
    { show: reached.length ? `${mean(reached).toFixed(1)}${reached.length < seeds ? ` (${reached.length} of ${seeds})` : ""}` : "not reached", sort: reached.length ? mean(reached) : null },
    spread(row.equal_cost), plain(row.extra_gradients), plain(row.seconds),
  ];
}

// Mean and range over the seeds of each label.
function overRounds(side, key, title, y = "accuracy in %") {
  const several = side.rows.some((row) => row.members.length > 1);
  const series = side.curves[key].map(({ label, x, y: values, low, high }, i) => ({ name: label, x, y: values, ...(side.rows[i].members.length > 1 ? { low, high } : {}) }));
  return lineChart(title, series, { y, caption: several ? "Mean and range over seeds." : "" });
}
