// What became of the rows: each policy with its reasons, one below the other, as wide as the rows it had.

const OUT = { drop: "dropped", undecided: "undecided", failed: "failed" };

function drawFunnel(facts, section) {
  const whole = facts.funnel[0].rows_in;
  const steps = facts.funnel.map((step) => {
    const strip = h("div", { class: "strip", "aria-hidden": "true" });
    strip.append(widthOf(h("span", { class: "kept" }), step.kept / whole));
    for (const out of step.out) strip.append(widthOf(h("span", { class: out.decision, title: `${out.reason}: ${count(out.n)}` }), out.n / whole));
    const out = [...step.out].sort((a, b) => b.n - a.n);
    return h(
      "li",
      { class: "panel step" },
      h("h3", {}, own(step.step), " ", h("small", { class: "soft" }, own(step.file))),
      strip,
      h("p", {}, `${count(step.rows_in)} in → `, h("strong", {}, `${count(step.kept)} kept`), ` (${percent(step.kept, step.rows_in)})`),
      out.length ? h("ul", { class: "reasons" }, out.map((reason) => drawReason(reason, step))) : null,
    );
  });
  section.append(h("ol", { class: "steps" }, steps));
}

function drawReason({ reason, decision, n }, step) {
  return h(
    "li",
    {},
    h("span", { class: `badge ${decision}` }, OUT[decision] ?? decision),
    own(reason, { class: "reason" }),
    h("span", { class: "n" }, count(n), h("small", {}, ` ${percent(n, step.rows_in)}`)),
  );
}
