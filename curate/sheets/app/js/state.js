// What is asked for and what is ticked; whoever shows it listens.

const changes = new EventTarget();

const query = { gallery: "", search: "", klass: "", decision: "", column: "", min: null, max: null, sort: "", descending: false };

/** Ask for something else; nothing happens where nothing changes. */
function askFor(asked) {
  const differs = Object.entries(asked).some(([name, value]) => query[name] !== value);
  Object.assign(query, asked);
  if (differs) changes.dispatchEvent(new Event("query"));
}

function isFiltered() {
  return Boolean(query.search || query.klass || query.decision || query.min !== null || query.max !== null);
}

function clearFilters() {
  askFor({ search: "", klass: "", decision: "", min: null, max: null });
}

/** Keys of ticked rows, by row number, in the order of ticking; they outlive the page, for its table alone. */
const ticks = {
  keys: new Map(),
  place: "",

  restore(place) {
    this.place = `curate-ticks:${place}`;
    try {
      this.keys = new Map(JSON.parse(localStorage.getItem(this.place) ?? "[]"));
    } catch {
      this.keys = new Map(); // no storage, or not ours: begin with none
    }
    this.changed();
  },

  set(rows, on) {
    for (const row of rows) {
      if (on) this.keys.set(row.number, row.key);
      else this.keys.delete(row.number);
    }
    this.changed();
  },

  clear() {
    this.keys.clear();
    this.changed();
  },

  changed() {
    try {
      localStorage.setItem(this.place, JSON.stringify([...this.keys]));
    } catch {
      // Full or forbidden storage: ticks then last as long as the page.
    }
    changes.dispatchEvent(new Event("ticks"));
  },

  /** The CSV that commands read: one column, quoted where it must be; no key is a formula to a spreadsheet. */
  csv() {
    const guarded = (key) => (/^'*[=+\-@\t\r＝＋－＠]/.test(key) ? `'${key}` : key);
    const quoted = (key) => (key === "" || /[",\r\n]|^\s|\s$/.test(key) ? `"${key.replaceAll('"', '""')}"` : key);
    return `key\n${[...this.keys.values()].map((key) => `${quoted(guarded(key))}\n`).join("")}`;
  },
};
