// Which classes the model takes for which, with a slider over rounds.

function confusionChart(run, state) {
  if (!run.confusion) return null;
  const rounds = run.confusion.rounds, place = el("div", {}), words = el("p", { class: "readout", id: "confusion-words" });
  const shown = el("output", { id: "confusion-shown" });
  const slider = el("input", { type: "range", id: "confusion-round", min: 0, max: rounds.length - 1, disabled: rounds.length < 2, "aria-label": "round of the confusion matrix", oninput: () => { state.confusion = Number(slider.value); draw(); drawNow(); } });
  slider.value = Math.min(state.confusion ?? rounds.length - 1, rounds.length - 1);
  const at = () => rounds[Number(slider.value)];
  const table = () => [["round", "label", ...run.classes], at().counts.map((row, i) => [at().round, run.classes[i], ...row])];
  const left = run.confusion.left_out ? ` ${run.confusion.left_out} rounds were left out to keep the page small.` : "";
  draw();
  return figure("Confusion matrix", `Rows are the labels of the balanced test set, columns what the model says: percent of each label's samples. A perfect model fills the diagonal.${left}`, table,
    el("div", {}, el("div", { class: "controls" }, el("label", {}, "round ", slider, shown)), place, words));

  function draw() {
    const { round, counts, most } = at();
    const shares = counts.map((row) => row.map((count) => (sum(row) ? count / sum(row) : null)));
    shown.textContent = String(round);
    words.textContent = most.length ? `Most often confused: ${most.map(([label, taken, share]) => `${run.classes[label]} taken for ${run.classes[taken]} (${(100 * share).toFixed(0)} %)`).join("; ")}.` : "Nothing is confused.";
    place.replaceChildren(heatMap(shares, run.classes, {
      id: "confusion", label: "label by prediction", rows: run.classes, most: 1, diagonal: true,
      form: (share) => (known(share) ? `${(100 * share).toFixed(0)}` : "–"), top: "100 %",
      tell: (i, j) => `${run.classes[i]} taken for ${run.classes[j]}: ${counts[i][j]} of ${sum(counts[i])} samples, ${percent(shares[i][j])} %`,
    }));
  }
}
