"use strict";
// Helpers of all other scripts: elements, numbers as text, CSV.

const COLOURS = 8;
const DASHES = ["", "7 4", "2 3", "10 3 2 3", "5 2", "1 2", "12 4", "4 4 1 4"];

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const colour = (index) => `var(--c${index % COLOURS})`;
const sum = (values) => values.reduce((total, value) => total + (known(value) ? value : 0), 0);
const last = (values) => values.filter(known).at(-1);
const mean = (values) => sum(values) / values.length;

function short(value, digits = 3) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(digits - 1).replace("e+", "e");
  return size >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(digits)));
}

const percent = (share) => (known(share) ? (100 * share).toFixed(1) : "–");

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${count.toFixed(count < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

// ---------------------------------------------------------------- CSV

function csvOf(headings, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [headings, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function csvButton(title, table) {
  return el("button", { type: "button", class: "quiet csv", title: `the numbers of “${title}”`, onclick: () => showCsv(title, csvOf(...table())) }, "CSV");
}

function showCsv(title, text) {
  const dialog = document.getElementById("csv");
  dialog.querySelector("h2").textContent = title;
  const area = dialog.querySelector("textarea");
  area.value = text;
  dialog.onclick = (event) => {
    const what = event.target.dataset?.do;
    if (what === "close" || event.target === dialog) dialog.close();
    if (what === "copy") {
      area.select();
      document.execCommand("copy"); // works on pages opened from a file, too
      event.target.textContent = "copied";
      setTimeout(() => (event.target.textContent = "copy"), 1200);
    }
    if (what === "save") {
      const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `${title.replace(/[^\w-]+/g, "-")}.csv` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 5000);
    }
  };
  dialog.showModal();
  area.select();
}

// A figure: title, CSV button, drawing, and a caption that explains how to read it.
function figure(title, caption, table, body, wide = false) {
  const head = el("div", { class: "head" }, el("h3", {}, title), table ? csvButton(title, table) : null);
  return el("figure", { class: wide ? "wide" : null }, head, body, caption ? el("figcaption", {}, caption) : null);
}

function note(lines) {
  return lines.length ? el("div", { class: "note", role: "note" }, el("ul", {}, ...lines.map((line) => el("li", {}, line)))) : null;
}

// What the numbers say, in sentences that were computed with them.
function summary(id, lines) {
  return lines.length ? el("ul", { id, class: "summary" }, ...lines.map((line) => el("li", {}, line))) : null;
}
