// The page: its state, drawing it, and redrawing it while a run is watched.

let content = JSON.parse(document.getElementById("data").textContent);
// Of several runs, begin with the first that samples by Lipschitz values: it has most to show.
const state = { run: Math.max(content.runs.findIndex((run) => run.detail?.floor), 0), round: null, client: 0, layer: "probability", target: null, confusion: null, measure: null, dot: null, compared: null, reference: null };

function redraw(part) {
  const scroll = window.scrollY, focus = document.activeElement?.id;
  const open = document.querySelector("#page details")?.open;
  const run = content.runs[state.run];
  if (part === "several") document.getElementById("several").replaceWith(sideBySide(content, state, redraw));
  else if (part === "mixes") {
    const old = document.getElementById("mixes"), fresh = mixes(run, state, redraw);
    const slider = old.querySelector("#round"); // keep the same element, so that a drag is not interrupted
    fresh.querySelector("#round").replaceWith(slider);
    old.replaceWith(fresh);
  } else drawPage();
  if (open) document.querySelector("#page details").open = true;
  drawNow();
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
  window.scrollTo(0, scroll);
}

function status(run) {
  const done = `${run.round.at(-1) ?? 0} of ${run.rounds ?? "?"} rounds`;
  return run.finished ? "finished" : run.under_way ? `in progress, ${done}` : `stopped after ${done}`;
}

function drawPage() {
  const runs = content.runs, run = runs[Math.min(state.run, runs.length - 1)];
  document.getElementById("title").textContent = runs.length > 1 ? `${runs.length} runs` : `${run.label} · seed ${run.seed ?? "?"}`;
  const under = runs.filter((one) => !one.finished).length;
  document.getElementById("subtitle").textContent = runs.length > 1 ? `${runs.length - under} finished` : `${run.name}: ${status(run)}`;
  const parts = [note(content.refused)];
  if (runs.length > 1) {
    parts.push(summary("summary", content.summary), el("h2", {}, "Schemes side by side"), sideBySide(content, state, redraw), el("h2", {}, `One run: ${run.label} · seed ${run.seed ?? "?"}`),
      el("div", { class: "controls" }, el("label", {}, "run ", el("select", { id: "which", onchange: (event) => { Object.assign(state, { run: Number(event.target.value), round: null, confusion: null, dot: null }); redraw("run"); } },
        ...runs.map((one, i) => el("option", { value: i, selected: one === run }, `${one.label} · seed ${one.seed ?? "?"} (${one.name})`))))));
  }
  parts.push(singleRun(run, state, redraw));
  document.getElementById("page").replaceChildren(...parts.filter(Boolean));
}

const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");

function inTheme(name) {
  root.dataset.theme = name;
  redraw("all"); // the heat map is painted, not styled
}

const wished = () => (dark.matches ? "dark" : "light");
dark.addEventListener("change", () => inTheme(wished()));
document.getElementById("theme").onclick = () => inTheme(root.dataset.theme === "dark" ? "light" : "dark");
document.getElementById("print").onclick = () => window.print();
let onScreen;
addEventListener("beforeprint", () => { onScreen = root.dataset.theme; inTheme("light"); }); // paper is white
addEventListener("afterprint", () => inTheme(onScreen));
inTheme(wished());

// ---------------------------------------------------------------- live

const LIVE = document.body.dataset.live;
const EVERY = 2000; // milliseconds

async function look(tag, failures) {
  try {
    const answer = await fetch(LIVE, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (answer.status === 200) {
      const chosen = content.runs[state.run].name;
      content = await answer.json();
      state.run = Math.max(content.runs.findIndex((run) => run.name === chosen), 0); // new runs may come before it
      tag = answer.headers.get("ETag");
      redraw("all");
    }
    failures = 0;
    document.body.dataset.seen = String(Number(document.body.dataset.seen ?? 0) + 1);
  } catch {
    failures += 1;
    if (failures === 2) document.getElementById("subtitle").textContent += " (isfl watch has ended; this is its last update)";
  }
  setTimeout(() => look(tag, failures), failures > 5 ? 10 * EVERY : document.hidden ? 5 * EVERY : EVERY);
}

if (LIVE) setTimeout(() => look(null, 0), EVERY);
