// The tray of ticks, at the bottom of the page once there are any.

function makeTray(report) {
  const tray = byId("tray");
  const told = h("strong", {});
  const save = () => saveText(ticks.csv(), "keys.csv");
  const look = async () => showRows(report, await rowsOfTicks(report), { id: "ticked", title: "Ticked", words: "Images ticked so far." });
  tray.append(
    told,
    h("button", { type: "button", id: "save", class: "strong", onclick: save }, "Download CSV"),
    h("button", { type: "button", id: "copy", onclick: () => copyText(ticks.csv()) }, "Copy"),
    h("button", { type: "button", onclick: look }, "Show"),
    h("button", { type: "button", id: "untick", onclick: () => ticks.clear() }, "Clear"),
  );
  const follow = () => {
    const n = ticks.keys.size;
    told.textContent = `${count(n)} ticked`;
    tray.hidden = n === 0;
    document.body.classList.toggle("has-tray", n > 0);
  };
  changes.addEventListener("ticks", follow);
  follow();
}

/** Return the ticked rows that this page knows. */
async function rowsOfTicks({ source }) {
  if (source.whole) return source.whole.filter((row) => ticks.keys.has(row.number));
  return source.at([...ticks.keys.keys()]);
}

function saveText(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
