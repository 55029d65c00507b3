// What `evaluate` measured: tables as it wrote them.

function drawMeasured(facts, section) {
  for (const { title, columns, rows } of facts.measured) {
    const isNumber = columns.map((_, at) => rows.some((row) => typeof row[at] === "number"));
    section.append(
      h("div", { class: "panel scrolled", tabindex: "0", role: "region", "aria-label": title },
        h("table", { class: "measured" },
          h("caption", {}, own(title)),
          h("thead", {}, h("tr", {}, columns.map((name, at) => h("th", { scope: "col", class: isNumber[at] ? "n" : "" }, own(name))))),
          h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, at) => h(at ? "td" : "th", at ? { class: isNumber[at] ? "n" : "" } : { scope: "row" }, own(number(value))))))))),
    );
  }
}
