// Building the page: every text of the user goes in as text, never as markup.

/** Return a new element. Names that begin with "on" are listeners; null and false leave an attribute out. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return the user's text as an element whose direction of writing reaches nothing around it. */
function own(text, attributes = {}) {
  return h("bdi", attributes, String(text));
}

function byId(id) {
  return document.getElementById(id);
}

/** Set the width of a bar as a share of its line; styles are set here, since the policy allows none in markup. */
function widthOf(element, share) {
  element.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element;
}

/** Return a select of (value, words) pairs. */
function choice(label, options, chosen, onchange, attributes = {}) {
  const select = h("select", { "aria-label": label, onchange: () => onchange(select.value), ...attributes });
  for (const [value, words] of options) select.append(h("option", { value, selected: value === chosen }, words));
  return select;
}

/** Return buttons of which one is pressed. */
function oneOf(label, options, chosen, onchange) {
  const buttons = options.map(([value, words]) =>
    h("button", { type: "button", "data-value": value, "aria-pressed": String(value === chosen) }, words),
  );
  return h(
    "div",
    {
      class: "one-of",
      role: "group",
      "aria-label": label,
      onclick: (event) => {
        const pressed = event.target.closest("button");
        if (!pressed) return;
        for (const button of buttons) button.setAttribute("aria-pressed", String(button === pressed));
        onchange(pressed.dataset.value);
      },
    },
    buttons,
  );
}

/** Say something to those who hear the page. */
function say(words) {
  byId("said").textContent = words;
}
