// What the gallery is asked for: search, class, decision, a range of a score, order.

/** Return the classes that can be asked for: all of the rows at hand, else the largest. */
function classesOf({ facts, source }) {
  if (!facts.class_column) return [];
  const names = source.whole ? new Set(source.whole.map((row) => row.get(facts.class_column)).filter((name) => name !== null)) : null;
  return names ? [...names].map(String).sort().slice(0, 2000) : (facts.overview.classes?.shown ?? []).map(([name]) => name);
}

/** Return a field for a bound of a score. */
function bound(which, words) {
  return h("input", {
    type: "number",
    step: "any",
    class: "bound",
    "aria-label": words,
    placeholder: which,
    "data-field": which,
    onchange: (event) => askFor({ [which]: event.target.value === "" ? null : Number(event.target.value) }),
  });
}

/** Return the row of fields above a gallery; they follow what is asked for elsewhere. */
function filterFields(report) {
  const { facts, source } = report;
  const numeric = facts.columns.filter(({ kind }) => kind === "score" || kind === "number");
  const named = (columns) => columns.map(({ name }) => [name, facts.labelOf(name)]);
  const classes = classesOf(report);
  const decisions = source.whole
    ? [...new Set(source.whole.map((row) => row.get("decision")).filter(Boolean))].map((name) => [name, name])
    : ["keep", "drop", "undecided", "failed"].map((name) => [name, name]);
  let typing = 0;
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Search keys and reasons ( / )",
    "aria-label": "Search keys and reasons",
    "data-field": "search",
    oninput: () => {
      const wanted = search.value.trim();
      clearTimeout(typing);
      typing = setTimeout(() => askFor({ search: wanted }), 120);
    },
  });
  const fields = [search];
  if (classes.length) fields.push(choice("Class", [["", "Any class"], ...classes.map((name) => [name, name])], "", (klass) => askFor({ klass }), { "data-field": "klass" }));
  if (decisions.length > 1) fields.push(choice("Decision", [["", "Any decision"], ...decisions], "", (decision) => askFor({ decision }), { "data-field": "decision" }));
  if (numeric.length) {
    fields.push(
      h("span", { class: "range" },
        choice("Score of the range", named(numeric), query.column, (column) => askFor({ column, min: null, max: null }), { "data-field": "column" }),
        bound("min", "at least"), h("span", { "aria-hidden": "true" }, "–"), bound("max", "at most")),
    );
  }
  const clear = h("button", { type: "button", onclick: clearFilters }, "Clear filters");
  const form = h("div", { class: "filters", role: "search", "aria-label": "Filter images" }, fields, clear);
  follow(form, () => (clear.hidden = !isFiltered()));
  return form;
}

/** Let fields show what is asked for, whoever asked. */
function follow(form, also) {
  const show = () => {
    for (const field of form.querySelectorAll("[data-field]")) {
      const asked = String(query[field.dataset.field] ?? "");
      if (field.value !== asked && field !== document.activeElement) field.value = asked;
    }
    also();
  };
  changes.addEventListener("query", show);
  show();
}

/** Return the fields of order. */
function sortFields({ facts }) {
  const sortable = facts.columns.filter(({ kind }) => kind === "score" || kind === "number").map(({ name }) => [name, `Sort: ${facts.labelOf(name)}`]);
  const direction = h("button", {
    type: "button",
    class: "icon",
    "aria-label": "Highest first",
    title: "Highest first",
    onclick: () => askFor({ descending: !query.descending }),
  });
  const options = [["", "Sort: as given"], ["key", "Sort: key"], ...sortable];
  const fields = h("span", { class: "range" }, choice("Sort by", options, query.sort, (sort) => askFor({ sort }), { "data-field": "sort" }), direction);
  follow(fields, () => {
    direction.textContent = query.descending ? "↓" : "↑";
    direction.setAttribute("aria-pressed", String(query.descending));
    direction.disabled = !query.sort;
  });
  return fields;
}
