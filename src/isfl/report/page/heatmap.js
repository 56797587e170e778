// Tables as heat maps of lightness, which read the same in grey. Cells show numbers if they fit.

const LAYERS = {
  probability: "sampling probability",
  local: "local share",
  target: "target share",
  change: "probability ÷ local share",
};

// values: [row][column]; rows: their names, else numbers; picked: the chosen row; onPick(row); tell(row, column): words
// for what is pointed at; top: what the darkest cells are
function heatMap(values, classes, { id, label, rows: names = null, picked, onPick, marked, most, form, top: darkest, tell, diagonal = false }) {
  const readout = el("div", { class: "readout", id: `${id}-readout` });
  const scroll = el("div", { class: "scroll" });
  const place = responsive((width) => {
    const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label, id });
    paint(canvas, Math.max(width, 200));
    return canvas;
  });
  scroll.append(place);
  return el("div", {}, scale(), scroll, readout);

  function paint(canvas, width) {
    const style = getComputedStyle(document.documentElement);
    const [low, high] = ["--low", "--high"].map((name) => style.getPropertyValue(name).split(",").map(Number));
    const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), strong = style.getPropertyValue("--strong");
    const left = names ? Math.min(92, width * 0.22) : 44, top = 20, columns = classes.length, rows = values.length;
    const cell = { width: Math.max((width - left) / columns, 3), height: Math.max(4, Math.min(26, 640 / rows)) };
    const size = { width: left + cell.width * columns, height: top + cell.height * rows };
    const ratio = window.devicePixelRatio || 1;
    canvas.width = size.width * ratio; canvas.height = size.height * ratio;
    canvas.style.width = `${size.width}px`; canvas.style.height = `${size.height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const numbers = cell.width >= 34 && cell.height >= 13;
    values.forEach((row, client) => row.forEach((value, i) => {
      const x = left + i * cell.width, y = top + client * cell.height;
      const share = known(value) ? Math.min(value / most, 1) ** 0.6 : 0;
      pen.fillStyle = `rgb(${low.map((start, part) => Math.round(start + share * (high[part] - start))).join(",")})`;
      pen.fillRect(x, y, Math.ceil(cell.width), Math.ceil(cell.height));
      if (!numbers || !known(value) || value === 0) return;
      pen.fillStyle = share > 0.5 ? `rgb(${low.join(",")})` : `rgb(${high.join(",")})`;
      pen.textAlign = "center";
      pen.fillText(form(value), x + cell.width / 2, y + cell.height / 2 + 0.5);
    }));
    pen.fillStyle = soft;
    pen.textAlign = "right";
    const everyRow = Math.ceil(12 / cell.height), everyColumn = Math.ceil(30 / cell.width);
    for (let client = 0; client < rows; client += everyRow) {
      pen.fillStyle = client === picked ? strong : soft;
      const room = Math.floor(left / 6.5), name = names?.[client] ?? `${marked && !marked.has(client) ? "· " : ""}${client}`;
      pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, left - 6, top + (client + 0.5) * cell.height);
    }
    pen.textAlign = "center";
    pen.fillStyle = soft;
    for (let i = 0; i < columns; i += everyColumn) {
      const room = Math.floor((cell.width * everyColumn) / 6.5), name = classes[i];
      pen.fillText(name.length > room ? `${name.slice(0, Math.max(room - 1, 1))}…` : name, left + (i + 0.5) * cell.width, 9);
    }
    if (known(picked) && picked < rows) {
      pen.strokeStyle = ink;
      pen.lineWidth = 1.5;
      pen.strokeRect(left, top + picked * cell.height, cell.width * columns - 1, cell.height);
    }
    if (diagonal) {
      pen.strokeStyle = soft;
      for (let i = 0; i < rows; i += 1) pen.strokeRect(left + i * cell.width + 0.5, top + i * cell.height + 0.5, cell.width - 1, cell.height - 1);
    }
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      const client = Math.floor((event.clientY - box.top - top) / cell.height), i = Math.floor((event.clientX - box.left - left) / cell.width);
      return client >= 0 && client < rows && i >= 0 && i < columns ? [client, i] : null;
    };
    canvas.onpointermove = (event) => {
      const found = at(event);
      readout.textContent = found ? tell(...found) : "";
    };
    if (!onPick) return;
    canvas.onclick = (event) => { const found = at(event); if (found) onPick(found[0]); };
    canvas.onkeydown = (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && known(picked)) { event.preventDefault(); onPick(Math.max(0, Math.min(rows - 1, picked + step))); }
    };
  }

  function scale() {
    const bar = "linear-gradient(to right, rgb(var(--low)), rgb(var(--high)))";
    return el("div", { class: "legend" }, el("span", {}, "0"), el("span", { style: `flex: 0 0 160px; height: 12px; align-self: center; border: 1px solid var(--line); background: ${bar}` }), el("span", {}, darkest));
  }
}
