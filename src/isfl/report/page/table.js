// Tables that sort when a heading is clicked.

// columns: [{ title, text: is it words?, help }]; rows: [[{ show, sort }]]
function sortableTable(columns, rows, start = 0, descending = false) {
  const body = el("tbody");
  let order = { column: start, descending };
  const headings = columns.map((column, index) =>
    el("th", {
      class: column.text ? "text" : null, title: column.help, scope: "col", tabindex: 0, "aria-sort": "none",
      onclick: () => choose(index), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(index); } },
    }, column.title));

  function choose(index) {
    const again = order.column === index;
    order = { column: index, descending: again ? !order.descending : !columns[index].text };
    fill();
  }

  function fill() {
    const value = (row) => row[order.column].sort;
    const sorted = [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (!known(x) && typeof x !== "string") return 1; // unknown values come last in both orders
      if (!known(y) && typeof y !== "string") return -1;
      const way = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return order.descending ? -way : way;
    });
    headings.forEach((heading, index) =>
      heading.setAttribute("aria-sort", index !== order.column ? "none" : order.descending ? "descending" : "ascending"));
    body.replaceChildren(...sorted.map((row) =>
      el("tr", {}, ...row.map((cell, index) => el("td", { class: columns[index].text ? "text" : null }, cell.show)))));
  }

  fill();
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...headings)), body));
}
