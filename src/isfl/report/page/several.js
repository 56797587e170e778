// Schemes side by side: means and spreads over seeds, rounds to a target, accuracy at equal cost.

function groupsOf(runs) {
  const labels = [...new Set(runs.map((run) => run.label))];
  return labels.map((label) => ({ label, runs: runs.filter((run) => run.label === label && run.round.length) })).filter((group) => group.runs.length);
}

// What a run spent up to the end of each round: gradients for training and for sampling.
function spent(run) {
  let total = 0;
  return run.round.map((_, i) => (total += (run.groups.gradient_evaluations.training[i] ?? 0) + (run.groups.gradient_evaluations.sampling[i] ?? 0)));
}

// Accuracy when a run has spent `budget`, by straight lines between evaluated rounds; null before the first.
function accuracyAt(run, budget) {
  const costs = spent(run);
  const points = run.round.map((_, i) => [costs[i], run.series.accuracy_standard[i]]).filter(([, value]) => known(value));
  const after = points.findIndex(([cost]) => cost >= budget * (1 - 1e-12));
  if (after < 0) return points.length ? points.at(-1)[1] : null;
  const [cost, value] = points[after];
  if (after === 0) return cost <= budget * (1 + 1e-12) ? value : null;
  const [before, from] = points[after - 1];
  return cost === before ? value : from + ((value - from) * (budget - before)) / (cost - before);
}

function roundsTo(run, target) {
  const at = run.series.accuracy_standard.findIndex((value) => known(value) && 100 * value >= target - 1e-9);
  return at < 0 ? null : run.round[at];
}

function defaultTarget(groups) {
  const finals = groups.map((group) => ({ label: group.label, value: 100 * mean(group.runs.map((run) => last(run.series.accuracy_standard) ?? 0)) }));
  const base = finals.find((one) => one.label === "fedavg") ?? finals.reduce((least, one) => (one.value < least.value ? one : least));
  return Math.floor(base.value * 10) / 10;
}

function sideBySide(runs, state, redraw) {
  const groups = groupsOf(runs);
  if (!groups.length) return el("p", {}, "No run has finished a round yet.");
  const target = state.target ?? defaultTarget(groups);
  const budget = Math.min(...groups.flatMap((group) => group.runs.map((run) => spent(run).at(-1))));
  const input = el("input", { type: "number", id: "target", min: 0, max: 100, step: 0.1, value: target, onchange: (event) => { state.target = Number(event.target.value); redraw("several"); } });
  const columns = [
    { title: "scheme", text: true }, { title: "seeds" }, { title: "D_S %", help: "balanced test set, last round" }, { title: "D_G %", help: "all clients' data" },
    { title: "worst client %" }, { title: `rounds to ${target} %` }, { title: "D_S % at equal cost" }, { title: "extra gradients %" }, { title: "seconds" },
  ];
  const rows = groups.map((group) => rowOf(group, target, budget));
  const unfinished = runs.filter((run) => !run.finished).length;
  return el("div", { id: "several" },
    unfinished ? note([`${unfinished} of ${runs.length} runs are unfinished: their last round so far is compared.`]) : null,
    el("div", { class: "controls" }, el("label", {}, "target accuracy on D_S ", input, " %")),
    figure("Side by side", `Last round; mean ± standard deviation over seeds. Rounds to the target: mean of the seeds that reach it. Equal cost: after ${budget.toLocaleString("en")} gradients for training and sampling, the least any run here spent, by straight lines between evaluated rounds. Extra gradients: for sampling, per gradient for training. Seconds: computing, training and sampling.`,
      () => [columns.map((column) => column.title), rows.map((row) => row.map((cell) => cell.csv ?? cell.sort))], sortableTable(columns, rows, 2, true), true),
    el("div", { class: "grid" },
      overRounds(groups, "accuracy_standard", "D_S over rounds"), overRounds(groups, "accuracy_global", "D_G over rounds"),
      overCost(groups, budget), overRounds(groups, "train_loss", "Training loss", 1, "cross-entropy")));
}

function rowOf(group, target, budget) {
  const finals = (key) => group.runs.map((run) => last(run.series[key])).filter(known).map((value) => 100 * value);
  const spread = (values) => (values.length ? { show: values.length > 1 ? `${mean(values).toFixed(1)} ± ${deviation(values).toFixed(1)}` : mean(values).toFixed(1), sort: mean(values) } : { show: "–", sort: null });
  const reached = group.runs.map((run) => roundsTo(run, target)).filter(known);
  const equal = group.runs.map((run) => accuracyAt(run, budget)).filter(known).map((value) => 100 * value);
  const gradients = (part) => sum(group.runs.map((run) => sum(run.groups.gradient_evaluations[part])));
  const extra = gradients("training") ? (100 * gradients("sampling")) / gradients("training") : null;
  const seconds = mean(group.runs.map((run) => sum(run.groups.seconds.training) + sum(run.groups.seconds.sampling)));
  return [
    { show: group.label, sort: group.label }, { show: String(group.runs.length), sort: group.runs.length },
    spread(finals("accuracy_standard")), spread(finals("accuracy_global")), spread(finals("worst_client_accuracy")),
    { show: reached.length ? `${mean(reached).toFixed(1)}${reached.length < group.runs.length ? ` (${reached.length} of ${group.runs.length})` : ""}` : "not reached", sort: reached.length ? mean(reached) : null },
    spread(equal), { show: known(extra) ? extra.toFixed(1) : "–", sort: extra }, { show: seconds.toFixed(1), sort: seconds },
  ];
}

// Mean and range over the seeds of each label, at the rounds all of them measured.
function overRounds(groups, key, title, factor = 100, y = "accuracy in %") {
  const series = groups.map((group) => {
    const x = group.runs[0].round.filter((round) => group.runs.every((run) => known(run.series[key][run.round.indexOf(round)])));
    const at = (round) => group.runs.map((run) => factor * run.series[key][run.round.indexOf(round)]);
    const several = group.runs.length > 1;
    return { name: group.label, x, y: x.map((round) => mean(at(round))), low: several ? x.map((round) => Math.min(...at(round))) : null, high: several ? x.map((round) => Math.max(...at(round))) : null };
  });
  return lineChart(title, series, { y, caption: groups.some((group) => group.runs.length > 1) ? "Mean and range over seeds." : "" });
}

function overCost(groups, budget) {
  const series = groups.map((group) => {
    const costs = group.runs.map(spent), length = Math.min(...costs.map((one) => one.length));
    const measured = Array.from({ length }, (_, i) => i).filter((i) => group.runs.every((run) => known(run.series.accuracy_standard[i])));
    return { name: group.label, x: measured.map((i) => mean(costs.map((one) => one[i]))), y: measured.map((i) => 100 * mean(group.runs.map((run) => run.series.accuracy_standard[i]))) };
  });
  return lineChart("D_S over cost", series, { x: "gradient evaluations", y: "accuracy in %", integer: false, line: { at: budget, name: "equal cost" } });
}
