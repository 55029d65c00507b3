// What `evaluate` measured: tables as it wrote them, the fullest columns first.

function drawMeasured(facts, section) {
  for (const table of facts.measured) {
    const filled = (at) => table.rows.filter((row) => row[at] !== null && row[at] !== "").length;
    const order = table.columns.map((_, at) => at).sort((a, b) => (a && b ? filled(b) - filled(a) : a - b));
    const columns = order.map((at) => table.columns[at]);
    const rows = table.rows.map((row) => order.map((at) => row[at]));
    const kinds = columns.map((_, at) => kindOf(rows.map((row) => row[at])));
    const cell = (value, at) => (at ? h("td", { class: kinds[at] }, own(number(value))) : h("th", { scope: "row" }, own(number(value))));
    section.append(
      h("div", { class: "panel scrolled", tabindex: "0", role: "region", "aria-label": table.title },
        h("table", { class: "measured" },
          h("caption", {}, own(table.title)),
          h("thead", {}, h("tr", {}, columns.map((name, at) => h("th", { scope: "col", class: kinds[at] }, own(name))))),
          h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell)))))),
    );
  }
}

/** Return how a column is set: numbers to the right, sentences on several lines. */
function kindOf(values) {
  if (values.some((value) => typeof value === "number")) return "n";
  return values.some((value) => String(value ?? "").length > 48) ? "long" : "";
}
